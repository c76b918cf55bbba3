/** The long part of confirm.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
