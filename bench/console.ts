import { sql } from "kysely";
import { kysely } from "../db/orm.ts";
import { consoleClient, signIn } from "../test/support/console.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { pidOf } from "../test/support/processes.ts";
import { stack } from "../test/support/stack.ts";
import { makeAudience } from "./audience.ts";
import { usage } from "./processes.ts";
import { type BenchReport, median, type Row, round, timed } from "./report.ts";

export interface ConsoleOptions extends StackChoice {
  /** Lists, and as many newsletters with figures, segments and templates. */
  lists: number;
  /** Subscribers, who are all on one list and each on one more, and as many contacts. */
  people: number;
  /** Times that each page is read. */
  repeat: number;
}

/** Most CPU of a page, which other work on the machine does not prolong. */
const MOST_MS = 300;

type Sender = Awaited<ReturnType<typeof makeAudience>>;
type Client = Awaited<ReturnType<typeof consoleClient>>;

/** The reads of each page of the console, of a team with many lists and people. */
export function benchConsole(options: ConsoleOptions): Promise<BenchReport> {
  return withStack(options, async () => {
    const { hostname: host, port } = new URL((await stack()).mail.smtp);
    const sender = await makeAudience({
      recipients: options.people,
      connections: 10,
      smtp: { host, port: Number(port) },
    });
    await fill(sender, options);
    const client = await consoleClient(await signIn(sender.owner.id), sender.team.id);
    const pids = { api: pidOf("api"), postgres: pidOf("postgres") };
    const rows: Row[] = [];
    for (const [page, read] of Object.entries(pagesOf(client, sender))) {
      const times: number[] = [];
      const before = usage(pids);
      for (let n = 0; n < options.repeat; n++) times.push((await timed(() => Promise.all(read()))).ms);
      const after = usage(pids);
      const cpuMs = (part: keyof typeof pids) =>
        round((((after[part]?.cpuSeconds ?? 0) - (before[part]?.cpuSeconds ?? 0)) * 1_000) / options.repeat);
      const [api, postgres] = [cpuMs("api"), cpuMs("postgres")];
      rows.push({ page, "CPU ms": api + postgres, API: api, Postgres: postgres, "median ms": round(median(times)) });
    }
    const { lists, people, repeat } = options;
    return {
      bench: "console",
      options: { lists, people, repeat },
      tables: { "Reads of a page, at once": rows },
      problems: rows
        .filter((row) => Number(row["CPU ms"]) > MOST_MS)
        .map((row) => `${row["page"]}: ${row["CPU ms"]} ms`),
    };
  });
}

/** The calls of each page. */
function pagesOf({ api, app }: Client, { listId, newsletterId, accountId, audience }: Sender) {
  const list = { params: { listId } };
  const newsletter = { params: { newsletterId } };
  const one = { query: { type: "newsletter", id: newsletterId } } as const;
  const ofSend = { body: { resource_id: newsletterId } };
  const ofAccount = { params: { accountId } };
  const conditions = { all: [{ field: "first_name", op: "starts_with", value: "First1" }] };
  const allLists = () => app.audience.allLists.query({});
  const read: Record<string, () => Promise<unknown>[]> = {
    overview: () => [
      app.overview.attention.query({}),
      app.overview.progress.query({ body: {} }),
      app.overview.earlier.query({ body: {} }),
      api.analytics.overview.query({ query: {} }),
    ],
    newsletters: () => [app.content.page.query({ query: { type: "newsletter" } })],
    "a newsletter": () => [
      api.newsletters.drafts.retrieve.query(newsletter),
      app.content.document.query(one),
      app.content.settings.query(one),
      app.content.preview.query(one),
      app.accounts.list.query({}),
      allLists(),
      app.audience.lists.query({ query: {} }),
    ],
    "its check": () => [app.overview.gates.query({ body: { kind: "newsletter", id: newsletterId } })],
    "a report": () => [
      app.overview.progress.query(ofSend),
      app.overview.earlier.query(ofSend),
      app.overview.hours.query(ofSend),
      api.newsletters.links.query({ ...newsletter, query: {} }),
    ],
    templates: () => [app.templates.list.query({})],
    sequences: () => [app.sequences.page.query({ query: {} })],
    lists: () => [app.audience.lists.query({ query: {} })],
    "a list of all": () => [
      api.lists.retrieve.query(list),
      app.audience.lists.query({ query: { list_id: listId } }),
      api.lists.pageSubscribers.query({ ...list, query: { sort: "created_at" } }),
    ],
    people: () => [app.audience.people.query({ query: {} }), app.audience.segments.query({}), allLists()],
    "a person": () => [
      api.subscribers.page.query({ query: { email: `person77@${audience}` } }),
      app.audience.history.query({ query: { email: `person77@${audience}` } }),
      app.audience.enrolments.query({ query: { email: `person77@${audience}` } }),
      allLists(),
    ],
    segments: () => [app.audience.segments.query({})],
    "a segment": () => [app.audience.countSegment.mutate({ body: { conditions } }), allLists()],
    accounts: () => [app.accounts.list.query({})],
    "an account": () => [app.accounts.show.query(ofAccount), app.accounts.health.query(ofAccount)],
    keys: () => [app.team.keys.query({ query: { state: "working" } }), allLists()],
  };
  return read;
}

async function fill({ em, team, listId, accountId }: Sender, { lists, people }: ConsoleOptions): Promise<void> {
  const run = (statement: ReturnType<typeof sql>) => statement.execute(kysely(em));
  const own = sql`${team.id}, 'LIVE'`;
  const many = sql`generate_series(1, ${lists}::int) i`;
  const id = (prefix: string) => sql`${`${prefix}_${team.id}`} || lpad(i::text, 8, '0')`;
  await run(
    sql`insert into lists (id, team_id, environment, name, optin) select ${id("list")}, ${own}, 'List ' || i, 'SINGLE' from ${many}`,
  );
  await run(sql`insert into subscriptions (list_id, subscriber_id, team_id, environment, status, confirmed_at)
    select ${`list_${team.id}`} || lpad((row_number() over () % ${lists}::int + 1)::text, 8, '0'), subscriber_id, ${own}, 'CONFIRMED', now()
    from subscriptions where list_id = ${listId}`);
  await run(sql`update subscriptions set confirmed_at = now() where list_id = ${listId}`);
  await run(sql`insert into contacts (id, team_id, environment, email, first_name)
    select ${id("ctc")}, ${own}, 'contact' || i || '@example.com', 'First' || i from generate_series(1, ${people}::int) i`);
  for (const table of ["segments", "templates"]) {
    const columns = table === "segments" ? [sql`, conditions`, sql`, '{"all":[]}'`] : [sql``, sql``];
    await run(
      sql`insert into ${sql.table(table)} (id, team_id, environment, name ${columns[0]}) select ${id(table)}, ${own}, 'Name ' || i ${columns[1]} from ${many}`,
    );
  }
  await run(sql`insert into newsletters (id, team_id, environment, name, subject, status, send_id, completed_at)
    select ${id("nl")}, ${own}, 'Letter ' || i, 'News', 'SENT', ${id("snd")}, now() - make_interval(hours => i) from ${many}`);
  await run(sql`insert into sends (id, team_id, environment, resource_type, resource_id, api_key_id, status, recipients, send_at, settled_at)
    select ${id("snd")}, ${own}, 'newsletter', ${id("nl")}, 'key_x', 'SENT', 1000, now(), now() from ${many}`);
  await run(sql`insert into send_lanes (send_id, account_id) select ${id("snd")}, ${accountId} from ${many}`);
  await run(sql`insert into analytics_days (team_id, environment, resource_id, day, sent, tracked, opened_unique)
    select ${own}, ${id("nl")}, current_date - d, 100, 100, 40 from ${many}, generate_series(0, 9) d`);
  for (const table of ["subscriptions", "contacts", "lists", "newsletters", "analytics_days"]) {
    await run(sql`vacuum analyze ${sql.table(table)}`);
  }
}
