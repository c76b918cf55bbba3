/** The long part of migrate.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
