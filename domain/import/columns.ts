import type { ConsentStatus, SuppressionReason } from "../../db/entities/audience.ts";

export const COLUMNS = ["email", "first_name", "last_name", "tracking_consent"] as const;
export type Column = (typeof COLUMNS)[number];

/** Columns, and uses of a column, that are no custom field. */
export const OWN_NAMES: ReadonlySet<string> = new Set([...COLUMNS, "none", "ignored", "consent"]);

/** Of a file of refused rows: the reasons. A column of this name is not imported. */
export const REFUSAL_COLUMN = "Rejected because";

/** `E-Mail`, `FIRST_NAME` and `Prénom` are `email`, `firstname` and `prenom`. */
export const columnKey = (name: string): string =>
  name
    .normalize("NFKD")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, "");

const USUAL_NAMES: Readonly<Record<Column, RegExp>> = {
  email:
    /^(?:(?:subscriber|contact|user|primary)?(?:e?mail|emailid)(?:adress|addresse?|adresse|1value)?|adresse(?:e?mail|electronique)|courriel|correo(?:electronico)?|indirizzoemail|epost(?:adresse)?)$/,
  first_name: /^(?:first|fname|givenname|forename|(?:contact)?firstname|vorname|prenom|nombre|nome|voornaam)$/,
  last_name:
    /^(?:last|lname|surname|familyname|(?:contact)?lastname|nachname|familienname|nom(?:defamille)?|apellidos?|cognome|achternaam)$/,
  tracking_consent:
    /^(?:(?:e?mail|open|click)?track(?:ing)?(?:consent(?:ed|given)?|permission|opt(?:ed)?in|allowed|agreed|granted|einwilligung)|(?:consent|opt(?:ed)?in)to(?:be)?track(?:ing|ed)?)$/,
};

export const usualColumn = (key: string): Column | undefined => COLUMNS.find((column) => USUAL_NAMES[column].test(key));

/** The gravest first. */
export const EXCLUSIONS = ["bounce:complaint", "bounce:hard", "UNSUBSCRIBED"] as const satisfies SuppressionReason[];

/** "agreed" to be mailed, or why not. */
export type Consent = "agreed" | (typeof EXCLUSIONS)[number];

const SUBSCRIBED = /^(?:is|has)?(?:e?mail)?(?:marketing)?(?:subscribed|opt(?:ed)?in|consent(?:given)?)(?:e?mail)?$/;
const DATE_ENDING = "(?:at|on|date|time)?";
const CONSENT_NAMES: readonly (readonly [Consent, RegExp])[] = [
  ["agreed", /^(?:e?mail|subscription|subscriber|member|contact|permission|marketing|optin|consent)*(?:status|state)$/],
  ["agreed", SUBSCRIBED],
  ["agreed", /^acceptse?(?:mail)?marketing$/],
  [
    "UNSUBSCRIBED",
    RegExp(
      `^(?:is|has)?(?:e?mail|globally)?(?:unsub(?:scribed?)?|opt(?:ed)?out|suppressed|bl(?:o|a)cklisted|abgemeldet)(?:of(?:all)?e?mail|from(?:all)?e?mail)?${DATE_ENDING}$`,
    ),
  ],
  ["UNSUBSCRIBED", /^donot(?:e?mail|contact)$/],
  ["bounce:hard", RegExp(`^(?:is|has)?(?:hard)?(?:bounced|cleaned)${DATE_ENDING}$`)],
  ["bounce:complaint", RegExp(`^(?:is|has)?(?:complained|markedasspam)${DATE_ENDING}$`)],
];

export const usualConsent = (key: string): Consent | undefined =>
  CONSENT_NAMES.find(([, names]) => names.test(key))?.[0];

/** No time or IP address of an opt-in says that a person refused. */
const CONSENT_PARTS: readonly (readonly [Consent, RegExp])[] = [
  ["bounce:complaint", /spam|complain/],
  ["bounce:hard", /bounce|^clean|cleaned|invalid/],
  [
    "UNSUBSCRIBED",
    /unsub|opt(?:ed)?out|block|blacklist|suppress|dnc|donot|^(?:not?|kein|nicht)(?:e?mail|newsletter|marketing|subscri|abonn|consent)|deleted|removed|declin|revoke|refus|withdrawn|abbestell|abmeld|abgemeldet|des?(?:abonn|inscri|uscri)|disiscri|baja|uitgeschreven/,
  ],
  [
    "agreed",
    /subscri(?!ber(?:id|key)$)|opt(?:ed)?in(?!(?:time|ip)$)|consen[ts]|permission|gdpr|dsgvo|rgpd|newsletter|(?<!sms)marketing|stat(?:us|ut|o)|estado|einwillig|zustimm|angemeldet|abonn|(?:i|in|su)scri|toestemm/,
  ],
];

export const likelyConsent = (key: string): Consent | undefined =>
  usualConsent(key) ?? CONSENT_PARTS.find(([, parts]) => parts.test(key))?.[0];

/** Whether a column that may state consent does so in each of the texts. */
export function statesConsent(name: string, texts: readonly string[]): boolean {
  const key = columnKey(name);
  const yes = likelyConsent(key);
  return yes !== undefined && texts.every((text) => readConsent(key, yes, text.trim()) !== undefined);
}

/** A column `state` may be that of a postal address. */
export const isMaybeAddress = (key: string): boolean => /^(?:subscriber|member|contact)?state$/.test(key);

const WORDS: readonly (readonly [Consent, RegExp])[] = [
  ["agreed", /^(?:subscribed?|active|confirmed|enabled|opt(?:ed)?in|(?:single|double)optin|express|explicit|implied)$/],
  [
    "UNSUBSCRIBED",
    /^(?:(?:global(?:ly)?)?unsub(?:scribed?)?|opt(?:ed)?out|bl(?:o|a)cklisted|blocked|suppressed|removed|revoked|withdrawn|declined|donotmail|abgemeldet|desabonnee?|desinscrite?)$/,
  ],
  ["bounce:hard", /^(?:cleaned|bounced?|hardbounced?|bouncehard|invalid|undeliverable)$/],
  ["bounce:complaint", /^(?:complain(?:t|ed)|bouncecomplaint|spam(?:complaint|report)?|abuse|markedasspam)$/],
];
const YES = /^(?:true|yes|y|t|1|on|x|ja|oui|si)$/;
const NO = /^(?:false|no|n|f|0|off|nein|non)$/;
const DATE = /^\d{1,4}[-./]\d{1,2}[-./]\d{1,4}/;
const NO_DATE = /^[0 :./-]*$/;

const TRACKING_WORDS: readonly (readonly [ConsentStatus, RegExp])[] = [
  ["GRANTED", /^(?:granted|given|allowed|agreed|accepted|consented|opt(?:ed)?in)$/],
  ["DENIED", /^(?:denied|refused|declined|revoked|withdrawn|disallowed|opt(?:ed)?out)$/],
  ["GRANTED", YES],
  ["DENIED", NO],
];

/** @returns null for an empty value; undefined for one that states neither */
export function readTracking(text: string): ConsentStatus | null | undefined {
  return text === "" ? null : TRACKING_WORDS.find(([, words]) => words.test(columnKey(text)))?.[0];
}

const wordOf = (key: string): Consent | undefined => WORDS.find(([, words]) => words.test(key))?.[0];

export const isRefusal = (text: string): boolean =>
  /^\D{4,30}$/.test(text) && !["agreed", undefined].includes(wordOf(columnKey(text)));

/**
 * @param yes the meaning of yes in the column; among refusals a date is a yes, and an empty value a no
 * @returns undefined for a value that states neither
 */
export function readConsent(column: string, yes: Consent, text: string): Consent | undefined {
  const key = columnKey(text);
  const word = wordOf(key);
  if (word !== undefined) return word;
  if (YES.test(key)) return yes;
  const isRefused = yes !== "agreed";
  if (NO.test(key)) return isRefused ? "agreed" : "UNSUBSCRIBED";
  if (NO_DATE.test(text)) return isRefused ? "agreed" : undefined;
  return DATE.test(text) && (isRefused || SUBSCRIBED.test(column)) ? yes : undefined;
}
