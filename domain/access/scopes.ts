import type { Role } from "../../db/entities/team.ts";
import { ApiError } from "../errors.ts";

/** Every permission a key can hold. The list is closed: a scope that is not here cannot be minted. */
export const SCOPES = [
  "lists:read",
  "lists:write",
  "subscribers:read",
  "subscribers:write",
  "contacts:read",
  "contacts:write",
  "newsletters:read",
  "newsletters:write",
  "newsletters:send",
  "campaigns:read",
  "campaigns:write",
  "campaigns:send",
  "webhooks:read",
  "webhooks:write",
  "suppressions:read",
  "suppressions:write",
  "suppressions:delete",
  "accounts:read",
  "analytics:read",
  "usage:read",
] as const;
export type Scope = (typeof SCOPES)[number];

const known: ReadonlySet<string> = new Set(SCOPES);
export const isScope = (value: string): value is Scope => known.has(value);

const READS: readonly Scope[] = SCOPES.filter((scope) => scope.endsWith(":read"));

/** Write scopes of an editor: the audience, drafts and the do-not-mail list, and nothing irreversible. */
const EDITOR_WRITES: readonly Scope[] = [
  "lists:write",
  "subscribers:write",
  "contacts:write",
  "newsletters:write",
  "campaigns:write",
  "suppressions:write",
];

const HOLDS: Record<Role, ReadonlySet<Scope>> = {
  VIEWER: new Set(READS),
  EDITOR: new Set([...READS, ...EDITOR_WRITES]),
  ADMIN: new Set(SCOPES),
  OWNER: new Set(SCOPES),
};

export const roleHolds = (role: Role, scope: Scope): boolean => HOLDS[role].has(scope);

/** The send tier: scopes that only an API key which a member minted can hold, never an OAuth client. */
export const SEND_SCOPES: readonly Scope[] = ["newsletters:send", "campaigns:send"];

export const TOKEN_SCOPES: readonly Scope[] = SCOPES.filter((scope) => !SEND_SCOPES.includes(scope));

/** One credential must not both lift addresses off the do-not-mail list and mail them. */
export const FORBIDDEN_PAIRS: readonly (readonly [Scope, Scope])[] = SEND_SCOPES.map((send) => [
  "suppressions:delete",
  send,
]);

/** @throws {ApiError} `forbidden_scope_pair` when two of the scopes must not stand together */
export function refuseForbiddenPairs(scopes: readonly Scope[]): void {
  const pair = FORBIDDEN_PAIRS.find((pair) => pair.every((scope) => scopes.includes(scope)));
  if (pair) throw new ApiError("forbidden_scope_pair", `No key or token may hold ${pair.join(" together with ")}.`);
}
