/** The long part of faulty-server.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
