const NATURAL = new Intl.Collator("en", { numeric: true });

/** "List 2" comes before "List 10". */
export const byName = (a: { name: string }, b: { name: string }): number => NATURAL.compare(a.name, b.name);
