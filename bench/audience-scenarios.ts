import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { sql } from "kysely";
import { kysely, type Tenant } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import { countSegment, createSegment } from "../domain/audience/segments/segments.ts";
import { api } from "../test/support/api.ts";
import { declareFields } from "../test/support/contacts.ts";
import { makeTeam, type TestTeam, unique } from "../test/support/factories.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { storeSend } from "../test/support/segments.ts";
import { stack } from "../test/support/stack.ts";
import { importOnce } from "./import.ts";
import { type BenchReport, median, type Row, round, timed } from "./report.ts";

export interface AudienceBenchOptions extends StackChoice {
  /** Which scenarios to run; all of them unless given. */
  only?: readonly string[];
  /** Contacts that segments are counted over. */
  contacts: number;
  /** Lines of the import. */
  lines: number;
  /** Bulk calls. */
  calls: number;
  /** Imports, and counts of each segment. */
  repeat: number;
}

interface Measured {
  heading: string;
  rows: Row[];
  problems: string[];
}

type Scenario = (options: AudienceBenchOptions) => Promise<Measured>;

const FIELDS = { city: "text", language: "text", orders: "number", vip: "boolean", member_since: "date" } as const;

/** Contacts of a bulk call. */
const BULK_SIZE = 1_000;
/** A share of the calls that the first and the last of them are compared by. */
const END_SHARE = 0.2;

const SCENARIOS: Record<string, Scenario> = { bulk, import: importContacts, segments };

/** Measures what is done with large audiences. */
export function benchAudience(options: AudienceBenchOptions): Promise<BenchReport> {
  const names = options.only?.length ? options.only : Object.keys(SCENARIOS);
  const unknown = names.find((name) => !Object.hasOwn(SCENARIOS, name));
  if (unknown !== undefined) throw new Error(`no scenario ${unknown}; there are ${Object.keys(SCENARIOS).join(", ")}`);
  return withStack(options, async () => {
    const tables: Record<string, Row[]> = {};
    const problems: string[] = [];
    for (const name of names) {
      const measured = await SCENARIOS[name]?.(options);
      if (!measured) continue;
      tables[measured.heading] = measured.rows;
      problems.push(...measured.problems.map((problem) => `${name}: ${problem}`));
    }
    const { contacts, lines, calls, repeat } = options;
    return { bench: "audience", options: { contacts, lines, calls, repeat }, tables, problems };
  });
}

/** Bulk calls in a row, each with new contacts. */
async function bulk({ calls }: AudienceBenchOptions): Promise<Measured> {
  const team = await makeTeam();
  await declareFields(team, FIELDS);
  const url = `${(await stack()).api}/contacts/bulk`;
  const times: number[] = [];
  const problems: string[] = [];
  for (let call = 0; call < calls; call++) {
    const contacts = Array.from({ length: BULK_SIZE }, (_, i) => contactOf(call * BULK_SIZE + i));
    const body = JSON.stringify({ contacts });
    const headers = {
      "x-api-key": team.keys.live,
      "content-type": "application/json",
      "idempotency-key": unique("bulk"),
    };
    const { ms, result } = await timed(async () => {
      const response = await fetch(url, { method: "POST", headers, body });
      return { status: response.status, text: await response.text() };
    });
    const created = result.text.match(/"status":"created"/g)?.length ?? 0;
    if (created !== BULK_SIZE) problems.push(`call ${call} was answered with ${result.status}, ${created} created`);
    times.push(ms);
  }
  const end = Math.max(1, Math.round(calls * END_SHARE));
  return {
    heading: `POST /contacts/bulk of ${BULK_SIZE} contacts with five custom fields`,
    rows: [
      {
        calls,
        "median ms": round(median(times)),
        "slowest ms": round(Math.max(...times)),
        "median ms of the first calls": round(median(times.slice(0, end))),
        "median ms of the last calls": round(median(times.slice(-end))),
      },
    ],
    problems,
  };
}

const contactOf = (i: number) => ({
  email: `person${i}@bulk.example`,
  first_name: `First${i}`,
  last_name: `Last${i}`,
  fields: fieldsOf(i),
});

const fieldsOf = (i: number) => ({
  city: `City${i % 200}`,
  language: i % 3 === 0 ? "de" : "en",
  orders: i % 100,
  vip: i % 10 === 0,
  member_since: new Date(Date.UTC(2020, 0, 1 + (i % 2_000))).toISOString().slice(0, 10),
});

/** A CSV file of contacts through the command line. */
async function importContacts({ lines, repeat }: AudienceBenchOptions): Promise<Measured> {
  const folder = await mkdtemp(`${tmpdir()}/mailkeel-bench-csv-`);
  const rows: Row[] = [];
  const problems: string[] = [];
  try {
    const file = `${folder}/contacts.csv`;
    const people = Array.from({ length: lines }, (_, i) => {
      const { email, first_name, last_name, fields } = contactOf(i);
      return [email, first_name, last_name, ...Object.values(fields)].join(",");
    });
    await writeFile(file, `email,first_name,last_name,${Object.keys(FIELDS).join(",")}\n${people.join("\n")}\n`);
    for (let run = 1; run <= repeat; run++) {
      const team = await makeTeam();
      await declareFields(team, FIELDS);
      const { ms, result } = await timed(() => importOnce(file, team.team.id, "--contacts"));
      rows.push({
        run: String(run),
        "lines/s": round(lines / result.seconds),
        seconds: round(result.seconds, 2),
        "seconds with the start of the command": round(ms / 1_000, 2),
      });
      if (result.created !== lines) problems.push(JSON.stringify(result));
    }
  } finally {
    await rm(folder, { recursive: true });
  }
  return { heading: `Import of ${lines} contacts with five custom fields`, rows, problems };
}

/** Counts of segments over contacts that are written straight into the database. */
async function segments({ contacts, repeat }: AudienceBenchOptions): Promise<Measured> {
  const team = await makeTeam();
  await declareFields(team, FIELDS);
  const { listId, resource } = await fill(team, contacts);
  const tenant: Tenant = { teamId: team.team.id, environment: "LIVE" };
  const rows: Row[] = [];
  const problems: string[] = [];
  for (const [name, { definition, holds }] of Object.entries(segmentsOf(listId, resource))) {
    const { id } = await transaction(team.em, (em) => createSegment(em, tenant, { name, definition }));
    const times: number[] = [];
    let counted = 0;
    for (let run = 0; run <= repeat; run++) {
      const { ms, result } = await timed(() => countSegment(team.em, tenant, id));
      // The first one fills caches.
      if (run > 0) times.push(ms);
      counted = result.contacts;
    }
    const expected = Array.from({ length: contacts }, (_, i) => i + 1).filter(holds).length;
    if (counted !== expected) problems.push(`${name}: ${counted} instead of ${expected}`);
    rows.push({
      segment: name,
      selected: counted,
      "median ms": round(median(times)),
      "slowest ms": round(Math.max(...times)),
    });
  }
  return { heading: `Count of a segment and a sample of it, over ${contacts} contacts`, rows, problems };
}

/** Segments, each with its plain meaning for the i-th contact that `fill` writes. */
function segmentsOf(list: string, resource: string) {
  const city = { field: "fields.city", op: "eq", value: "City7" };
  const onList = { list };
  const received = { event: "received", resource };
  const opened = { event: "opened", within_days: 30 };
  const clicked = { event: "clicked", resource };
  const isIn = (i: number) => i % 2 === 0;
  const isReceived = (i: number) => i % 50 !== 0;
  const isOpened = (i: number) => i % 3 === 0;
  const isClicked = (i: number) => i % 20 === 0;
  return {
    "two custom fields": {
      definition: { all: [city, { field: "fields.orders", op: "lt", value: 50 }] },
      holds: (i: number) => i % 200 === 7,
    },
    "made within 30 days, text": {
      definition: {
        all: [
          { field: "created_at", op: "within_days", value: 30 },
          { field: "first_name", op: "starts_with", value: "First1" },
        ],
      },
      holds: (i: number) => i % 1_000 <= 30 && String(i).startsWith("1"),
    },
    "on a list": { definition: onList, holds: isIn },
    "on a list, or in a city": { definition: { any: [onList, city] }, holds: (i: number) => isIn(i) || i % 200 === 7 },
    "received, not opened": {
      definition: { all: [received, { not: opened }] },
      holds: (i: number) => isReceived(i) && !isOpened(i),
    },
    "neither on the list nor clicked": {
      definition: { not: { any: [onList, clicked] } },
      holds: (i: number) => !isIn(i) && !isClicked(i),
    },
  };
}

/** Writes contacts, half of them on a list, a mail to each and its engagement. */
async function fill(team: TestTeam, contacts: number): Promise<{ listId: string; resource: string }> {
  const { em } = team;
  const client = api(team.keys.live);
  const tenant: Tenant = { teamId: team.team.id, environment: "LIVE" };
  const listId: string = (await client.post("/lists", { name: "Half" })).body.data.id;
  const resource: string = (await client.post("/newsletters", { name: "Letter" })).body.data.id;
  const sendId = await storeSend(em, tenant, resource, contacts);
  const db = kysely(em);
  const stem = unique("n");
  const owner = sql`${tenant.teamId}, ${tenant.environment}`;
  const email = sql`'person' || i || '@' || ${stem}::text || '.example'`;
  const subscriber = sql`'sub_' || ${stem}::text || lpad(i::text, 8, '0')`;
  const people = sql`from generate_series(1, ${contacts}::int) i`;
  await sql`
    insert into contacts (id, team_id, environment, email, first_name, last_name, fields, created_at)
    select 'con_' || ${stem}::text || lpad(i::text, 8, '0'), ${owner}, ${email}, 'First' || i, 'Last' || i,
      jsonb_build_object('city', 'City' || i % 200, 'language', case when i % 3 = 0 then 'de' else 'en' end,
        'orders', i % 100, 'vip', i % 10 = 0, 'member_since', (date '2020-01-01' + i % 2000)::text),
      now() - (i % 1000) * interval '1 day'
    ${people}`.execute(db);
  await sql`insert into subscribers (id, team_id, environment, email) select ${subscriber}, ${owner}, ${email} ${people}`.execute(
    db,
  );
  await sql`
    insert into subscriptions (list_id, subscriber_id, team_id, environment, status)
    select ${listId}, ${subscriber}, ${owner}, case when i % 2 = 0 then 'CONFIRMED' else 'UNSUBSCRIBED' end ${people}`.execute(
    db,
  );
  await sql`
    insert into send_recipients (send_id, seq, member_id, email, state)
    select ${sendId}, i, 'con_' || ${stem}::text || lpad(i::text, 8, '0'), ${email},
      case when i % 50 = 0 then 'REJECTED' else 'SENT' end ${people}`.execute(db);
  await sql`
    insert into engagements (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
    select ${sendId}, i, kind, ${owner}, ${resource}, ${email}, 1, now(), now() ${people}
    cross join (values ('opened', 3), ('clicked', 20)) k (kind, every) where i % every = 0`.execute(db);
  // As autovacuum leaves tables that were not filled this very minute.
  for (const table of ["contacts", "subscribers", "subscriptions", "sends", "send_recipients", "engagements"]) {
    await sql`vacuum analyze ${sql.table(table)}`.execute(db);
  }
  return { listId, resource };
}
