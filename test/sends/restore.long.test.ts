/** The long part of restore.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
