import assert from "node:assert/strict";
import { type Selectable, sql } from "kysely";
import { type Database, kysely } from "../../db/orm.ts";
import { backdoor } from "../support/factories.ts";

/** As Postgres writes it. */
const AT = "2026-08-15 10:00:00.5+00";
const tenant = { team_id: "team_columns", environment: "LIVE" } as const;
const touched = { created_at: AT, updated_at: AT };

/**
 * One row of every table, parents first, without a null. The compiler checks each against the declared types of its
 * columns, the test against the values that the driver gives.
 */
const ROWS: { [Table in keyof Database]: Selectable<Database[Table]> } = {
  teams: {
    id: tenant.team_id,
    name: "Team",
    plan: "BUSINESS",
    time_zone: "UTC",
    requests_per_minute: 100,
    contact_slots: 500,
    webhook_endpoints: 5,
    ...touched,
  },
  members: {
    id: "mbr_columns",
    team_id: tenant.team_id,
    email: "member@example.com",
    name: "Member",
    role: "OWNER",
    removed_at: AT,
    ...touched,
  },
  api_keys: {
    id: "key_columns",
    ...tenant,
    public_id: "columns",
    name: "Key",
    secret_hash: "hash",
    member_id: "mbr_columns",
    role_at_issue: "OWNER",
    granted_scopes: ["lists:read"],
    send_domains: ["example.com"],
    requires_approval: true,
    daily_send_cap: 50_000,
    lineage_id: "key_columns",
    api_version: "2026-08-15",
    expires_at: AT,
    revoked_at: AT,
    ...touched,
  },
  lists: { id: "list_columns", ...tenant, name: "List", description: "Text", optin: "DOUBLE", ...touched },
  subscribers: {
    id: "sub_columns",
    ...tenant,
    email: "person@bücher.example",
    email_spelling: "person@xn--bcher-kva.example",
    first_name: "First",
    last_name: "Last",
    ...touched,
  },
  contacts: {
    id: "con_columns",
    ...tenant,
    email: "person@bücher.example",
    email_spelling: "person@xn--bcher-kva.example",
    first_name: "First",
    last_name: "Last",
    fields: { city: "Köln", orders: 3, vip: true, since: "2026-08-15" },
    email_status: "INVALID",
    ...touched,
  },
  // As text: see send_counts.
  contact_status_checks: { seq: "9007199254740993", ...tenant, email: "person@bücher.example", checked_at: AT },
  contact_fields: { ...tenant, name: "city", type: "text", deleted_at: AT, created_at: AT },
  subscriptions: {
    list_id: "list_columns",
    subscriber_id: "sub_columns",
    ...tenant,
    status: "CONFIRMED",
    confirmed_at: AT,
    unsubscribed_at: AT,
    confirmation_due_at: AT,
    confirmation_sent_at: AT,
    confirmation_withheld: "list_limit",
    ...touched,
  },
  confirmation_mails: {
    ...tenant,
    mailbox: "person@example.com",
    list_id: "list_columns",
    day: "2026-11-21",
    email: "person+tag@example.com",
    settled_at: AT,
  },
  suppressions: {
    id: "supp_columns",
    ...tenant,
    email: "person@bücher.example",
    email_spelling: "person@xn--bcher-kva.example",
    reason: "MANUAL",
    ...touched,
  },
  unsubscribes: {
    id: "unsub_columns",
    ...tenant,
    email: "person@bücher.example",
    email_spelling: "person@xn--bcher-kva.example",
    reason: "UNSUBSCRIBED",
    source: "link",
    campaign_id: "nl_columns",
    unsubscribed_at: AT,
  },
  email_accounts: {
    id: "acct_columns",
    ...tenant,
    email: "sender@example.com",
    display_name: "Sender",
    provider: "SMTP_OTHER",
    status: "ACTIVE",
    allowed_domains: ["example.com"],
    host: "smtp.example.com",
    port: 587,
    security: "starttls",
    username: "user",
    encrypted_password: "sealed",
    max_connections: 4,
    hourly_limit: 100,
    daily_limit: 1_000,
    last_checked_at: AT,
    last_error: "login_refused",
    ...touched,
  },
  account_usage: { account_id: "acct_columns", window: "HOUR", starts_at: AT, used: 7 },
  account_leases: { account_id: "acct_columns", holder: "worker", connections: 2, expires_at: AT },
  account_refusals: {
    account_id: "acct_columns",
    count: 2,
    reason: "login_refused",
    temporary: true,
    retry_at: AT,
  },
  newsletters: {
    id: "nl_columns",
    ...tenant,
    name: "Newsletter",
    subject: "Subject",
    from_email: "sender@example.com",
    from_name: "Sender",
    body: "<p>Text</p>",
    status: "DRAFT",
    send_days: [1, 7],
    send_id: "send_columns",
    send_at: AT,
    started_at: AT,
    completed_at: AT,
    ...touched,
  },
  request_counts: { starts_at: AT, caller_id: "key_columns", count: 3 },
  newsletter_lists: { newsletter_id: "nl_columns", list_id: "list_columns" },
  send_previews: {
    id: "send_columns",
    ...tenant,
    resource_type: "newsletter",
    resource_id: "nl_columns",
    api_key_id: "key_columns",
    plan_digest: "digest",
    total: 4,
    not_opted_in: 1,
    suppressed: 1,
    eligible: 2,
    credits_required: 2,
    cap_limit: 50_000,
    cap_used_today: 3,
    from_address: "sender@example.com",
    account_address: "sender@example.com",
    complaint_rate: 0.0015,
    expires_at: AT,
    used_at: AT,
    voided_at: AT,
    other_key_at: AT,
    created_at: AT,
  },
  sends: {
    id: "send_columns",
    ...tenant,
    resource_type: "newsletter",
    resource_id: "nl_columns",
    api_key_id: "key_columns",
    account_id: "acct_columns",
    status: "PAUSED",
    recipients: 2,
    credits_reserved: 2,
    cap_limit: 50_000,
    cap_used_today: 3,
    send_at: AT,
    started_at: AT,
    completed_at: AT,
    settled_at: AT,
    review_until: AT,
    pause_reason: "login_refused",
    ...touched,
  },
  send_lanes: { send_id: "send_columns", account_id: "acct_columns", epoch: 5, dispatching: true, after_seq: 3 },
  send_recipients: {
    send_id: "send_columns",
    seq: 1,
    member_id: "sub_columns",
    account_id: "acct_columns",
    email: "person@bücher.example",
    email_spelling: "person@xn--bcher-kva.example",
    first_name: "First",
    last_name: "Last",
    list_id: "list_columns",
    state: "DEFERRED",
    epoch: 5,
    attempts: 2,
    first_deferred_at: AT,
    retry_at: AT,
    reason: "smtp_451",
    updated_at: AT,
  },
  // As text: a bigint may be larger than a number can hold.
  send_counts: { seq: "9007199254740993", send_id: "send_columns", state: "SENT", count: -2 },
  audience_addresses: { ...tenant, email: "columns@example.com", holders: 2 },
  contact_slot_counts: { ...tenant, part: 3, used: -1 },
  credit_balances: { ...tenant, available: "9007199254740993", reserved: "2", ...touched },
  credit_entries: {
    id: "cred_columns",
    ...tenant,
    kind: "RESERVE",
    amount: "9007199254740993",
    send_id: "send_columns",
    cause: "confirm",
    created_at: AT,
  },
  daily_send_usage: { lineage_id: "key_columns", day: "2026-08-15", used: 2 },
  delivery_days: { ...tenant, day: "2026-08-15", delivered: 2, complaints: 1 },
  revoked_tokens: { jti: "token_columns", expires_at: AT, created_at: AT },
  idempotency_records: {
    ...tenant,
    key_hash: "hash",
    fingerprint: "print",
    attempt: 1,
    locked_at: AT,
    status: 201,
    payload: "{}",
    payload_kind: "payload",
    request_id: "req_columns",
    expires_at: AT,
  },
  webhook_endpoints: {
    id: "whk_columns",
    ...tenant,
    origin: "API",
    name: "Endpoint",
    description: "Text",
    url: "https://example.com/hook",
    events: ["list.created"],
    active: true,
    encrypted_secret: "sealed",
    previous_encrypted_secret: "sealed",
    previous_secret_expires_at: AT,
    encrypted_headers: "sealed",
    header_names: ["X-Header"],
    api_version: "2026-08-15",
    disabled_at: AT,
    disabled_reason: "manual",
    enabled_at: AT,
    notice_due_at: AT,
    ...touched,
  },
  webhook_health: {
    webhook_id: "whk_columns",
    consecutive_failures: 1,
    last_success_at: AT,
    last_failure_at: AT,
    failing_since: AT,
    probe_at: AT,
    probe_wait_seconds: 60,
    probed_id: "dlv_probed",
    backlog_until: "dlv_backlog",
  },
  webhook_outbox: { seq: "9007199254740993", ...tenant, type: "list.created", objects: "[]", created_at: AT },
  webhook_events: {
    id: "evt_columns",
    ...tenant,
    type: "list.created",
    object: "{}",
    is_test: true,
    created_at: AT,
    kept_until: AT,
  },
  webhook_deliveries: {
    id: "dlv_columns",
    ...tenant,
    webhook_id: "whk_columns",
    event_id: "evt_columns",
    event_type: "list.created",
    group_id: "dlv_columns",
    first_id: "dlv_first",
    ended_ungrouped: false,
    attempts_used: 1,
    retried: true,
    attempt: 2,
    status: "FAILED",
    failure: "FAILED",
    response_status: 500,
    response_body: "no",
    error_message: "refused",
    duration_ms: 12,
    is_replay: true,
    replay_of_id: "dlv_earlier",
    next_attempt_at: AT,
    ...touched,
  },
  webhook_groups: {
    id: "dlv_columns",
    ...tenant,
    webhook_id: "whk_columns",
    size: 1,
    lane: "BACKLOG",
    phase: "FIRST",
    attempt: 1,
    epoch: 1,
    attempting: true,
    begun_at: AT,
    slot_until: AT,
    due_at: AT,
    created_at: AT,
  },
  deleted_webhooks: { webhook_id: "whk_deleted", deleted_at: AT },
  webhook_replays: {
    id: "rpl_columns",
    team_id: tenant.team_id,
    webhook_id: "whk_columns",
    statuses: ["FAILED"],
    since: AT,
    until: AT,
    per_second: 10,
    total: 1,
    replayed: 0,
    after_webhook_id: "whk_columns",
    after_created_at: AT,
    after_id: "dlv_columns",
    started_at: AT,
    completed_at: AT,
    created_at: AT,
  },
  secret_fingerprints: {
    setting: "SIGNING_SECRET",
    key_id: "columns",
    salt: "salt",
    fingerprint: "hash",
    used_since: AT,
    created_at: AT,
  },
  database_keys: { name: "columns", encrypted_key: "k1.sealed", created_at: AT },
};

/** Columns that Postgres computes. */
const GENERATED = ["failure"];

class RolledBack extends Error {}

describe("Rows that Kysely reads", () => {
  it("hold, column for column, the values their types declare", async () => {
    const { orm } = await backdoor();
    const read: Record<string, unknown> = {};
    const work = orm.em.fork().transactional(async (tx) => {
      for (const [table, row] of Object.entries(ROWS)) {
        const columns = sql.join(Object.keys(row).flatMap((name) => (GENERATED.includes(name) ? [] : [sql.id(name)])));
        const { rows } = await sql`insert into ${sql.table(table)} (${columns})
          select ${columns} from json_populate_record(null::${sql.table(table)}, ${JSON.stringify(row)}::json)
          returning *`.execute(kysely(tx));
        read[table] = rows[0];
      }
      throw new RolledBack();
    });
    await assert.rejects(work, RolledBack);

    assert.deepEqual(read, ROWS);
  });

  it("are declared for every table and every column there is", async () => {
    const { orm } = await backdoor();
    const { rows } = await sql<{ table: string; columns: string[] }>`
      select table_name as table, array_agg(column_name::text order by column_name::text) as columns
      from information_schema.columns where table_schema = 'public' and table_name not like 'mikro_orm_%'
      group by table_name`.execute(kysely(orm.em.fork()));

    const declared = Object.entries(ROWS).map(([table, row]) => [table, Object.keys(row).sort()]);
    assert.deepEqual(
      Object.fromEntries(rows.map(({ table, columns }) => [table, columns])),
      Object.fromEntries(declared),
    );
  });
});
