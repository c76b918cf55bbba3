/** The long part of failing-steps.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
