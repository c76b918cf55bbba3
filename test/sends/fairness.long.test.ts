/** The long part of fairness.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
