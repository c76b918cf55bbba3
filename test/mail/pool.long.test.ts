/** The long part of pool.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
