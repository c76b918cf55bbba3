import assert from "node:assert/strict";
import { sql } from "kysely";
import pg from "pg";
import { appRouter } from "../../api/router.ts";
import { Member, Team } from "../../db/entities/team.ts";
import { forTenant, kysely } from "../../db/orm.ts";
import { mintKey } from "../../domain/access/keys.ts";
import { newId } from "../../domain/ids.ts";
import { type ApiAnswer, api, type Json } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { scopesBesideSending } from "../support/factories.ts";
import { makeDatabase, type OwnDatabase } from "../support/own-database.ts";
import { type PlanNode, rowsOf, withParts } from "../support/plans.ts";
import { openRecordingOrm, type RecordingOrm, type Statement } from "../support/recording.ts";

/** Rows of each table that grows with the audience. */
const MANY = 20_000;
const NEWSLETTERS = 2_000;
/** Rows that a page of 25 may read of one table: 26 for each value of the column by which a list may be split, and a few. */
const MAX_ROWS = 200;
const BOTH = ["updated_at", "created_at"];

describe(`The plans of lists, with ${MANY} rows of a team`, () => {
  const teamId = newId("team");
  const [listId, webhookId] = [newId("list"), newId("webhook")];
  let own: OwnDatabase;
  let app: TestApp;
  let recording: RecordingOrm;
  let explaining: pg.Client;
  let key: string;

  before(async () => {
    own = await makeDatabase();
    recording = await openRecordingOrm(own.url);
    explaining = new pg.Client({ connectionString: own.url });
    await explaining.connect();
    app = await serveRoutes(appRouter, { changes: { DATABASE_URL: own.url }, with: { orm: recording.orm } });
    await fill();
  });
  after(async () => {
    await app?.close();
    await explaining?.end();
    await own?.drop();
  });

  /** A team with a key, and rows whose rarest values are the oldest, so that no walk from the newest soon finds them. */
  async function fill(): Promise<void> {
    const em = forTenant(own.orm.em, { teamId, environment: "LIVE" });
    em.create(Team, { id: teamId, name: "Team", plan: "BUSINESS" });
    await em.flush();
    const member = em.create(Member, { id: newId("member"), teamId, email: "o@example.com", name: "O", role: "OWNER" });
    await em.flush();
    const scopes = scopesBesideSending("OWNER");
    const grant = { teamId, memberId: member.id, environment: "LIVE", name: "k", scopes, sendDomains: [] } as const;
    ({ key } = await mintKey(em, app.deps.vault, grant, 1));

    const db = kysely(em);
    const many = sql`generate_series(1, ${MANY}::int) n`;
    const createdAt = sql`timestamptz '2026-01-01' + n * interval '10 seconds'`;
    // Another order than that of the creation.
    const updatedAt = sql`timestamptz '2026-06-01' + (n * 7919 % ${MANY}::int) * interval '10 seconds'`;
    const times = sql`${createdAt}, ${updatedAt}`;
    const tenant = sql`${teamId}, 'LIVE'`;
    for (const insert of [
      sql`insert into lists (id, team_id, environment, name, optin) values (${listId}, ${tenant}, 'List', 'SINGLE')`,
      sql`insert into newsletters (id, team_id, environment, name, body, created_at, updated_at)
        select 'nl_' || n, ${tenant}, 'Newsletter', repeat('x', 3000), ${times} from generate_series(1, ${NEWSLETTERS}::int) n`,
      sql`insert into webhook_endpoints (id, team_id, environment, origin, name, url, events, encrypted_secret, api_version)
        values (${webhookId}, ${tenant}, 'API', 'W', 'https://example.com/', '{}', '', '')`,
      sql`insert into webhook_health (webhook_id) select id from webhook_endpoints`,
      sql`insert into subscribers (id, team_id, environment, email, created_at, updated_at)
        select 'sub_' || n, ${tenant}, 'p' || n || '@example.com', ${times} from ${many}`,
      sql`insert into contacts (id, team_id, environment, email, email_status, created_at, updated_at)
        select 'con_' || n, ${tenant}, 'p' || n || '@example.com', case when n <= 100 then 'INVALID' else 'ACTIVE' end,
          ${times} from ${many}`,
      sql`insert into subscriptions (list_id, subscriber_id, team_id, environment, status, created_at, updated_at)
        select ${listId}, 'sub_' || n, ${tenant}, case when n <= 100 then 'PENDING' else 'CONFIRMED' end, ${times}
        from ${many}`,
      sql`insert into suppressions (id, team_id, environment, email, reason, created_at, updated_at)
        select 'supp_' || n, ${tenant}, 'p' || n || '@example.com',
          case when n <= 100 then 'bounce:hard' else 'MANUAL' end, ${times} from ${many}`,
      sql`insert into unsubscribes (id, team_id, environment, email, reason, source, campaign_id, unsubscribed_at)
        select 'unsub_' || n, ${tenant}, 'p' || n || '@example.com', 'UNSUBSCRIBED',
          case when n <= 100 then 'one_click' else 'link' end, case when n between 101 and 200 then 'nl_2' else 'nl_1' end,
          ${createdAt} from ${many}`,
      sql`insert into webhook_deliveries
          (id, team_id, environment, webhook_id, event_id, event_type, status, superseded_by_id, created_at)
        select 'whd_' || n, ${tenant}, ${webhookId}, 'event', 'email.sent',
          case when n <= 100 then 'FAILED' when n <= 150 then 'RETRYING' when n <= 200 then 'BLOCKED'
            when n <= 300 then 'PENDING' when n > 15000 then 'FAILED' else 'SUCCEEDED' end,
          case when n > 15000 then 'whd_later' end, ${createdAt} from ${many}`,
      sql`vacuum analyze`,
    ]) {
      await insert.execute(db);
    }
  }

  const deliveries = `/webhooks/${webhookId}/deliveries`;
  /** Each list that may get long, with its sorts, and with filters as query strings. */
  const lists: [path: string, sorts: string[], ...filters: string[]][] = [
    ["/newsletters", BOTH],
    ["/subscribers", BOTH, "email=P7@example.com", "email=nobody@example.com"],
    [
      "/contacts",
      BOTH,
      ...["email=P7@example.com", "email=nobody@example.com", "email=p7@example.com&email_status=ACTIVE"],
      ...["email_status=ACTIVE", "email_status=INVALID"],
    ],
    [`/lists/${listId}/subscribers`, BOTH, "status=PENDING", "status=CONFIRMED", "status=UNSUBSCRIBED"],
    [
      "/suppressions",
      BOTH,
      ...["email=p7@example.com", "email=nobody@example.com", "reason=MANUAL&email=p7777@example.com"],
      ...["reason=MANUAL", "reason=bounce:hard", "reason=bounce:soft", "reason=unheard of"],
    ],
    [
      "/unsubscribes",
      ["unsubscribed_at", "created_at"],
      ...["email=p7@example.com", "source=link", "source=one_click", "source=unheard of"],
      ...["campaign_id=nl_1", "campaign_id=nl_2", "campaign_id=nl_3"],
    ],
    [
      deliveries,
      [],
      ...["status=FAILED", "status=RETRYING", "status=BLOCKED", "status=PENDING"],
      ...["status=FAILED&final=true", "status=RETRYING&final=true", "status=BLOCKED&final=true"],
    ],
  ];

  it("let a filter of the delivery log by a failure find all rows there are, in order", async () => {
    for (const [status, from, to] of [
      ["FAILED", 1, 100],
      ["RETRYING", 101, 150],
      ["BLOCKED", 151, 200],
    ] as const) {
      const { body } = await look(deliveries, { status, order: "asc", limit: "100" });
      const expected = Array.from({ length: to - from + 1 }, (_, i) => `whd_${from + i}`);
      assert.deepEqual(
        body.data.map(({ id }: Json) => id),
        expected,
      );
    }
  });

  async function explain({ text, values }: Statement): Promise<PlanNode[]> {
    const { rows } = await explaining.query(`explain (analyze, format json) ${text}`, values);
    return withParts(rows[0]["QUERY PLAN"][0].Plan);
  }

  /** Asks for a page, and looks at how its statement was planned. */
  async function look(path: string, query: Record<string, string>): Promise<ApiAnswer> {
    recording.statements.length = 0;
    const answer = await api(key, app.base).get(path, { query });
    assert.equal(answer.status, 200, answer.text);
    const [statement, ...others] = recording.statements.filter(({ text }) => text.includes("sorted_at_ms"));
    assert.ok(statement && others.length === 0, "a page is one statement");
    for (const node of await explain(statement)) {
      const { "Node Type": type, "Relation Name": table, "Index Name": index } = node;
      if (table === undefined && index === undefined) continue;
      const read = `${JSON.stringify(query)} read ${rowsOf(node)} rows by ${type} of ${table} with ${index}`;
      assert.ok(rowsOf(node) <= MAX_ROWS, read);
    }
    return answer;
  }

  for (const [path, sorts, ...filters] of lists) {
    const shown = path.replace(/(?:list|whk)_[^/]+/, "{id}");
    for (const filter of ["", ...filters]) {
      it(`let GET ${shown}?${filter} read no more rows than it shows, by every sort`, async () => {
        for (const sort of sorts.length === 0 ? [undefined] : sorts) {
          for (const order of ["asc", "desc"]) {
            const query = { ...Object.fromEntries(new URLSearchParams(filter)), order, ...(sort && { sort }) };
            const { body } = await look(path, query);
            if (body.meta.has_more) {
              assert.equal(body.data.length, 25);
              await look(path, { ...query, cursor: body.meta.next_cursor });
            }
            if (sorts === BOTH) await look(path, { ...query, updated_since: "2027-01-01T00:00:00Z" });
            if (sort === "updated_at") await look(path, { ...query, updated_since: "2026-06-02T00:00:00Z" });
          }
        }
      });
    }
  }
});
