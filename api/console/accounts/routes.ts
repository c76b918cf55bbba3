import { z } from "zod";
import type { EmailAccount } from "../../../db/entities/account.ts";
import {
  type Credentials,
  connectAccount,
  readAccount,
  resumeAccount,
  suspendAccount,
  updateAccount,
} from "../../../domain/accounts/accounts.ts";
import { disconnectAccount, disconnectRefusal, readAccountUses } from "../../../domain/accounts/disconnect.ts";
import { hasGrant, TOKEN_URLS } from "../../../domain/accounts/tokens.ts";
import { readAccountHealth } from "../../../domain/analytics/account-health.ts";
import { ApiError } from "../../../domain/errors.ts";
import { sentenceFor } from "../../../domain/mail/smtp-sentences.ts";
import {
  type AccountFacts,
  listAccounts,
  readAccountFacts,
} from "../../../domain/sends/operators/account-inspection.ts";
import { presentOverview } from "../../analytics/present.ts";
import { router } from "../../rest/route.ts";
import { consoleMutation, consoleQuery, noInput } from "../procedure.ts";
import { withLogins } from "./checks.ts";
import { domainsRouter } from "./domains.ts";
import { providersRouter } from "./providers.ts";
import { accountParams, connectBody, type GivenCredentials, limitsBody, loginBody } from "./schema.ts";
import { webhooksRouter } from "./webhooks.ts";

const ofAccount = z.strictObject({ params: accountParams });

const problemOf = (reason: string | undefined, reply: string | null = null) =>
  reason === undefined ? null : `${sentenceFor(reason)}${reply === null ? "" : ` It said: ${reply}`}`;

const presentFacts = ({ refusal, hour, day, ...facts }: AccountFacts) => ({
  id: facts.id,
  email: facts.email,
  provider: facts.provider,
  status: facts.status,
  /** Why it cannot be used, in words. */
  problem: problemOf(
    facts.status === "ACTIVE" ? refusal?.reason : (facts.lastError ?? refusal?.reason),
    facts.lastReply,
  ),
  /** Refused connections in a row, while there are any. */
  refused: refusal && { count: refusal.count, since: refusal.since, retry_at: refusal.retryAt },
  last_checked_at: facts.lastCheckedAt,
  next_check_at: facts.nextCheckAt,
  host: facts.host,
  port: facts.port,
  max_connections: facts.maxConnections,
  connections: facts.connections,
  hour,
  day,
  open_sends: facts.sends.length,
});

const presentStatus = ({ id, status }: EmailAccount) => ({ id, status });

/** @param usualTokenUrl of the account's provider @throws {ApiError} `validation_failed` */
function credentialsOf(given: GivenCredentials, usualTokenUrl: string | undefined): Credentials {
  const { username, password, client_id: clientId, refresh_token: refreshToken, client_secret: clientSecret } = given;
  if (clientId === undefined) return { username, password };
  const missing = (param: string, message: string) => new ApiError("validation_failed", message, { param });
  const tokenUrl = given.token_url ?? usualTokenUrl;
  if (username === null) throw missing("username", "Give the mailbox's login name.");
  if (refreshToken === undefined) throw missing("refresh_token", "Give the refresh token.");
  if (tokenUrl === undefined) throw missing("token_url", "Give the provider's token endpoint.");
  return { username, password: null, grant: { tokenUrl, clientId, clientSecret, refreshToken } };
}

export const accountsRouter = router({
  list: consoleQuery({ role: "VIEWER", input: noInput }, async ({ ctx }) =>
    (await listAccounts(ctx.em, { tenant: ctx.tenant })).map(presentFacts),
  ),

  show: consoleQuery({ role: "VIEWER", input: ofAccount }, async ({ ctx, input }) => {
    const { accountId } = input.params;
    const account = await readAccount(ctx.em, accountId);
    return {
      ...presentFacts(await readAccountFacts(ctx.em, accountId, ctx.tenant)),
      display_name: account.displayName,
      security: account.security,
      allowed_domains: account.allowedDomains,
      hourly_limit: account.hourlyLimit,
      daily_limit: account.dailyLimit,
      updated_at: account.updatedAt.toISOString(),
      login: (await hasGrant(ctx.em, accountId)) ? "oauth" : account.username === null ? "none" : "password",
    } as const;
  }),

  connect: consoleMutation(
    { role: "ADMIN", input: z.strictObject({ body: connectBody }), ownCommit: true },
    async ({ ctx, input: { body } }) => {
      const { email, provider, host, port, security } = body;
      const fields = {
        ...{ email, provider, host, port, security },
        displayName: body.display_name ?? email,
        allowedDomains: body.allowed_domains,
        maxConnections: body.max_connections,
        hourlyLimit: body.hourly_limit,
        dailyLimit: body.daily_limit,
        ...credentialsOf(body, TOKEN_URLS[provider]),
      };
      return presentStatus(await withLogins(ctx, (deps) => connectAccount(ctx.em, ctx.tenant, fields, deps)));
    },
  ),

  update: consoleMutation(
    { role: "ADMIN", input: z.strictObject({ params: accountParams, body: limitsBody }), ownCommit: true },
    async ({ ctx, input }) => {
      const { max_connections: maxConnections, hourly_limit, daily_limit } = input.body;
      const changes = { maxConnections, hourlyLimit: hourly_limit, dailyLimit: daily_limit };
      const { accountId } = input.params;
      return presentStatus(await withLogins(ctx, (deps) => updateAccount(ctx.em, accountId, changes, deps, ctx.edit)));
    },
  ),

  setCredentials: consoleMutation(
    { role: "ADMIN", input: z.strictObject({ params: accountParams, body: loginBody }), ownCommit: true },
    async ({ ctx, input }) => {
      const { accountId } = input.params;
      const { provider } = await readAccount(ctx.em, accountId);
      const { host, port, security, ...given } = input.body;
      const credentials = credentialsOf(given, TOKEN_URLS[provider]);
      const changes = { host, port, security, credentials };
      return presentStatus(await withLogins(ctx, (deps) => updateAccount(ctx.em, accountId, changes, deps, ctx.edit)));
    },
  ),

  suspend: consoleMutation({ role: "ADMIN", input: ofAccount }, async ({ ctx, input: { params } }) =>
    presentStatus(await suspendAccount(ctx.em, params.accountId)),
  ),

  resume: consoleMutation({ role: "ADMIN", input: ofAccount, ownCommit: true }, async ({ ctx, input: { params } }) =>
    presentStatus(await withLogins(ctx, (deps) => resumeAccount(ctx.em, params.accountId, deps))),
  ),

  /** The days of what it mails. */
  health: consoleQuery({ role: "VIEWER", input: ofAccount, isHeavy: true }, async ({ ctx, input }) => {
    const { id } = await readAccount(ctx.em, input.params.accountId);
    const { isShared, ...overview } = await readAccountHealth(ctx.em, ctx.tenant, id);
    const { days, totals, rates } = presentOverview(overview);
    return { days, totals, rates, is_shared: isShared };
  }),

  /** The drafts, sends and sequences of the account, and the reason that keeps it connected. */
  uses: consoleQuery({ role: "VIEWER", input: ofAccount }, async ({ ctx, input }) => {
    const account = { ...ctx.tenant, accountId: input.params.accountId };
    const refusal = await disconnectRefusal(ctx.em, account);
    return { uses: await readAccountUses(ctx.em, account), refusal };
  }),

  disconnect: consoleMutation({ role: "ADMIN", input: ofAccount }, async ({ ctx, input: { params } }) => {
    await disconnectAccount(ctx.em, { ...ctx.tenant, accountId: params.accountId });
    return { id: params.accountId };
  }),

  domains: domainsRouter,

  providers: providersRouter,

  webhooks: webhooksRouter,
});
