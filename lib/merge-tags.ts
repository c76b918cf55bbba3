/* The merge tags of mails, for the service and for the console, in which they are written. */

export const MERGE_TAGS = [
  ...(["email", "first_name", "last_name", "list_name"] as const),
  ...(["unsubscribe_url", "tracking_url", "web_url", "postal_address"] as const),
] as const;

/** Words of the template language. They print themselves, or nothing. */
const RESERVED = "true|false|nil|null|empty|blank|and|or|not|contains";
/** A name as the engine reads it. The check of a template tells whether a tag has it. */
export const TAG_NAME = String.raw`(?!(?:${RESERVED})\b)[a-zA-Z_]\w{0,99}(?:\.[a-zA-Z_]\w{0,99}){0,2}`;
