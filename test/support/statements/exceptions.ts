import type { Recorded } from "./recorded.ts";

/** Statements that may touch tenants' rows without both tenant columns. */
export interface Exception {
  reason: string;
  program: Recorded["program"];
  /** The file that runs them. */
  file: RegExp;
  tables: readonly string[];
  /** Found in the statement, in lower case, without quotes and line breaks. */
  statement?: RegExp;
}

const WEBHOOK_TABLES = ["webhook_endpoints", "webhook_outbox", "webhook_events", "webhook_deliveries"] as const;

/** Compared with a value, such a column finds one row, or the rows that belong to it. */
const BY_ID = /\b(?:id|\w+_id) = (?:\$|any\(\$)/;

export const EXCEPTIONS: readonly Exception[] = [
  ...(["api", "workers"] as const).map((program) => ({
    reason: "The row of a record tells the tenant in which the consent of its address is looked up.",
    program,
    file: /^(?:domain|api)\//,
    tables: ["tracking_consents"],
    statement:
      /from tracking_consents k where k\.team_id = (\w+)\.team_id and k\.environment = \1\.environment and k\.email = \1\.email/,
  })),
  {
    reason: "The signed reference of a form, and the words at a subscription, tell the tenant.",
    program: "api",
    file: /^domain\/(?:forms\/forms|audience\/confirmations)\.ts$/,
    tables: ["forms", "form_texts", "form_days", "lists"],
    statement: BY_ID,
  },
  {
    reason: "The signed reference of a newsletter or a list tells the tenant.",
    program: "api",
    file: /^domain\/sends\/web-pages\.ts$/,
    tables: ["newsletters", "newsletter_lists", "lists", "forms", "sends"],
    statement: BY_ID,
  },
  {
    reason: "The row of a form tells the tenant of its texts and its figures.",
    program: "api",
    file: /^api\/forms\/routes\.ts$/,
    tables: ["form_texts", "form_days"],
  },
  {
    reason: "The newest image of all tells whether this process has the store of the others; no answer shows it.",
    program: "api",
    file: /^domain\/images\/images\.ts$/,
    tables: ["images"],
    statement: /^select file from images order by id desc limit \$1$/,
  },
  {
    reason: "The key of a request tells its tenant.",
    program: "api",
    file: /^domain\/access\/request-limit\.ts$/,
    tables: ["api_keys"],
    statement: /public_id = \$/,
  },
  {
    reason: "A signed link names the row that tells the tenant.",
    program: "api",
    file: /^domain\/(?:audience\/(?:confirmations|unsubscribes)|reports\/source)\.ts$/,
    tables: ["sends", "subscriptions", "subscribers", "lists", "suppressions", "report_sources"],
    statement: BY_ID,
  },
  {
    reason: "A signed path names the provider's webhook, which tells the tenant.",
    program: "api",
    file: /^(?:domain\/reports\/source|api\/hooks\/router)\.ts$/,
    tables: ["report_sources"],
    statement: / where s0\.id = 'rps_/,
  },
  {
    reason: "Hits of all tenants are settled together; signed links name the mails that tell their tenants.",
    program: "workers",
    file: /^domain\/tracking\/settle\.ts$/,
    tables: ["sends", "webhook_endpoints", "engagements", "tracking_consents"],
    statement:
      /join lateral \(select .* from sends where id = h\.send_id limit 1\) s | e\.send_id = t\.send_id and e\.seq = t\.seq /,
  },
  {
    reason:
      "The sends that the call has found under their tenant: too many complaints pause them, or a client commands.",
    program: "api",
    file: /^domain\/sends\/ledger\/lifecycle\.ts$/,
    tables: ["sends", "newsletters", "campaigns"],
    statement: BY_ID,
  },
  {
    reason:
      "The row that the same transaction has just written: with the tenant's columns beside its id, a plan made while the table was small walks the index of the tenant's rows.",
    program: "api",
    file: /^domain\/webhooks\/emit\.ts$/,
    // The record of a newsletter or campaign holds the counts of its send.
    tables: ["subscribers", "contacts", "newsletters", "campaigns", "sends"],
    statement:
      /(?:subscribers s where s|contacts c where c|newsletters n where n|campaigns c where c)\.id = (?:\$|any\(\$)/,
  },
  {
    reason: "The sequence that the same transaction has locked under its tenant leads to its steps and its team.",
    program: "api",
    file: /^domain\/sequences\/enrolments\.ts$/,
    tables: ["sequences"],
    statement: /join sequences q on q\.campaign_id = s\.campaign_id/,
  },
  {
    reason: "Read under its tenant by the same request, a sequence is changed by its id.",
    program: "api",
    file: /^domain\/sequences\//,
    tables: ["sequences", "campaigns", "sends"],
    statement: BY_ID,
  },
  {
    reason: "The contacts that the same transaction has locked under their tenant, by ids alone for the same reason.",
    program: "api",
    file: /^domain\/audience\/contact-rows\.ts$/,
    tables: ["contacts"],
    statement: /update contacts c set .* where c\.id = g\.id /,
  },
  {
    reason:
      "Read under its tenant in the same transaction, an endpoint leads to its deliveries, and these to their events.",
    program: "api",
    file: /^domain\/webhooks\//,
    tables: ["webhook_deliveries", "webhook_events"],
    statement: BY_ID,
  },
  {
    reason:
      "A workflow carries the ids of its send or sequence and of what that consists of, and no tenant; ids cannot be guessed.",
    program: "workers",
    file: /^(?:domain\/sends|domain\/sequences|domain\/webhooks\/emit\.ts|activities)\b/,
    tables: [
      "sends",
      "sequences",
      "send_previews",
      "newsletters",
      "campaigns",
      "email_accounts",
      "lists",
      "subscriptions",
      "subscribers",
      "suppressions",
    ],
    statement: BY_ID,
  },
  {
    reason:
      "Sweeps and wakes of sequences serve all tenants; a workflow carries the id of its sequence, and no tenant.",
    program: "workers",
    file: /^(?:domain\/sequences|activities)\b/,
    tables: ["campaigns", "sequences", "contacts", "sends", "bin"],
  },
  {
    reason: "The relay and the deliveries serve all tenants; each row carries its tenant along.",
    program: "workers",
    file: /^(?:domain\/webhooks\/|workers\/outbox-relay\.ts$)/,
    tables: WEBHOOK_TABLES,
  },
  {
    reason: "The mails that confirm double opt-ins are sent for all tenants.",
    program: "workers",
    file: /^domain\/audience\/confirmation-mails\.ts$/,
    tables: ["subscriptions", "subscribers", "lists", "suppressions", "confirmation_mails"],
    statement: /confirmation_due_at (?:<= clock_timestamp\(\)|= case)/,
  },
  {
    reason: "A metric shows for how long the service's own mails have waited, over all tenants.",
    program: "workers",
    file: /^domain\/mail\/system-mail\.ts$/,
    tables: ["subscriptions", "subscribers", "confirmation_mails", "webhook_endpoints"],
  },
  {
    reason: "A report names its mail by the id of a send, which tells the tenant.",
    program: "workers",
    file: /^domain\/reports\/record\.ts$/,
    tables: ["sends"],
    statement: BY_ID,
  },
  {
    reason: "The address of an unsubscribe mail is signed, and names the row that tells the tenant.",
    program: "workers",
    file: /^domain\/audience\/unsubscribes\.ts$/,
    tables: ["sends", "subscriptions", "subscribers", "lists"],
    statement: BY_ID,
  },
  {
    reason: "The addresses that bounced are looked at for all tenants; each row carries its tenant along.",
    program: "workers",
    file: /^domain\/audience\/email-status\.ts$/,
    tables: ["contact_status_checks"],
  },
  {
    reason: "Changes of figures are added up for all tenants; each row carries its tenant along.",
    program: "workers",
    file: /^domain\/analytics\/fold\.ts$/,
    tables: ["analytics_changes", "analytics_days"],
  },
  {
    reason: "Retention deletes what is too old, of all tenants.",
    program: "workers",
    file: /^domain\/retention\/prunings\.ts$/,
    tables: [
      ...["idempotency_records", "draft_versions", "imports", "send_previews", "confirmation_mails", "form_days"],
      ...["audit_entries", "person_requests"],
    ],
    statement: /^delete from (\w+) where ctid = any\(array\( select ctid from \1 where /,
  },
  {
    reason: "Retention empties the bins of all tenants.",
    program: "workers",
    file: /^domain\/bin\/retention\.ts$/,
    tables: ["bin", "bin_subscriptions"],
  },
  {
    reason: "Retention looks for sign-ups of all tenants that no person confirmed; each row carries its tenant along.",
    program: "workers",
    file: /^domain\/forms\/unconfirmed\.ts$/,
    tables: ["subscriptions", "subscribers", "bin_subscriptions"],
    statement: /s\.status = 'pending' and s\.form_at </,
  },
  {
    reason:
      "Retention takes the sends of all tenants whose time has passed; their ids lead to the rows of their mails.",
    program: "workers",
    file: /^domain\/retention\/(?:ledgers|prunings)\.ts$/,
    tables: ["sends", "mail_reports", "engagements", "credit_entries"],
  },
  {
    reason:
      "An erasure reads texts in the order of their keys, by which each statement stays short, and takes those of its tenant.",
    program: "workers",
    file: /^domain\/erasure\/erase-texts\.ts$/,
    tables: [
      ...WEBHOOK_TABLES,
      ...[
        "api_keys",
        "bin",
        "bin_rows",
        "campaigns",
        "contacts",
        "draft_versions",
        "email_accounts",
        "form_texts",
        "forms",
      ],
      ...[
        "images",
        "imports",
        "lists",
        "newsletters",
        "segments",
        "send_previews",
        "sends",
        "sequences",
        "subscribers",
      ],
      ...["templates", "tracked_links"],
    ],
    statement: /^with batch as materialized \(.*from batch b where \(b\.team_id = /,
  },
  {
    reason: "The reconciler looks for imports, exports and erasures of all tenants that no workflow carries out.",
    program: "workers",
    file: /^(?:domain\/import\/stored|domain\/erasure\/requests|activities\/ordered-work)\.ts$/,
    tables: ["imports", "person_requests"],
    statement: /state (?:in \(\$1, \$2, \$3\)|= \$1) and updated_at </,
  },
  {
    reason: "Retention makes way for the sends of all tenants.",
    program: "workers",
    file: /^activities\/retention\.ts$/,
    tables: ["sends"],
    statement: /^select exists /,
  },
  {
    reason: "Accounts whose check is due are looked for in all tenants; each row carries its tenant along.",
    program: "workers",
    file: /^domain\/accounts\/checks\.ts$/,
    tables: ["email_accounts"],
    statement: /update account_checks c set next_at/,
  },
  {
    reason: "The reconciler and the metrics look at the sends, credits and remembered answers of all tenants.",
    program: "workers",
    file: /^(?:domain\/sends\/operators\/(?:overview|standstill|unfinished)|domain\/teams\/credits|domain\/retention\/overdue)\.ts$/,
    tables: ["sends", "email_accounts", "credit_balances", "credit_entries", "idempotency_records"],
    statement: /^(?:select|with) /,
  },
];
