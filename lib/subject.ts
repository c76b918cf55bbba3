/*
 * A subject greets one person by merge tags; where all readers see it, the greeting is left out. The tags are those of a
 * person's values, and are found in the template, so that a value is never taken for a part of it.
 */

const NAMES = String.raw`\{\{-?\s*(?:email|first_name|last_name|fields\.\w+)\b`;
const TAG = String.raw`${NAMES}(?:(?!\}\}).)*\}\}`;
const PERSON = String.raw`${TAG}(?:\s+${TAG})*`;

/** "{{ first_name }}, your news": what follows begins the sentence. */
const AT_BEGIN = new RegExp(String.raw`^\s*${PERSON}\s*[,:!–—]+\s*(\S)`, "su");
/** "Your news, {{ first_name }}!": no word follows, so that the tag is none of a sentence. */
const AFTER_COMMA = new RegExp(String.raw`\s*,\s*${PERSON}(?=\s*(?:[^\p{L}\p{N}\s{'’&]|$))`, "gsu");
const UNFILLED = new RegExp(String.raw`\s*${NAMES}(?:(?!\}\}|\|\s*default\b).)*\}\}`, "gs");

/** A subject without the tags by which it addresses a person, and without their comma. */
export const withoutGreeting = (subject: string): string =>
  subject.replace(AT_BEGIN, (_, first: string) => first.toUpperCase()).replace(AFTER_COMMA, "");

/** A template, as `withoutGreeting`, and without the tags that print nothing for a person without a value. */
export const publicSubject = (subject: string): string => withoutGreeting(subject).replace(UNFILLED, "").trim();
