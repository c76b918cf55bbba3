/** The long part of dispatch.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
