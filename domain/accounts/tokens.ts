import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import type { AccountProvider } from "../../db/entities/account.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { AddressRefused, isLoopback, literalAddress } from "../../lib/address-guard.ts";
import { type FetchedText, guardedPost } from "../../lib/fetch-text.ts";
import { type JsonObject, parseObject } from "../../lib/json-object.ts";
import { openUrlGuard } from "../../lib/url-guard.ts";
import type { AccountFailure, SmtpReason } from "../mail/outcome.ts";
import { sealContext, type Vault } from "../secrets/crypto.ts";

/** The permission to log in with access tokens (RFC 6749), sealed as one text. */
export interface OAuthGrant {
  tokenUrl: string;
  clientId: string;
  clientSecret: string | null;
  refreshToken: string;
}

/**
 * Token endpoints of hosted mailboxes: https://developers.google.com/identity/protocols/oauth2/web-server and
 * https://learn.microsoft.com/entra/identity-platform/v2-oauth2-auth-code-flow.
 */
export const TOKEN_URLS: Partial<Record<AccountProvider, string>> = {
  GOOGLE: "https://oauth2.googleapis.com/token",
  MICROSOFT: "https://login.microsoftonline.com/common/oauth2/v2.0/token",
};

interface IssuedToken {
  accessToken: string;
  expiresInSeconds: number;
  refreshToken: string | undefined;
}

/** @throws {AddressRefused} when the URL or its host is refused */
export type PostForm = (url: string, form: Record<string, string>) => Promise<FetchedText>;

/** The message and the failure hold no secret. */
export class TokenError extends Error {
  override name = "TokenError";
  readonly failure: AccountFailure;

  constructor(reason: Extract<SmtpReason, "access_revoked" | "token_refused" | "token_unavailable">, message: string) {
    super(message);
    this.failure = { outcome: "account_failure", reason, temporary: reason === "token_unavailable" };
  }
}

const grantContext = (accountId: string): string => sealContext("account_grants", "encrypted_grant", accountId);
const tokenContext = (accountId: string): string => sealContext("account_grants", "encrypted_access_token", accountId);

/** A token with less time left is replaced: a login may wait in a queue, and clocks differ. */
const RENEW_BEFORE_SECONDS = 300;
/** A token with more time left is used while no new one can be issued. */
const LEAST_SECONDS = 30;
/** Longer than a request takes. */
const TURN_SECONDS = 15;
const WAIT_MS = 20_000;
const POLL_MS = 200;
/** A token endpoint need not say how long a token lives (RFC 6749, 5.1); an hour is usual. */
const USUAL_SECONDS = 3_600;
const LONGEST_SECONDS = 86_400;

/** Posts to token endpoints, which customers name: https alone, except on loopback, through the guard of webhooks. */
export function openTokenPost(settings: Parameters<typeof openUrlGuard>[0]): PostForm {
  const guard = openUrlGuard(settings);
  const post = guardedPost(guard);
  return async (text, form) => {
    const url = guard.checkUrl(text);
    const isLocal = isLoopback(literalAddress(url.hostname)?.address ?? "");
    if (url.protocol !== "https:" && !isLocal)
      throw new TokenError("token_refused", "Use a token URL that starts with https://.");
    return post(url, form);
  };
}

/**
 * @throws {TokenError} `access_revoked` for `invalid_grant`, `token_unavailable` for a failure that may pass, else
 * `token_refused`
 */
async function requestToken(grant: OAuthGrant, postForm: PostForm): Promise<IssuedToken> {
  const form = {
    grant_type: "refresh_token",
    refresh_token: grant.refreshToken,
    client_id: grant.clientId,
    ...(grant.clientSecret === null ? {} : { client_secret: grant.clientSecret }),
  };
  const { status, text } = await postForm(grant.tokenUrl, form).catch((error: unknown) => {
    if (error instanceof TokenError) throw error;
    if (error instanceof AddressRefused) throw new TokenError("token_refused", `The token URL: ${error.message}`);
    throw new TokenError("token_unavailable", "The token endpoint did not answer.");
  });
  const answer = parseObject(text) ?? {};
  if (status >= 200 && status < 300) return issuedToken(answer);
  if (status < 400 || status >= 500 || status === 408 || status === 429) {
    throw new TokenError("token_unavailable", `The token endpoint answered ${status}.`);
  }
  if (answer["error"] === "invalid_grant") {
    throw new TokenError("access_revoked", "The token endpoint says that the refresh token is no longer valid.");
  }
  throw new TokenError("token_refused", `The token endpoint refuses the client: it answered ${status}.`);
}

function issuedToken(answer: JsonObject): IssuedToken {
  const { access_token: accessToken, expires_in: expiresIn, refresh_token: refreshToken } = answer;
  // RFC 6750, 2.1 allows visible characters only; others could end the SMTP command that the token goes into.
  if (typeof accessToken !== "string" || !/^[\x21-\x7e]+$/.test(accessToken)) {
    throw new TokenError("token_unavailable", "The token endpoint gave no access token.");
  }
  const seconds = Number(expiresIn);
  return {
    accessToken,
    expiresInSeconds: seconds > 0 ? Math.min(seconds, LONGEST_SECONDS) : USUAL_SECONDS,
    refreshToken: typeof refreshToken === "string" && refreshToken !== "" ? refreshToken : undefined,
  };
}

interface TokenDeps {
  vault: Vault;
  postForm: PostForm;
}

export interface TriedGrant {
  grant: OAuthGrant;
  issued: IssuedToken;
}

export async function tryGrant(grant: OAuthGrant, postForm: PostForm): Promise<TriedGrant> {
  const issued = await requestToken(grant, postForm);
  return { grant: { ...grant, refreshToken: issued.refreshToken ?? grant.refreshToken }, issued };
}

export async function storeGrant(
  em: EntityManager,
  accountId: string,
  { grant, issued }: { grant: OAuthGrant; issued?: IssuedToken | undefined },
  vault: Vault,
): Promise<void> {
  const encrypted = vault.encrypt(JSON.stringify(grant), grantContext(accountId));
  const token = issued ? vault.encrypt(issued.accessToken, tokenContext(accountId)) : null;
  await sql`
    insert into account_grants as g (account_id, encrypted_grant, encrypted_access_token, token_expires_at)
    values (${accountId}, ${encrypted}, ${token}, ${expiresAt(issued)})
    on conflict (account_id) do update set encrypted_grant = excluded.encrypted_grant, version = g.version + 1,
      encrypted_access_token = excluded.encrypted_access_token, token_expires_at = excluded.token_expires_at,
      refreshing_until = null`.execute(kysely(em));
}

export async function hasGrant(em: EntityManager, accountId: string): Promise<boolean> {
  const found = await kysely(em)
    .selectFrom("account_grants")
    .select("account_id")
    .where("account_id", "=", accountId)
    .executeTakeFirst();
  return found !== undefined;
}

export async function deleteGrant(em: EntityManager, accountId: string): Promise<void> {
  await kysely(em).deleteFrom("account_grants").where("account_id", "=", accountId).execute();
}

const expiresAt = (issued: IssuedToken | undefined) =>
  issued
    ? sql<string>`clock_timestamp() + make_interval(secs => ${issued.expiresInSeconds})`
    : sql<string | null>`null::timestamptz`;

interface StoredGrant {
  encrypted_grant: string;
  version: number;
  encrypted_access_token: string | null;
  seconds_left: number | null;
  refreshing: boolean;
}

/**
 * An access token to log in with: the stored one, or a new one that one process at a time requests.
 * @param refused a token that the SMTP server has just refused: it is not returned again
 * @throws {TokenError}
 */
export async function accessTokenOf(
  em: EntityManager,
  accountId: string,
  deps: TokenDeps,
  refused?: string,
): Promise<string> {
  const { vault } = deps;
  for (const deadline = performance.now() + WAIT_MS; ; await delay(POLL_MS)) {
    const stored = await readGrant(em, accountId);
    const { encrypted_access_token: sealed, seconds_left } = stored;
    const left = seconds_left ?? 0;
    const token = sealed === null ? undefined : vault.decrypt(sealed, tokenContext(accountId));
    const usable = token !== undefined && token !== refused && left > LEAST_SECONDS ? token : undefined;
    if (usable !== undefined && (left > RENEW_BEFORE_SECONDS || stored.refreshing)) return usable;
    if (await takeTurnToRefresh(em, accountId, stored)) return await refresh(em, accountId, deps, stored, usable);
    if (performance.now() > deadline) {
      throw new TokenError("token_unavailable", "Another process asks for an access token and has none yet.");
    }
  }
}

async function readGrant(em: EntityManager, accountId: string): Promise<StoredGrant> {
  const { rows } = await sql<StoredGrant>`
    select encrypted_grant, version, encrypted_access_token,
      extract(epoch from token_expires_at - clock_timestamp())::float8 as seconds_left,
      coalesce(refreshing_until > clock_timestamp(), false) as refreshing
    from account_grants where account_id = ${accountId}`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw new TokenError("token_refused", "The account has no OAuth grant.");
  return row;
}

/** @returns false when another process has the turn, or has stored another token since `seen` was read */
async function takeTurnToRefresh(em: EntityManager, accountId: string, seen: StoredGrant): Promise<boolean> {
  const { numAffectedRows } = await sql`
    update account_grants set refreshing_until = clock_timestamp() + make_interval(secs => ${TURN_SECONDS})
    where account_id = ${accountId} and version = ${seen.version}
      and encrypted_access_token is not distinct from ${seen.encrypted_access_token}
      and (refreshing_until is null or refreshing_until <= clock_timestamp())`.execute(kysely(em));
  return numAffectedRows === 1n;
}

/** @param usable the old token, to return if requesting a new one fails for now */
async function refresh(
  em: EntityManager,
  accountId: string,
  { vault, postForm }: TokenDeps,
  { encrypted_grant, version }: StoredGrant,
  usable: string | undefined,
): Promise<string> {
  try {
    const grant = JSON.parse(vault.decrypt(encrypted_grant, grantContext(accountId))) as OAuthGrant;
    const tried = await tryGrant(grant, postForm);
    const { issued } = tried;
    await sql`
      update account_grants set refreshing_until = null, token_expires_at = ${expiresAt(issued)},
        encrypted_access_token = ${vault.encrypt(issued.accessToken, tokenContext(accountId))},
        encrypted_grant = ${issued.refreshToken === undefined ? sql.ref("encrypted_grant") : vault.encrypt(JSON.stringify(tried.grant), grantContext(accountId))}
      where account_id = ${accountId} and version = ${version}`.execute(kysely(em));
    return issued.accessToken;
  } catch (error) {
    const { numAffectedRows } = await sql`update account_grants set refreshing_until = null
      where account_id = ${accountId} and version = ${version}`.execute(kysely(em));
    if (error instanceof TokenError && numAffectedRows === 0n) {
      // The endpoint's answer is about the old grant: the account must not become REVOKED, which no check repairs.
      throw new TokenError("token_unavailable", "The account was given other credentials meanwhile.");
    }
    if (error instanceof TokenError && error.failure.temporary && usable !== undefined) return usable;
    throw error;
  }
}
