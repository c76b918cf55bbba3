/** The long part of relay-lease.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
