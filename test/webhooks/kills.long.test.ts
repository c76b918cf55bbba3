/** The long part of kills.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
