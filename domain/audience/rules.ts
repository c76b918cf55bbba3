/** Of a list, a newsletter, a campaign or a segment, in characters. */
export const MAX_NAME_LENGTH = 200;

export const MAX_PERSON_NAME_LENGTH = 200;

/** Of the text that a person was shown when they agreed to be tracked, or denied it: each record of them has it. */
export const MAX_CONSENT_WORDS = 1_000;

/** JavaScript counts an emoji twice. */
export const charactersIn = (text: string): number => [...text].length;

export const MAX_FIELD_TEXT_LENGTH = 500;

/** Of a custom field, above and below 0: JSON and CSV hold longer numbers, and a longer member number would become another. */
export const MAX_FIELD_NUMBER = Number.MAX_SAFE_INTEGER;

/** A line break in a merge tag would reach a mail's header, and Postgres stores no NUL. */
export const hasControlCharacter = (text: string): boolean => /\p{Cc}/u.test(text);
