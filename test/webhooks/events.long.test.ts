/** The long part of events.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
