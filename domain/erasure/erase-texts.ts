import { setTimeout as delay } from "node:timers/promises";
import { type Expression, sql } from "kysely";
import { columnsOf } from "../../db/columns.ts";
import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import { replaceAnswers } from "../access/idempotency.ts";
import { ApiError } from "../errors.ts";
import { change, type Erasing, type Table } from "./erasing.ts";

/* The database finds texts with a part of the address, then `Mentions` decides. */

export interface Mention {
  table: Table;
  id: string;
}

const TEXT_ROWS = 2_000;
/** An activity makes requests for 30 s, and tries to record their outcomes for 20 s. */
const ATTEMPT_MS = 60_000;
const POLL_MS = 200;

interface TextSource {
  table: Table;
  /** The last column of the primary key. */
  key: string;
  columns: readonly string[];
  /** Condition on the columns of the primary key before `key`. */
  within?: Expression<unknown>;
  owned: Expression<unknown>;
  /** Condition of rows that are returned even if their texts do not name the address. */
  also?: Expression<unknown>;
}

interface FoundText {
  key: string;
  text: string;
}

async function* findTexts(
  { em, mentions }: Pick<Erasing, "em" | "mentions">,
  { table, key, columns, within = sql`true`, owned, also = sql`false` }: TextSource,
): AsyncGenerator<FoundText[]> {
  const column = sql.ref(`b.${key}`);
  const text = sql`concat_ws(' ', ${sql.join(columns.map((name) => sql`${sql.ref(name)}::text`))})`;
  for (let after = key === "seq" ? "0" : ""; ; ) {
    const { rows } = await sql<{ last: string; rows: number; key: string | null; text: string }>`
      with batch as materialized (
        select b.* from ${sql.table(table)} b where ${within} and ${column} > ${after} order by ${column} limit ${TEXT_ROWS}
      ), found as (
        select ${column}::text as key, ${text} as text from batch b
        where ${owned} and (${also} or strpos(lower(${text}), ${mentions.part}) > 0)
      )
      select l.last, l.rows, f.key, f.text
      from (select max(${column})::text as last, count(*)::int as rows from batch b) l left join found f on true`.execute(
      kysely(em.fork()),
    );
    const found = rows.flatMap((row) => (row.key === null ? [] : [{ key: row.key, text: row.text }]));
    if (found.length > 0) yield found;
    const [{ last, rows: read } = { last: after, rows: 0 }] = rows;
    if (read < TEXT_ROWS) return;
    after = last;
  }
}

interface Records {
  table: "webhook_outbox" | "webhook_events";
  key: "seq" | "id";
  column: "objects" | "object";
}

/** @returns the number of these rows that still existed */
async function redactRows(
  { tenant, mentions, placeholder }: Erasing,
  tx: EntityManager,
  { table, key, column }: Records,
  keys: readonly string[],
): Promise<number> {
  const keyType = key === "seq" ? sql`bigint[]` : sql`text[]`;
  // The relay may have turned some rows of the outbox into events meanwhile.
  const { rows } = await sql<FoundText>`
    select ${sql.ref(key)}::text as key, ${sql.ref(column)} as text from ${sql.table(table)}
    where ${ofTenant(tenant)} and ${sql.ref(key)} = any(${[...keys]}::${keyType})
    order by ${sql.ref(key)} for update`.execute(kysely(tx));
  await sql`
    update ${sql.table(table)} t set ${sql.ref(column)} = g.text
    from unnest(${rows.map((row) => row.key)}::${keyType}, ${rows.map(({ text }) => mentions.redact(text, placeholder))}::text[])
      as g (key, text)
    where ${ofTenant(tenant, "t")} and t.${sql.ref(key)} = g.key`.execute(kysely(tx));
  return rows.length;
}

/**
 * Takes the person out of events, so that waiting deliveries continue as usual. The outbox comes first: the relay makes
 * events of it.
 * @returns the events whose deliveries may hold answers about the person
 */
export async function eraseEvents(erasing: Erasing): Promise<string[]> {
  await redactRecords(erasing, { table: "webhook_outbox", key: "seq", column: "objects" });
  return redactRecords(erasing, { table: "webhook_events", key: "id", column: "object" });
}

async function redactRecords(erasing: Erasing, records: Records): Promise<string[]> {
  const { isResumed, mentions, placeholder } = erasing;
  const { table, key, column } = records;
  const redacted: string[] = [];
  for await (const found of findTexts(erasing, {
    table,
    key,
    columns: [column],
    owned: ofTenant(erasing.tenant, "b"),
    also: isResumed ? sql`strpos(${sql.ref(column)}, ${placeholder}) > 0` : sql`false`,
  })) {
    const named = found.filter(({ text }) => mentions.in(text)).map((row) => row.key);
    redacted.push(...named, ...found.filter(({ text }) => text.includes(placeholder)).map((row) => row.key));
    if (named.length === 0) continue;
    await change(erasing, async ({ tx, count }) =>
      count(table, "blanked", await redactRows(erasing, tx, records, named)),
    );
  }
  return redacted;
}

/** Of events that were read before they were redacted: the answers of endpoints may repeat the person. */
async function awaitAttempts({ em, tenant }: Erasing, eventIds: readonly string[]): Promise<void> {
  const inFlight = sql`webhook_deliveries d join webhook_health h on h.webhook_id = d.webhook_id
    where ${ofTenant(tenant, "d")} and d.event_id = any(${[...eventIds]}::text[]) and d.status = 'PENDING' and d.id = any(h.claimed)`;
  const { rows: read } = await sql<{ id: string }>`select d.id from ${inFlight}`.execute(kysely(em.fork()));
  const ids = read.map(({ id }) => id);
  for (const giveUpAt = performance.now() + ATTEMPT_MS; performance.now() < giveUpAt; await delay(POLL_MS)) {
    const { rows } = await sql`select from ${inFlight} and d.id = any(${ids}::text[])`.execute(kysely(em.fork()));
    if (rows.length === 0) return;
  }
}

export async function eraseDeliveries(erasing: Erasing, eventIds: readonly string[]): Promise<void> {
  if (!erasing.dryRun) await awaitAttempts(erasing, eventIds);
  const ofEvents = sql`event_id = any(${[...eventIds]}::text[])`;
  for await (const found of findTexts(erasing, {
    table: "webhook_deliveries",
    key: "id",
    columns: ["response_body", "error_message"],
    owned: ofTenant(erasing.tenant, "b"),
    also: sql`(response_body is not null and ${ofEvents})`,
  })) {
    const ids = found.map(({ key }) => key);
    const named = found.filter(({ text }) => erasing.mentions.in(text)).map(({ key }) => key);
    const isNamed = sql`id = any(${named}::text[])`;
    await change(erasing, ({ run }) =>
      run(
        "webhook_deliveries",
        "blanked",
        sql`
        update webhook_deliveries
        set response_body = null, error_message = case when ${isNamed} then null else error_message end
        where ${ofTenant(erasing.tenant)} and id = any(${ids}::text[]) and (${isNamed} or ${ofEvents})`,
      ),
    );
  }
}

/** Repeated requests get a refusal instead of an answer that names the address. */
export async function eraseAnswers(erasing: Erasing): Promise<void> {
  const { tenant, mentions } = erasing;
  const refusal = new ApiError("person_erased", "The answer showed a person who asked for their data to be erased.");
  for await (const found of findTexts(erasing, {
    table: "idempotency_records",
    key: "key_hash",
    columns: ["payload"],
    within: ofTenant(tenant, "b"),
    owned: sql`b.payload_kind <> 'sealed'`,
  })) {
    const keyHashes = found.filter(({ text }) => mentions.in(text)).map(({ key }) => key);
    if (keyHashes.length === 0) continue;
    await change(erasing, async ({ tx, count }) =>
      count("idempotency_records", "blanked", await replaceAnswers(tx, tenant, keyHashes, refusal)),
    );
  }
}

const TEXTS_ABOUT_OTHERS: [Table, readonly string[]][] = [
  ["contacts", ["first_name", "last_name", "fields"]],
  ["subscribers", ["first_name", "last_name"]],
];

/** Of members, who may be of several teams, and are named themselves. */
const OF_NO_TEAM: ReadonlySet<Table> = new Set(["sign_in_links", "console_sessions", "console_identities"]);

/** Records that stay as they are. */
export async function findMentions({ em, tenant, mentions }: Erasing): Promise<Mention[]> {
  const ownedIn = (table: Table) => {
    if (table === "teams") return sql`b.id = ${tenant.teamId}`;
    if (table === "sequence_step_versions")
      return sql`b.campaign_id in (select id from campaigns where ${ofTenant(tenant)})`;
    return table === "members" ? sql`b.team_id = ${tenant.teamId}` : ofTenant(tenant, "b");
  };
  const found: Mention[] = [];
  const ofTeam = columnsOf(em).filter(({ personal, table }) => personal === "team" && !OF_NO_TEAM.has(table));
  const tables = new Map<Table, string[]>();
  for (const { table, column } of ofTeam) tables.set(table, [...(tables.get(table) ?? []), column]);
  for (const [table, columns] of [...tables, ...TEXTS_ABOUT_OTHERS]) {
    const key = table === "sequences" ? "campaign_id" : "id";
    for await (const texts of findTexts({ em, mentions }, { table, key, columns, owned: ownedIn(table) })) {
      found.push(...texts.filter(({ text }) => mentions.in(text)).map((row) => ({ table, id: row.key })));
    }
  }
  return found;
}
