/** Longest first or last name of a subscriber, in characters. */
export const MAX_PERSON_NAME_LENGTH = 200;

/** Longest value of a custom field, in characters: that of a text. */
export const MAX_FIELD_TEXT_LENGTH = 500;

/**
 * Whether a one-line text holds a control character: none belongs into a name, a line break in a merge tag would reach
 * a mail's header, and Postgres stores no NUL.
 */
export const hasControlCharacter = (text: string): boolean => /\p{Cc}/u.test(text);
