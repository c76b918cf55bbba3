import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { kysely } from "../db/orm.ts";
import { erasePerson } from "../domain/erasure/erase.ts";
import { newId } from "../domain/ids.ts";
import { api } from "../test/support/api.ts";
import { consoleClient, signIn } from "../test/support/console.ts";
import { execute, makeTeam, type TestTeam, unique } from "../test/support/factories.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { pidOf } from "../test/support/processes.ts";
import { csv, importOnce } from "./import.ts";
import { usage } from "./processes.ts";
import { type BenchReport, median, quantile, type Row, round, timed } from "./report.ts";

export interface PeopleOptions extends StackChoice {
  /** Addresses of one team: half are subscribers and contacts, a quarter each is one of them. */
  people: number;
  /** Times that each read is made. */
  repeat: number;
  /** Lines of an import; 0 leaves all writes out. */
  lines: number;
  /** Requests that make a subscriber. */
  writes: number;
  /** Sends of the team, each to ten people. */
  sends: number;
}

const MOST_READ_MS = 150;
const EXPORT = "the export of a person";
const ERASURE = "the erasure of a person, to the end of a dry run";
const MOST_MS: Readonly<Record<string, number>> = { [EXPORT]: 2_000, [ERASURE]: 2_000 };
const POLL_MS = 10;
/** The CPU of writes with the search's indexes, as a share of that without. */
const MOST_WRITE_SHARE = 1.1;

/** Syllables of which names are made. */
const SYLLABLES =
  "an be ro mi la ter son ka li do wei sa mar jo ne ti ha ru el gor vi pe ul os fra den cho zy qua ix".split(" ");
const DOMAINS = ["gmail.com", "yahoo.com", "outlook.com", "web.example", "north.example"];

/** The console's search, list and page of people, and what its indexes cost writes. */
export function benchPeople(options: PeopleOptions): Promise<BenchReport> {
  const { people, repeat, lines, writes, sends } = options;
  return withStack(options, async () => {
    const team = await makeTeam();
    const ids = await fill(team, people);
    await send(team, sends);
    const reads = await readsOf(team, ids, people);
    const pids = { postgres: pidOf("postgres") };
    const readRows: Row[] = [];
    const failures: string[] = [];
    for (const [read, call] of Object.entries(reads)) {
      const times: number[] = [];
      const before = usage(pids)["postgres"]?.cpuSeconds ?? 0;
      for (let n = 0; n < repeat; n++) {
        const { ms, result } = await timed(() => call(n).catch((error: Error) => error));
        times.push(ms);
        if (result instanceof Error) failures.push(`${read}: ${result.message}`);
      }
      const cpu = ((usage(pids)["postgres"]?.cpuSeconds ?? 0) - before) * 1_000;
      times.sort((a, b) => a - b);
      readRows.push({
        ...{ read, "median ms": round(median(times)), "p95 ms": round(quantile(times, 0.95)) },
        "Postgres CPU ms": round(cpu / repeat),
      });
    }
    const writeRows = lines === 0 ? [] : await compareWrites(lines, writes);
    const shareOf = (figure: string) => Number(writeRows[0]?.[figure]) / Number(writeRows[1]?.[figure]);
    return {
      bench: "people",
      options: { people, repeat, lines, writes, sends },
      tables: { "Reads of the console": readRows, "Writes by the index of the search": writeRows },
      problems: [
        ...failures,
        ...readRows
          .filter((row) => Number(row["p95 ms"]) > (MOST_MS[String(row["read"])] ?? MOST_READ_MS))
          .map(({ read, "p95 ms": ms }) => `${read}: ${ms} ms`),
        ...["import CPU s", "CPU ms a request"]
          .filter((figure) => shareOf(figure) > MOST_WRITE_SHARE)
          .map((figure) => `${figure}: ${round(shareOf(figure), 2)} of that without it`),
      ],
    };
  });
}

/** With the indexes of the search, and without. Others in their place would mislead the planner about a team that it does not know. */
async function compareWrites(lines: number, writes: number): Promise<Row[]> {
  await write("none that counts", Math.ceil(lines / 10), Math.ceil(writes / 2));
  const today = await write("search", lines, writes);
  for (const table of ["subscribers", "contacts"]) await execute(`drop index ${table}_search`);
  return [today, await write("none", lines, writes)];
}

/** An import into a new team, and requests that make subscribers one after the other. */
async function write(index: string, lines: number, writes: number): Promise<Row> {
  const folder = await mkdtemp(`${tmpdir()}/mailkeel-bench-csv-`);
  const { team, keys } = await makeTeam();
  const pids = { api: pidOf("api"), postgres: pidOf("postgres") };
  const cpuSeconds = () => Object.values(usage(pids)).reduce((sum, part) => sum + part.cpuSeconds, 0);
  try {
    const file = `${folder}/people.csv`;
    await writeFile(file, csv(lines));
    const listId = newId("list");
    await execute(
      "insert into lists (id, team_id, environment, name, optin) values (?, ?, 'LIVE', 'All', 'SINGLE')",
      listId,
      team.id,
    );
    const began = usage(pids)["postgres"]?.cpuSeconds ?? 0;
    const { seconds } = await importOnce(file, team.id, "--list", listId);
    const importCpu = (usage(pids)["postgres"]?.cpuSeconds ?? 0) - began;
    const client = api(keys.live);
    const before = cpuSeconds();
    const { ms } = await timed(async () => {
      for (let n = 0; n < writes; n++)
        await client.post("/subscribers", {
          email: `${unique("ann")}@example.com`,
          first_name: "Ann",
          last_name: `Smith${n}`,
        });
    });
    return {
      ...{ index, "import s": seconds, "import CPU s": round(importCpu, 2), "ms a request": round(ms / writes, 2) },
      "CPU ms a request": round(((cpuSeconds() - before) * 1_000) / writes, 2),
    };
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function readsOf({ em, team, owner, vault }: TestTeam, { all, few, segment, rare }: Ids, people: number) {
  const { api: rest, app } = await consoleClient(await signIn(owner.id), team.id);
  const list = (query: Parameters<typeof app.audience.people.query>[0]["query"]) =>
    app.audience.people.query({ query });
  const [middle] = await execute<{ email: string }>(
    "select email from audience_addresses where team_id = ? order by email offset ? limit 1",
    ...[team.id, Math.floor(people / 2)],
  );
  const after = middle?.email ?? "";
  const some = await execute<{ email: string }>(
    "select email from audience_addresses where team_id = ? order by md5(email) limit 100",
    team.id,
  );
  const emailOf = (n: number) => some[n % some.length]?.email ?? "";
  const syllable = (n: number) => SYLLABLES[n % SYLLABLES.length] ?? "";
  const reads: Record<string, (n: number) => Promise<unknown>> = {
    "search: a middle part": (n) => list({ text: `${syllable(n)}${syllable(n * 7 + 3)}${syllable(n * 3 + 1)}${n}` }),
    "search: a frequent part": (n) => list({ text: n % 2 === 0 ? "gmail" : `${syllable(n)}${syllable(n + 5)}` }),
    "search: no hit": (n) => list({ text: `zqx${n}` }),
    "search: two letters": (n) => list({ text: syllable(n).slice(0, 2) }),
    "people: first page": () => list({}),
    "people: a middle page": () => list({ after }),
    "people: of a list of all": () => list({ list_id: all, after }),
    "people: of a list of 1,000": () => list({ list_id: few }),
    "people: of a segment": () => list({ segment_id: segment, after }),
    "people: a part without any of a segment": () => list({ segment_id: rare, after }),
    "people: suppressed": () => list({ status: "SUPPRESSED" }),
    [EXPORT]: async (n) => {
      const email = emailOf(n);
      await app.people.exportPerson.mutate({ body: { email } });
      const isDone = async () =>
        (await app.people.requests.query({ query: { email } })).data.requests[0]?.state === "DONE";
      while (!(await isDone())) await delay(POLL_MS);
    },
    [ERASURE]: (n) => erasePerson(em, vault, { teamId: team.id, environment: "LIVE" }, emailOf(n), { dryRun: true }),
    "a person": (n) => {
      const query = { email: emailOf(n) };
      return Promise.all([
        ...[rest.subscribers.page.query({ query }), rest.contacts.page.query({ query })],
        ...[rest.suppressions.page.query({ query }), rest.unsubscribes.page.query({ query })],
        ...[app.audience.enrolments.query({ query }), app.audience.history.query({ query })],
        ...[app.audience.allLists.query({}), rest.contacts.listFields.query({})],
      ]);
    },
  };
  return reads;
}

/** Each to ten people in turn, straight into the database. */
async function send({ em, team }: TestTeam, sends: number): Promise<void> {
  await sql`insert into sends (id, team_id, environment, resource_type, resource_id, api_key_id, status, recipients, send_at)
    select ${team.id} || i, ${team.id}, 'LIVE', 'newsletter', 'nl_x', 'key_x', 'SENT', 10, now()
    from generate_series(1, ${sends}::int) i`.execute(kysely(em));
  await sql`insert into send_recipients (send_id, seq, member_id, email, state)
    select ${team.id} || 1 + n / 10, 1 + n % 10, id, email, 'SENT' from (
      select id, email, row_number() over (order by id) - 1 as n from subscribers where team_id = ${team.id}
      limit 10 * ${sends}::int) p`.execute(kysely(em));
  for (const table of ["sends", "send_recipients"]) await execute(`vacuum analyze ${table}`);
}

type Ids = Record<"all" | "few" | "segment" | "rare", string>;

/** People straight into the database: names of syllables, and addresses of both names. */
async function fill({ em, team }: TestTeam, people: number): Promise<Ids> {
  const run = (statement: ReturnType<typeof sql>) => statement.execute(kysely(em));
  const [all, few, segment, rare] = [newId("list"), newId("list"), newId("segment"), newId("segment")];
  const own = sql`${team.id}, 'LIVE'`;
  const at = (list: readonly string[], n: ReturnType<typeof sql>) =>
    sql`(${list}::text[])[1 + (${n}) % ${sql.lit(list.length)}]`;
  const first = sql`${at(SYLLABLES, sql`i * 7`)} || ${at(SYLLABLES, sql`i / 30`)}`;
  const last = sql`${at(SYLLABLES, sql`i / 3`)} || ${at(SYLLABLES, sql`i / 900 + i`)} || ${at(SYLLABLES, sql`i / 27000 + i / 7`)}`;
  await run(sql`create unlogged table bench_people as select i, f, l, f || '.' || l || i || '@' || ${at(DOMAINS, sql`i`)} as email
    from generate_series(1, ${people}::int) i, lateral (select ${first} as f, ${last} as l) n`);
  const columns = sql`(id, team_id, environment, email, first_name, last_name)`;
  const person = (prefix: string) =>
    sql`select ${prefix} || lpad(i::text, 12, '0'), ${own}, email, initcap(f), initcap(l) from bench_people`;
  const [sub, ctc] = [`sub_${team.id}`, `ctc_${team.id}`];
  // Postgres makes the index of many rows in a tenth of the time.
  const indexes = await execute<{ name: string; made: string }>(
    "select indexname as name, indexdef as made from pg_indexes where indexname in ('subscribers_search', 'contacts_search')",
  );
  for (const { name } of indexes) await execute(`drop index ${name}`);
  await run(sql`insert into subscribers ${columns} ${person(sub)} where i % 4 <> 0`);
  await run(sql`insert into contacts ${columns} ${person(ctc)} where i % 4 <> 1`);
  await run(sql`insert into audience_addresses (team_id, environment, email, holders)
    select ${own}, email, case when i % 4 < 2 then 1 else 2 end from bench_people`);
  await run(
    sql`insert into lists (id, team_id, environment, name, optin) values (${all}, ${own}, 'All', 'SINGLE'), (${few}, ${own}, 'Few', 'SINGLE')`,
  );
  const members = (list: string, some: ReturnType<typeof sql>) => sql`
    insert into subscriptions (list_id, subscriber_id, team_id, environment, status, confirmed_at)
    select ${list}, id, ${own}, 'CONFIRMED', now() from subscribers where team_id = ${team.id} ${some}`;
  await run(members(all, sql``));
  await run(members(few, sql`order by md5(id) limit 1000`));
  for (const { made } of indexes) await execute(made);
  const named = (value: string) => JSON.stringify({ field: "first_name", op: "starts_with", value });
  await run(sql`insert into segments (id, team_id, environment, name, conditions)
    values (${segment}, ${own}, 'Some', ${named("Be")}), (${rare}, ${own}, 'None', ${named("Zqx")})`);
  await run(sql`insert into suppressions (id, team_id, environment, email, reason)
    select 'sup_' || ${team.id} || i, ${own}, email, 'UNSUBSCRIBED' from bench_people where i % 100 = 0`);
  for (const table of ["subscribers", "contacts", "audience_addresses", "subscriptions", "suppressions"]) {
    await execute(`vacuum analyze ${table}`);
  }
  await execute("drop table bench_people");
  await execute("checkpoint");
  return { all, few, segment, rare };
}
