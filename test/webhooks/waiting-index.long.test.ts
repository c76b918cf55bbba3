/** The long part of waiting-index.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
