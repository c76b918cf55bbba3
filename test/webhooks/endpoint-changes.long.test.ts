/** The long part of endpoint-changes.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
