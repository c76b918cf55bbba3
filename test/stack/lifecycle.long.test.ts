/** The long part of lifecycle.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
