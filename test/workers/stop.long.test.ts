/** The long part of stop.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
