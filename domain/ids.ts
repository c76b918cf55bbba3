import { v7 } from "uuid";

/** The prefix of each kind of id. An id is the prefix, an underscore and a UUIDv7 in base32 (TypeID), so ids sort by age. */
export const ID_PREFIX = {
  team: "team",
  member: "mbr",
  apiKey: "key",
  list: "list",
  subscriber: "sub",
  contact: "con",
  segment: "seg",
  suppression: "supp",
  unsubscribe: "unsub",
  account: "acct",
  newsletter: "nl",
  campaign: "cmp",
  draftVersion: "dftv",
  template: "tpl",
  stepVersion: "stepv",
  send: "send",
  creditEntry: "cred",
  request: "req",
  webhook: "whk",
  event: "evt",
  tracking: "trk",
  trackedLink: "lnk",
  delivery: "dlv",
  reportSource: "rps",
  dkimKey: "dkim",
  signInLink: "link",
  import: "imp",
  image: "img",
  form: "form",
  formText: "ftxt",
  auditEntry: "aud",
  personRequest: "preq",
} as const;

export type IdKind = keyof typeof ID_PREFIX;

/** The ids in the fields of an object that are named after ids: a text in another field is none. */
export const idsIn = (fields: unknown): string[] =>
  Object.entries<string>(Object(fields)).flatMap(([name, value]) =>
    /(?:^id|_id|Id)$/.test(name) && isId(value) ? [value] : [],
  );

/** Whether it has the form of an id. */
export const isId = (value: unknown): boolean => typeof value === "string" && /^[a-z]+_[0-9a-z]{26}$/.test(value);

/** Longest ID that the API accepts in a path, in characters. */
export const MAX_ID_LENGTH = 64;

/** The part of an ID behind its prefix: 26 characters of base32. */
export const suffixOfId = (kind: IdKind, id: string): string => id.slice(ID_PREFIX[kind].length + 1);

/** The ID of a kind with this suffix. */
export const idOfSuffix = (kind: IdKind, suffix: string): string => `${ID_PREFIX[kind]}_${suffix}`;

/** An ID for documents. */
export const exampleId = (kind: IdKind): string => idOfSuffix(kind, "01m7zh34n8e49vnbt7e64rvp0c");

/** The digits of base32 in a TypeID. */
const DIGITS = "0123456789abcdefghjkmnpqrstvwxyz";

/**
 * The ID of a kind with the 16 bytes of a UUID: 26 digits of 5 bits, two zeros before the 128 of the UUID. See
 * https://github.com/jetify-com/typeid/tree/main/spec. Each request gets an ID, and the library of TypeIDs takes three times as
 * long, because it decodes what it has encoded.
 */
export function idOfBytes(kind: IdKind, uuid: Uint8Array): string {
  let id = idOfSuffix(kind, "");
  let bits = 0;
  let waiting = 2;
  for (const byte of uuid) {
    bits = ((bits & 0b11111) << 8) | byte;
    waiting += 8;
    for (; waiting >= 5; waiting -= 5) id += DIGITS[(bits >> (waiting - 5)) & 0b11111];
  }
  return id;
}

/** Makes a unique ID; later IDs sort later. */
export function newId(kind: IdKind): string {
  return idOfBytes(kind, v7(undefined, new Uint8Array(16)));
}
