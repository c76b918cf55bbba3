/** The long part of account-checks.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
