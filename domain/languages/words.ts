import type { Language } from "../../db/entities/team.ts";
import { en } from "./en.ts";

/** A text that a language lacks is an error of types. */
export type Words = typeof en;

const WORDS: Readonly<Record<Language, Words>> = { en, de: en, fr: en, es: en };

export const wordsOf = (language: Language): Words => WORDS[language];
