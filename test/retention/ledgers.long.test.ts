/** The long part of ledgers.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
