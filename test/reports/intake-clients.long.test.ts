/** The long part of intake-clients.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
