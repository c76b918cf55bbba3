/** The long part of silent-network.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
