import assert from "node:assert/strict";
import { mock } from "node:test";
import { DEADLINE_MS } from "../../api/rest/deadline.ts";
import { appRouter } from "../../api/router.ts";
import { unsubscribeUrl } from "../../domain/mail/links.ts";
import { mailLetter } from "../public/ledger.ts";
import { api } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { type Cookies, consoleFetch, signIn } from "../support/console.ts";
import { eventually } from "../support/eventually.ts";
import { makeMember, makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";

interface Neighbour extends TestTeam {
  cookies: Cookies;
  newsletterId: string;
  subscriberId: string;
}

/** Before Postgres ends the transaction of the lock. */
const IN_TIME = { withinMs: 20_000, what: "one statement that waits" };

describe("The connections of an API process", () => {
  let app: TestApp;
  before(async () => {
    // Each key has one of them.
    app = await serveRoutes(appRouter, { changes: { DATABASE_POOL_MAX: 4 } });
  });
  after(() => app.close());

  async function makeNeighbour(): Promise<Neighbour> {
    const team = await makeTeam();
    const client = api(team.keys.live);
    const { data: newsletter } = (await client.post("/newsletters", { name: "N", subject: "S", body: "<p>b</p>" }))
      .body;
    const { data: subscriber } = (await client.post("/subscribers", { email: uniqueEmail() })).body;
    const cookies = await signIn((await makeMember(team.em, team.team.id, "VIEWER")).id);
    return { ...team, cookies, newsletterId: newsletter.id, subscriberId: subscriber.id };
  }

  const clientOf = ({ keys }: TestTeam) => api(keys.live, app.base);
  const statusOf = async (answer: Promise<{ status: number }>) => (await answer).status;
  const previewPage = ({ cookies, newsletterId, team }: Neighbour) =>
    statusOf(
      consoleFetch(
        { ...cookies },
        "GET",
        `/preview/newsletters/${newsletterId}?team=${team.id}`,
        undefined,
        {},
        app.origin,
      ),
    );
  const count = ({ cookies, team }: Neighbour) => {
    const conditions = { field: "email", op: "exists", value: true };
    const headers = { "mailkeel-team": team.id };
    const path = "/trpc/app.audience.countSegment";
    return statusOf(consoleFetch({ ...cookies }, "POST", path, { body: { conditions } }, headers, app.origin));
  };
  const openSession = ({ cookies }: Neighbour) =>
    statusOf(consoleFetch({ ...cookies }, "GET", "/session", undefined, {}, app.origin));
  async function linkOf(team: TestTeam) {
    const mail = await mailLetter(team);
    return { mail, url: unsubscribeUrl(team.vault, app.origin, mail) };
  }

  /** Runs an act while a row is locked. @param act gets how to wait until one statement waits for the row, and no other */
  async function whileLocked<T>(
    { em }: TestTeam,
    table: string,
    id: string,
    act: (untilOneWaits: () => Promise<unknown>) => Promise<T>,
  ): Promise<T> {
    const holder = em.fork();
    await holder.begin();
    const [held] = await holder.execute<{ pid: number }[]>(
      `select pg_backend_pid() as pid from ${table} where id = ? for update`,
      [id],
    );
    // Others of its kind may wait for the statement that waits for the row.
    const untilOneWaits = () =>
      eventually(async () => {
        const waiting = await em.fork().execute(
          `with recursive waiting as (
             select pid from pg_stat_activity where ? = any(pg_blocking_pids(pid))
             union select a.pid from pg_stat_activity a join waiting w on w.pid = any(pg_blocking_pids(a.pid)))
           select from waiting`,
          [held?.pid],
        );
        return waiting.length === 1;
      }, IN_TIME);
    try {
      return await act(untilOneWaits);
    } finally {
      await holder.rollback();
    }
  }

  it("serve others while the writes, counts and preview pages of a team wait for one of its own", async () => {
    const [hostile, other] = [await makeNeighbour(), await makeNeighbour()];
    const link = await linkOf(other);
    const patch = () => clientOf(hostile).patch(`/subscribers/${hostile.subscriberId}`, { first_name: "x" });
    const { writes, own } = await whileLocked(hostile, "subscribers", hostile.subscriberId, async (untilOneWaits) => {
      const writes = Array.from({ length: 8 }, patch);
      await untilOneWaits();
      let answered = 0;
      const own = [previewPage, count, previewPage, count].map((ask) => ask(hostile).finally(() => answered++));
      const ofOther = [
        ...Array.from({ length: 4 }, () => statusOf(clientOf(other).get("/lists"))),
        ...[previewPage(other), count(other), openSession(other)],
        statusOf(clientOf(other).patch(`/subscribers/${other.subscriberId}`, { first_name: "x" })),
        statusOf(fetch(link.url, { method: "POST" })),
        openSession(hostile),
      ];
      for (const status of await Promise.all(ofOther)) assert.equal(status, 200);
      assert.equal(answered, 0);
      assert.match(await app.deps.metrics.metrics(), /connections\{state="waiting",pool="api"\} [1-9]/);
      const [first] = await Promise.all(writes.slice(0, 1));
      assert.equal(first?.status, 503);
      assert.ok(Number(first?.headers.get("retry-after")) > 0);
      return { writes, own };
    });
    for (const { status } of await Promise.all(writes)) assert.ok(status === 200 || status === 503, `${status}`);
    for (const status of await Promise.all(own)) assert.equal(status, 200);
  });

  it("tell a caller of the console by a deadline when to try again", async () => {
    const own = await makeNeighbour();
    const owner = await signIn((await makeMember(own.em, own.team.id, "OWNER")).id);
    const answer = await whileLocked(own, "teams", own.team.id, async (untilOneWaits) => {
      const timers = mock.method(globalThis, "setTimeout");
      const headers = { "mailkeel-team": own.team.id };
      const path = "/trpc/app.team.changeSettings";
      const asked = consoleFetch({ ...owner }, "POST", path, { body: { name: "News" } }, headers, app.origin);
      await untilOneWaits();
      const deadline = timers.mock.calls.find(({ arguments: [, ms] }) => ms === DEADLINE_MS.workflow);
      timers.mock.restore();
      assert.ok(deadline);
      deadline.arguments[0]();
      return asked;
    });
    assert.equal(answer.status, 503);
    assert.ok(Number(answer.headers.get("retry-after")) > 0);
  });

  it("are given to a posted opt-out also when its program has gone", async () => {
    const team = await makeNeighbour();
    const [held, posted] = [await linkOf(team), await linkOf(team)];
    const isOut = async () => {
      const out = "select from subscriptions where subscriber_id = ? and status = 'UNSUBSCRIBED'";
      return (await team.em.fork().execute(out, [posted.mail.subscriberId])).length > 0;
    };
    const first = await whileLocked(team, "subscribers", held.mail.subscriberId, async (untilOneWaits) => {
      const first = statusOf(fetch(held.url, { method: "POST" }));
      await untilOneWaits();
      const gone = new AbortController();
      const second = fetch(posted.url, { method: "POST", signal: gone.signal }).catch(() => undefined);
      const waits = async () => /state="waiting",pool="api"\} [1-9]/.test(await app.deps.metrics.metrics());
      await eventually(waits, { what: "the second opt-out to wait" });
      gone.abort();
      await second;
      return { first };
    });
    assert.equal(await first.first, 200);
    await eventually(isOut, { what: "the opt-out" });
  });

  it("serve other teams' links, and the team's calls, while the links of a team wait for a row", async () => {
    const [hostile, other] = [await makeNeighbour(), await makeNeighbour()];
    const [held, free] = [await linkOf(hostile), await linkOf(other)];
    const posts = await whileLocked(hostile, "subscribers", held.mail.subscriberId, async (untilOneWaits) => {
      const posts = Array.from({ length: 5 }, () => statusOf(fetch(held.url, { method: "POST" })));
      await untilOneWaits();
      assert.equal(await statusOf(fetch(free.url)), 200);
      assert.equal(await statusOf(fetch(free.url, { method: "POST" })), 200);
      assert.equal(await statusOf(clientOf(hostile).get("/lists")), 200);
      // A quarter of the connections, also after all others were answered.
      await untilOneWaits();
      return { posts };
    });
    for (const status of await Promise.all(posts.posts)) assert.equal(status, 200);
  });
});
