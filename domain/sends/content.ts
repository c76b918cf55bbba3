import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import type { AccountLimits } from "./account-capacity.ts";
import type { OpenedDispatch } from "./lanes.ts";

/** The content that all mails of a lane have in common, and its account's limits. */
export interface LaneContent {
  subject: string;
  /** HTML with merge tags. */
  body: string;
  fromEmail: string;
  fromName: string;
  /** Names of the targeted lists by id. */
  listNames: ReadonlyMap<string, string>;
  limits: AccountLimits;
  /** Its account had failed when this was read. */
  accountFailed: boolean;
}

/** Reads the content of a lane's mails. A newsletter does not change once it is scheduled. */
export async function readContent(em: EntityManager, dispatch: OpenedDispatch): Promise<LaneContent> {
  const db = kysely(em);
  const { resource, accountId } = dispatch;
  const newsletter = await db
    .selectFrom("newsletters")
    .select(["subject", "body", "from_email", "from_name"])
    .where("id", "=", resource.id)
    .where(ofTenant(dispatch))
    .executeTakeFirstOrThrow();
  const account = await db
    .selectFrom("email_accounts")
    .select(["hourly_limit", "daily_limit", "display_name", "last_error"])
    .where("id", "=", accountId)
    .where(ofTenant(dispatch))
    .executeTakeFirstOrThrow();
  const lists = await db
    .selectFrom("lists")
    .innerJoin("newsletter_lists", "newsletter_lists.list_id", "lists.id")
    .select(["lists.id", "lists.name"])
    .where("newsletter_lists.newsletter_id", "=", resource.id)
    .where(ofTenant(dispatch, "lists"))
    .execute();
  return {
    subject: newsletter.subject ?? "",
    body: newsletter.body ?? "",
    fromEmail: newsletter.from_email ?? "",
    fromName: newsletter.from_name ?? account.display_name,
    listNames: new Map(lists.map(({ id, name }) => [id, name])),
    limits: { hourly: account.hourly_limit, daily: account.daily_limit },
    accountFailed: account.last_error !== null,
  };
}
