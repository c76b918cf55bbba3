/** The long part of unsubscribe-race.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
