/** The long part of gates.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
