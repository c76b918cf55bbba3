/** The long part of bulk-replay.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
