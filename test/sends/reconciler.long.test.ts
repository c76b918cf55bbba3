/** The long part of reconciler.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
