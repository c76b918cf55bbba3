/** The long part of settings.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
