import type { AccountProvider } from "../../db/entities/account.ts";
import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import { domainOf, type SealedKey, signingKeys } from "../sending-domains/keys.ts";
import type { AccountLimits } from "./account-capacity.ts";
import type { OpenedDispatch } from "./lanes.ts";
import { sendable } from "./sendable.ts";

/** The content that all mails of a lane have in common, and its account's limits. */
export interface LaneContent {
  subject: string;
  /** HTML with merge tags. */
  body: string;
  fromEmail: string;
  fromName: string;
  /** Names of the targeted lists by id. */
  listNames: ReadonlyMap<string, string>;
  /** Its account's. */
  provider: AccountProvider;
  /** Keys that sign for the sender's domain; none leaves the mails unsigned. */
  dkimKeys: readonly SealedKey[];
  limits: AccountLimits;
  /** Its account had failed when this was read. */
  accountFailed: boolean;
}

/** Reads the content of a lane's mails. */
export async function readContent(em: EntityManager, dispatch: OpenedDispatch): Promise<LaneContent> {
  const { resource, accountId } = dispatch;
  const { fromEmail, fromName, ...content } = await sendable(resource).readContent(em, dispatch, resource.id);
  const account = await kysely(em)
    .selectFrom("email_accounts")
    .select(["email", "hourly_limit", "daily_limit", "display_name", "status", "provider"])
    .where("id", "=", accountId)
    .where(ofTenant(dispatch))
    .executeTakeFirstOrThrow();
  const from = fromEmail ?? account.email;
  return {
    ...content,
    fromEmail: from,
    fromName: fromName ?? account.display_name,
    provider: account.provider,
    dkimKeys: await signingKeys(em, dispatch, domainOf(from)),
    limits: { hourly: account.hourly_limit, daily: account.daily_limit },
    accountFailed: account.status === "ERROR",
  };
}
