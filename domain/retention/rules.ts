import type { Database } from "../../db/orm.ts";
import { presumedDeadListeners } from "../webhooks/listener.ts";
import { DELIVERIES, DELIVERY_KEPT_DAYS, EVENT_KEPT_DAYS } from "../webhooks/retention.ts";
import { creditEntries } from "./credit-entries.ts";
import { EXPIRED } from "./expired.ts";
import { LEDGERS } from "./ledgers.ts";
import type { Pruning } from "./pruning.ts";

/**
 * When autovacuum visits a table, as the migration sets it; unset for the defaults of Postgres. `queue`: few rows at a time, and
 * many come and go: after 1,000 of them. `log`: many rows, of which the oldest are deleted or changed: after 2 %.
 */
export type Vacuuming = "queue" | "log";

/** How long the rows of a table are kept. */
interface Rule {
  /** As docs/operations/admin.md states it. */
  kept: string;
  vacuuming?: Vacuuming;
}

const rule = (kept: string): Rule => ({ kept });
const queue = (kept: string): Rule => ({ kept, vacuuming: "queue" });
const log = (kept: string): Rule => ({ kept, vacuuming: "log" });

const WITH_LEDGER = "`LEDGER_DAYS` after the end of their send";

/** The rule of every table. The compiler finds a missing table, and a test compares `docs/operations/admin.md`. */
export const RETENTION = {
  account_checks: rule("as long as their account"),
  account_grants: rule("as long as their account, unless it is disconnected or logs in otherwise"),
  account_leases: queue("1 hour after they expire"),
  account_refusals: queue("until a login works, else 3 days after the last one was due"),
  account_usage: queue("7 days"),
  analytics_changes: queue("until they are added to `analytics_days`, within seconds"),
  analytics_days: rule("for good: figures outlive the ledger"),
  api_keys: rule("for good: sends name them"),
  audience_addresses: rule("as long as a contact or a subscriber has the address"),
  automatic_hits: log(WITH_LEDGER),
  campaigns: rule("for good"),
  confirmation_mails: queue("9 days"),
  contact_fields: rule("until the team deletes them"),
  contact_slot_counts: rule("for good: two rows per team"),
  contact_status_checks: queue("until the contacts are set, within seconds"),
  contacts: rule("until the team deletes them, or the person is erased"),
  credit_balances: rule("for good"),
  credit_entries: rule("grants for good; others `CREDIT_ENTRY_DAYS`, then their sums per month"),
  daily_send_usage: queue("60 days"),
  database_keys: rule("for good"),
  deleted_webhooks: queue("1 hour, and until their log is deleted"),
  dkim_keys: rule("until an operator removes them"),
  email_accounts: rule("for good: sends name them"),
  engagements: log(WITH_LEDGER),
  erased_addresses: rule("until an operator readmits the address"),
  hit_batches: queue("1 day"),
  idempotency_records: log("24 hours"),
  list_opt_outs: rule("as long as their list, or until a subscriber with the address gets them back"),
  lists: rule("until the team deletes them"),
  mail_reports: log(WITH_LEDGER),
  members: rule("for good: keys name them"),
  newsletter_lists: rule("as long as their newsletter and list"),
  newsletters: rule("for good"),
  reconciler_passes: rule("for good: a row per kind"),
  report_sources: rule("until an operator removes them"),
  request_counts: queue("2 minutes"),
  revoked_tokens: queue("1 day after the token expires; for good without an expiry"),
  secret_fingerprints: rule("until an operator retires the secret"),
  segments: rule("for good: campaigns name them"),
  send_counts: queue("for good: some rows per send"),
  send_lanes: queue(WITH_LEDGER),
  send_previews: queue("`PREVIEW_DAYS` after they expire; 2 days without a confirm"),
  send_recipients: log("`LEDGER_DAYS` after the end of their send, names and custom fields `LEDGER_NAMES_DAYS`"),
  sends: rule("for good, with their counts"),
  subscribers: rule("until the team deletes them, or the person is erased"),
  subscriptions: rule("as long as their list and subscriber"),
  suppressions: rule("until the team deletes them, or the person is erased"),
  teams: rule("for good"),
  unsubscribes: rule("for good: they prove that a person said no"),
  webhook_deliveries: log(`${DELIVERY_KEPT_DAYS} days, and until they have ended; until their endpoint is deleted`),
  webhook_endpoints: rule("until the team deletes them"),
  webhook_events: log(`${EVENT_KEPT_DAYS} days after the last delivery was made`),
  webhook_health: rule("as long as their endpoint"),
  webhook_outbox: queue("until the relay has made events of them, within seconds"),
  webhook_replays: rule("`BULK_REPLAY_DAYS` after they end"),
} as const satisfies Record<keyof Database, Rule>;

/** Everything that is pruned. */
export const PRUNINGS: readonly Pruning[] = [
  ...EXPIRED,
  presumedDeadListeners,
  ...DELIVERIES,
  creditEntries,
  ...LEDGERS,
];
