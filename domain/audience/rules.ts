/** Longest name of a list, a newsletter, a campaign or a segment, in characters. */
export const MAX_NAME_LENGTH = 200;

/** Longest first or last name of a subscriber, in characters. */
export const MAX_PERSON_NAME_LENGTH = 200;

/** A text's length in characters as readers count them: JavaScript counts an emoji twice. */
export const charactersIn = (text: string): number => [...text].length;

/** Longest text of a custom field, in characters. */
export const MAX_FIELD_TEXT_LENGTH = 500;

/**
 * Whether a text holds a control character, which names and other texts of one line must not: a line break in a merge tag
 * would reach a mail's header, and Postgres stores no NUL.
 */
export const hasControlCharacter = (text: string): boolean => /\p{Cc}/u.test(text);
