/** The long part of temporal-access.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
