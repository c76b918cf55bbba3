import { AccountCheckError, type AccountDeps } from "../../../domain/accounts/accounts.ts";
import { openTokenPost } from "../../../domain/accounts/tokens.ts";
import { ApiError } from "../../../domain/errors.ts";
import type { RequestContext } from "../../context.ts";
import { beforeDeadline } from "../../rest/deadline.ts";
import { Turns } from "../../rest/turns.ts";

/** For these a request waits: a login at a mail server, and the look-ups of a domain. */
const LOGIN_MS = 30_000;
const LOOKUPS_MS = 20_000;
/** Checks of one team that are under way at once in this process: all that bounds its connections to mail servers. */
const CHECKS_OF_A_TEAM = 2;
const turns = new Turns(CHECKS_OF_A_TEAM);

/** The field of the form that a refused login is about; the server for any other reason. */
const FIELDS: Readonly<Record<string, string>> = {
  login_refused: "password",
  login_in_clear_text: "security",
  tls_failed: "security",
  access_revoked: "refresh_token",
  token_refused: "refresh_token",
  token_unavailable: "refresh_token",
};

/**
 * Acts with logins at mail servers.
 * @throws {ApiError} `validation_failed`, naming the field, when a server refuses the login or does not answer in time
 */
export async function withLogins<T>(ctx: RequestContext, act: (deps: AccountDeps) => Promise<T>): Promise<T> {
  const { env, vault, tenant, answering } = ctx;
  const deps: AccountDeps = {
    vault,
    postForm: openTokenPost(env),
    verify: async (login) => {
      // The SMTP client is loaded for a check alone.
      const { verifyLogin } = await import("../../../activities/smtp/verify.ts");
      return verifyLogin(env, login, AbortSignal.timeout(LOGIN_MS));
    },
  };
  try {
    return await turns.during(tenant.teamId, answering, () => act(deps));
  } catch (error) {
    if (!(error instanceof AccountCheckError)) throw error;
    const { reason, message } = error.failure;
    throw new ApiError("validation_failed", message, { param: FIELDS[reason] ?? "host" });
  }
}

/** Acts with look-ups in DNS. @throws {ApiError} `service_unavailable` when they are not answered in time */
export const withLookups = <T>({ tenant, answering }: RequestContext, act: () => Promise<T>): Promise<T> =>
  turns.during(tenant.teamId, answering, () => beforeDeadline(LOOKUPS_MS, act));
