/** The long part of operator.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
