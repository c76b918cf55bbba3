import { typeidUnboxed } from "typeid-js";

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
  send: "send",
  creditEntry: "cred",
  request: "req",
  webhook: "whk",
  event: "evt",
  tracking: "trk",
  delivery: "dlv",
  group: "grp",
  replay: "rpl",
  reportSource: "rps",
  dkimKey: "dkim",
} as const;

export type IdKind = keyof typeof ID_PREFIX;

/** Longest ID that the API accepts in a path, in characters. */
export const MAX_ID_LENGTH = 64;

/** An ID for documents. */
export const exampleId = (kind: IdKind): string => `${ID_PREFIX[kind]}_01m7zh34n8e49vnbt7e64rvp0c`;

/** Makes a unique ID; later IDs sort later. */
export function newId(kind: IdKind): string {
  return typeidUnboxed(ID_PREFIX[kind]);
}
