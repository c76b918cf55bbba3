/** The long part of rotation.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
