import type { Language } from "../../db/entities/team.ts";
import { de } from "./de.ts";
import { en, type Words } from "./en.ts";
import { es } from "./es.ts";
import { fr } from "./fr.ts";

const WORDS: Readonly<Record<Language, Words>> = { en, de, fr, es };

export const wordsOf = (language: Language): Words => WORDS[language];

/** The day of an instant, in UTC. @param at ISO 8601 */
export const dateOf = ({ locale }: Words, at: string): string =>
  new Date(at)
    .toLocaleDateString(locale, { dateStyle: "long", timeZone: "UTC" })
    .replace(/^1(?= )/, locale === "fr-FR" ? "1er" : "1");
