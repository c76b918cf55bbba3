/** The long part of refused-accounts.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
