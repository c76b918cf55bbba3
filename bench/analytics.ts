import { randomBytes } from "node:crypto";
import { sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../db/orm.ts";
import { ID_PREFIX } from "../domain/ids.ts";
import { eventually } from "../test/support/eventually.ts";
import { makeTeam, openStackDatabase } from "../test/support/factories.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { pidOf } from "../test/support/processes.ts";
import { recountFigures } from "../test/support/recount.ts";
import { stack } from "../test/support/stack.ts";
import { startApiLoad } from "./api-load.ts";
import { usage } from "./processes.ts";
import { type BenchReport, type Row, round, timed } from "./report.ts";

export interface AnalyticsOptions extends StackChoice {
  /** Mails, opens, clicks and reports of one team. */
  events: number;
  /** Newsletters that they belong to, one a day. */
  newsletters: number;
  /** How long one run lasts. */
  seconds: number;
  /** Requests that a run begins in a second. */
  perSecond: number;
}

/** Largest p99 of an overview. */
const MOST_P99_MS = 20;
/** Connections, which a request waits for when all are busy. */
const CLIENTS = 4;
/** Of ten events six are mails; of these a half is opened and 15 % are clicked. One report per 60 mails. */
const MAILS_PER_EVENT = 0.6;
const FACT_TABLES = ["mail_reports", "engagements"] as const;
const FOLDED_WITHIN_MS = 60_000;

/** `GET /analytics/overview` of a team with many events, and a recount of them. */
export function benchAnalytics(options: AnalyticsOptions): Promise<BenchReport> {
  const { events, newsletters, seconds, perSecond } = options;
  return withStack(options, async () => {
    const { team, keys } = await makeTeam();
    const tenant: Tenant = { teamId: team.id, environment: "LIVE" };
    const orm = await openStackDatabase("owner");
    const loader = startApiLoad();
    try {
      const em = orm.em.fork();
      const filled = await timed(() => fillFacts(em, tenant, options));
      // The facts were written without triggers, so every figure differs.
      const repaired = await timed(() => recountFigures(em, tenant, { repair: true }));
      await untilFolded(em, tenant);
      const again = await timed(() => recountFigures(em, tenant, { repair: false }));

      const { origin, pathname } = new URL((await stack()).api);
      const rows: Row[] = [];
      const problems: string[] = [];
      const [first, last] = [dateOf(newsletters - 1), dateOf(0)];
      const range = `from=${first}&to=${last}`;
      const pids = { api: pidOf("api"), postgres: pidOf("postgres") };
      for (const [request, path, most] of [
        ["/me, to compare with", "/me", Infinity],
        ["the last 30 days", "/analytics/overview", MOST_P99_MS],
        [`all ${newsletters} days`, `/analytics/overview?${range}`, MOST_P99_MS],
        [
          `all ${newsletters} days of a newsletter`,
          `/analytics/overview?${range}&resource_id=${filled.result}`,
          MOST_P99_MS,
        ],
      ] as const) {
        const load = {
          origin,
          method: "GET",
          path: pathname + path,
          headers: { "x-api-key": keys.live },
          clients: CLIENTS,
          seconds,
          perSecond,
        } as const;
        await loader.run({ ...load, seconds: 1 });
        const before = usage(pids);
        const { p50, p99, unexpected } = await loader.run(load);
        const after = usage(pids);
        const cpuMs = (part: keyof typeof pids) => {
          const cpuSeconds = (after[part]?.cpuSeconds ?? 0) - (before[part]?.cpuSeconds ?? 0);
          return round((cpuSeconds * 1_000) / (seconds * perSecond), 1);
        };
        rows.push({
          request,
          "p50 ms": round(p50, 1),
          "p99 ms": round(p99, 1),
          "API CPU ms": cpuMs("api"),
          "Postgres CPU ms": cpuMs("postgres"),
        });
        if (p99 > most) problems.push(`${request}: p99 ${round(p99, 1)} ms`);
        const statuses = Object.keys(unexpected);
        if (statuses.length > 0) problems.push(`${request}: answers ${statuses.join(", ")}`);
      }
      if (repaired.result.length === 0) problems.push("the recount found no figure to correct");
      if (again.result.length > 0) problems.push(`${again.result.length} figures differ from the facts`);
      return {
        bench: "analytics",
        options: { events, newsletters, seconds, "per-second": perSecond },
        tables: {
          "GET /analytics/overview": rows,
          "All facts, seconds": [
            {
              "written past the service": round(filled.ms / 1_000, 1),
              "recount with repair": round(repaired.ms / 1_000, 1),
              recount: round(again.ms / 1_000, 1),
            },
          ],
        },
        problems,
      };
    } finally {
      loader.close();
      await orm.close(true);
    }
  });
}

const DAY_MS = 86_400_000;
/** A day in UTC, so many days ago. */
const dateOf = (daysAgo: number): string => new Date(Date.now() - daysAgo * DAY_MS).toISOString().slice(0, 10);

/** Writes sends that have ended, one a day until today, with all that followed. @returns the id of a newsletter */
async function fillFacts(
  em: EntityManager,
  { teamId, environment }: Tenant,
  { events, newsletters }: AnalyticsOptions,
): Promise<string> {
  const db = kysely(em);
  const mails = Math.ceil((events * MAILS_PER_EVENT) / newsletters);
  const stem = randomBytes(8).toString("hex");
  const idOf = (kind: "newsletter" | "send", n: number) =>
    `${ID_PREFIX[kind]}_${stem}${String(n).padStart(26 - stem.length, "0")}`;
  for (const table of FACT_TABLES) await sql`alter table ${sql.table(table)} disable trigger user`.execute(db);
  for (let n = 0; n < newsletters; n++) {
    const [sendId, newsletterId] = [idOf("send", n), idOf("newsletter", n)];
    const tenant = sql`${teamId}, ${environment}`;
    await sql`insert into newsletters (id, team_id, environment, name, status, send_id)
      values (${newsletterId}, ${tenant}, 'Letter', 'SENT', ${sendId})`.execute(db);
    await sql`insert into sends (id, team_id, environment, resource_type, resource_id, api_key_id, status,
        recipients, send_at, settled_at)
      values (${sendId}, ${tenant}, 'newsletter', ${newsletterId}, 'key_x', 'SENT', ${mails}, now(),
        now())`.execute(db);
    // The last mails of each send leave after midnight.
    await sql`
      insert into send_recipients (send_id, seq, member_id, email, state, attempts, updated_at)
      select ${sendId}, i, 'sub_x', 'person' || i || '@example.com',
        case i % 100 when 0 then 'UNKNOWN' when 1 then 'SUPPRESSED' when 2 then 'REJECTED' else 'SENT' end, 1,
        ${dateOf(n)}::timestamptz + make_interval(hours => 23) + make_interval(secs => i * 4000.0 / ${mails}::int)
      from generate_series(1, ${mails}::int) i`.execute(db);
    for (const [kind, share] of [
      ["opened", 50],
      ["clicked", 15],
    ] as const) {
      await sql`
        insert into engagements (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
        select ${sendId}, i, ${kind}, ${tenant}, ${newsletterId}, 'person' || i || '@example.com', 1 + i % 3, now(), now()
        from generate_series(1, ${mails}::int) i where i % 100 >= ${100 - share}::int`.execute(db);
    }
    await sql`
      insert into mail_reports (send_id, seq, kind, team_id, environment, created_at)
      select ${sendId}, i, case i % 10 when 0 then 'complaint' when 1 then 'bounce:soft' else 'bounce:hard' end, ${tenant}, now()
      from generate_series(1, ${mails}::int, 60) i`.execute(db);
  }
  for (const table of FACT_TABLES) await sql`alter table ${sql.table(table)} enable trigger user`.execute(db);
  for (const table of ["send_recipients", ...FACT_TABLES]) await sql`vacuum analyze ${sql.table(table)}`.execute(db);
  return idOf("newsletter", 0);
}

/** Waits until the maintenance pool has added all changes to the figures of their days. */
const untilFolded = (em: EntityManager, { teamId }: Tenant): Promise<boolean> =>
  eventually(
    async () => {
      const { rows } = await sql`select from analytics_changes where team_id = ${teamId} limit 1`.execute(kysely(em));
      return rows.length === 0;
    },
    { withinMs: FOLDED_WITHIN_MS, what: "an empty table of changes" },
  );
