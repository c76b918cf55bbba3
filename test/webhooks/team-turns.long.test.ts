/** The long part of team-turns.test.ts. */
await import(import.meta.url.replace(".long.test.ts", ".test.ts?long"));
