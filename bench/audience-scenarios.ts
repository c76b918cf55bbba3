import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import type { RecipientState } from "../db/entities/send.ts";
import { type EntityManager, kysely, type Tenant } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import { countSegment, createSegment, PATIENT_COUNT } from "../domain/audience/segments/segments.ts";
import { sendWorkflowId } from "../temporal/ids.ts";
import { api } from "../test/support/api.ts";
import { declareFields } from "../test/support/contacts.ts";
import { makeTeam, recordSend, type TestTeam, unique } from "../test/support/factories.ts";
import { CAMPAIGN } from "../test/support/kinds.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import {
  addSegment,
  type CampaignSender,
  credits,
  ledgerStates,
  makeCampaignSender,
  setTomorrow,
} from "../test/support/sending.ts";
import { stack } from "../test/support/stack.ts";
import { temporalClient, untilDetails } from "../test/support/temporal.ts";
import { importOnce } from "./import.ts";
import { type BenchReport, median, type Row, round, timed } from "./report.ts";
import { timeConfirm, timePreviews } from "./timed-sends.ts";

export interface AudienceBenchOptions extends StackChoice {
  /** Which scenarios to run; all of them unless given. */
  only?: readonly string[];
  /** Contacts that segments are counted over, and that campaigns mail. */
  contacts: number;
  /** Lines of the import. */
  lines: number;
  /** Bulk calls. */
  calls: number;
  /** Imports, counts of each segment, and previews of each campaign. */
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
/** How long the workflow of a confirmed send may take until it waits for its day. */
const WAITS_WITHIN_MS = 60_000;

// Longest times with the default sizes, on a machine without other load.
const MOST_BULK_MS = 300;
const MOST_IMPORT_SECONDS = 10;
const MOST_COUNT_MS = 2_000;
const MOST_CONFIRM_SECONDS = 10;

const SCENARIOS: Record<string, Scenario> = { bulk, import: importContacts, segments, campaign };

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
  const medianMs = round(median(times));
  if (medianMs > MOST_BULK_MS) problems.push(`${medianMs} ms, at most ${MOST_BULK_MS}`);
  return {
    heading: `POST /contacts/bulk of ${BULK_SIZE} contacts with five custom fields`,
    rows: [
      {
        calls,
        "median ms": medianMs,
        "at most": MOST_BULK_MS,
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
        "at most": MOST_IMPORT_SECONDS,
        "seconds with the start of the command": round(ms / 1_000, 2),
      });
      if (result.created !== lines) problems.push(JSON.stringify(result));
      if (result.seconds > MOST_IMPORT_SECONDS) problems.push(`${result.seconds} s, at most ${MOST_IMPORT_SECONDS}`);
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
    const { id } = await transaction(team.em, (em) => createSegment(em, tenant, { name, conditions: definition }));
    const times: number[] = [];
    let counted = 0;
    for (let run = 0; run <= repeat; run++) {
      const { ms, result } = await timed(() => countSegment(team.em, tenant, id, PATIENT_COUNT));
      // The first one fills caches.
      if (run > 0) times.push(ms);
      counted = result.contacts;
    }
    const expected = Array.from({ length: contacts }, (_, i) => i + 1).filter(holds).length;
    if (counted !== expected) problems.push(`${name}: ${counted} instead of ${expected}`);
    const medianMs = round(median(times));
    if (medianMs > MOST_COUNT_MS) problems.push(`${name}: ${medianMs} ms, at most ${MOST_COUNT_MS}`);
    rows.push({
      segment: name,
      selected: counted,
      "median ms": medianMs,
      "at most": MOST_COUNT_MS,
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

/**
 * Campaigns over contacts that are written straight into the database: previewed, and confirmed for tomorrow, so that
 * no mail leaves before the operator's cancel.
 */
async function campaign({ contacts, repeat }: AudienceBenchOptions): Promise<Measured> {
  // Enough for both campaigns at once.
  const mails = 2 * contacts;
  const all = await makeCampaignSender({ recipients: [], credits: mails, dailySendCap: mails });
  await declareFields(all, FIELDS);
  await fillContacts(all, contacts);
  const segmentId = await addSegment(all, { field: "fields.orders", op: "lt", value: 50 });
  const half = await CAMPAIGN.another({ ...all, segmentId });
  const inHalf = Array.from({ length: contacts }, (_, i) => i + 1).filter((i) => i % 100 < 50).length;
  const rows: Row[] = [];
  const problems: string[] = [];
  const { client, close } = await temporalClient();
  try {
    // The larger one first: autovacuum then has no cancelled rows of the other one to work on meanwhile.
    for (const [name, sender, recipients] of [
      ["all", all, contacts],
      ["half of them, by a custom field", half, inHalf],
    ] as const) {
      const measured = await measureCampaign(client, sender, { recipients, previews: repeat });
      rows.push({ campaign: name, recipients, ...measured.row });
      problems.push(...measured.problems.map((problem) => `${name}: ${problem}`));
    }
  } finally {
    await close();
  }
  return { heading: `Campaigns over ${contacts} contacts`, rows, problems };
}

/** Previews, confirms for tomorrow and cancels; the ledger and the credits are checked after each step. */
async function measureCampaign(
  client: Client,
  sender: CampaignSender,
  { recipients, previews }: { recipients: number; previews: number },
): Promise<{ row: Row; problems: string[] }> {
  await setTomorrow(sender);
  const previewMs = await timePreviews(sender, previews);
  const { ms: confirmMs, sendId } = await timeConfirm(sender);
  const { ms: waitsAfterMs } = await timed(() =>
    untilDetails(client.workflow.getHandle(sendWorkflowId(sendId)), "starts at its send_at", WAITS_WITHIN_MS),
  );
  const problems = await differences(sender, { state: "QUEUED", recipients, reserved: recipients });
  const { ms: cancelMs, result: cancelled } = await timed(() =>
    client.workflow.getHandle(sendWorkflowId(sendId)).executeUpdate("cancel"),
  );
  if (cancelled !== "CANCELLED") problems.push(`the cancel was answered with ${cancelled}`);
  problems.push(...(await differences(sender, { state: "CANCELLED", recipients, reserved: 0 })));
  const confirmSeconds = round(confirmMs / 1_000, 2);
  if (confirmSeconds > MOST_CONFIRM_SECONDS) {
    problems.push(`confirm: ${confirmSeconds} s, at most ${MOST_CONFIRM_SECONDS}`);
  }
  return {
    row: {
      "preview, median ms": round(previewMs),
      "confirm until its 202, s": confirmSeconds,
      "at most": MOST_CONFIRM_SECONDS,
      "from the 202 until it waits for its day, ms": round(waitsAfterMs),
      "cancel, s": round(cancelMs / 1_000, 2),
    },
    problems,
  };
}

/** The differences from a ledger whose rows are all in one state, and from the credits that it reserves. */
async function differences(
  sender: CampaignSender,
  expected: { state: RecipientState; recipients: number; reserved: number },
): Promise<string[]> {
  const { [expected.state]: found = 0, ...others } = await ledgerStates(sender);
  const { reserved, mismatch } = await credits(sender);
  const problems: string[] = [];
  if (found !== expected.recipients || Object.keys(others).length > 0) {
    const states = JSON.stringify({ [expected.state]: found, ...others });
    problems.push(`the ledger has ${states} instead of ${expected.recipients} ${expected.state}`);
  }
  if (mismatch || reserved !== expected.reserved) {
    problems.push(`${reserved} credits are reserved instead of ${expected.reserved}, or their ledger differs`);
  }
  return problems;
}

/** Writes contacts, half of them on a list, a mail to each and its engagement. */
async function fill(team: TestTeam, contacts: number): Promise<{ listId: string; resource: string }> {
  const { em } = team;
  const client = api(team.keys.live);
  const tenant: Tenant = { teamId: team.team.id, environment: "LIVE" };
  const listId: string = (await client.post("/lists", { name: "Half" })).body.data.id;
  const resource: string = (await client.post("/newsletters", { name: "Letter" })).body.data.id;
  const sendId = await recordSend(em, tenant, resource, contacts);
  const db = kysely(em);
  const { contactId, email, owner, people, stem } = await fillContacts(team, contacts);
  const subscriber = sql`'sub_' || ${stem}::text || lpad(i::text, 8, '0')`;
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
    select ${sendId}, i, ${contactId}, ${email},
      case when i % 50 = 0 then 'REJECTED' else 'SENT' end ${people}`.execute(db);
  await sql`
    insert into engagements (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
    select ${sendId}, i, kind, ${owner}, ${resource}, ${email}, 1, now(), now() ${people}
    cross join (values ('opened', 3), ('clicked', 20)) k (kind, every) where i % every = 0`.execute(db);
  await vacuum(em, "subscribers", "subscriptions", "sends", "send_recipients", "engagements");
  return { listId, resource };
}

/** Writes contacts. @returns SQL for more rows about the same people, in which `i` counts them */
async function fillContacts({ em, team }: Pick<TestTeam, "em" | "team">, contacts: number) {
  const stem = unique("n");
  const owner = sql`${team.id}, 'LIVE'`;
  const email = sql`'person' || i || '@' || ${stem}::text || '.example'`;
  const contactId = sql`'con_' || ${stem}::text || lpad(i::text, 8, '0')`;
  const people = sql`from generate_series(1, ${contacts}::int) i`;
  await sql`
    insert into contacts (id, team_id, environment, email, first_name, last_name, fields, created_at)
    select ${contactId}, ${owner}, ${email}, 'First' || i, 'Last' || i,
      jsonb_build_object('city', 'City' || i % 200, 'language', case when i % 3 = 0 then 'de' else 'en' end,
        'orders', i % 100, 'vip', i % 10 = 0, 'member_since', (date '2020-01-01' + i % 2000)::text),
      now() - (i % 1000) * interval '1 day'
    ${people}`.execute(kysely(em));
  await vacuum(em, "contacts");
  return { contactId, email, owner, people, stem };
}

/** Leaves tables that were filled just now as autovacuum would. */
async function vacuum(em: EntityManager, ...tables: string[]): Promise<void> {
  for (const table of tables) await sql`vacuum analyze ${sql.table(table)}`.execute(kysely(em));
}
