import assert from "node:assert/strict";
import { sql } from "kysely";
import { appRouter } from "../../api/router.ts";
import { kysely } from "../../db/orm.ts";
import { DEFAULT_DAILY_SEND_CAP } from "../../domain/access/keys.ts";
import { MAX_ENDPOINTS, PLAN_LIMITS } from "../../domain/teams/plans.ts";
import { api, type Json } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { app as command } from "../support/command.ts";
import { makeTeam, setLimits, type TestTeam, unique } from "../support/factories.ts";
import { windowWithRoom } from "../support/request-window.ts";
import { anotherNewsletter, makeSender, sendAndWait, startSend } from "../support/sending.ts";
import { insertAppEndpoint, webhookBody } from "../support/webhooks.ts";
import { claimsFor, openIssuer, signToken } from "./oauth-issuer.ts";

const REQUESTS = PLAN_LIMITS.requestsPerMinute.name;

describe("GET /usage", () => {
  let served: TestApp;
  let team: TestTeam;
  before(async () => {
    served = await serveRoutes(appRouter, { changes: { RATE_LIMIT_PER_MINUTE: 20 } });
  });
  after(() => served.close());
  beforeEach(async () => {
    team = await makeTeam();
    await windowWithRoom();
  });

  async function usage(key = team.keys.live, base?: string): Promise<Json> {
    const answer = await api(undefined, base).get("/usage", { headers: { authorization: `Bearer ${key}` } });
    assert.equal(answer.status, 200, answer.text);
    return answer.body.data;
  }

  it("shows every limit of a new team, within the calendar month in UTC", async () => {
    const { limits, period, ...rest } = await usage(team.keys.live, served.base);
    assert.deepEqual(limits, {
      "api.requests_per_minute": { limit: 20, used: 1, remaining: 19 },
      "email.credits": { limit: 0, used: 0, reserved: 0, remaining: 0 },
      "contacts.slots": { limit: null, used: 0, remaining: null },
      "webhooks.endpoints": { limit: MAX_ENDPOINTS, used: 0, remaining: MAX_ENDPOINTS },
      "email.sends_today": { limit: DEFAULT_DAILY_SEND_CAP, used: 0, remaining: DEFAULT_DAILY_SEND_CAP },
    });
    const now = new Date();
    const month = (ahead: number) => new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + ahead)).toISOString();
    assert.deepEqual(rest, { object: "usage", id: month(0).slice(0, 7) });
    assert.deepEqual(period, { start: month(0), end: month(1) });
  });

  it("shows the plan's allowance of requests, and what the smaller of the two limits leaves", async () => {
    for (const [allowance, limit] of [
      [7, 7],
      [5_000, 20],
    ] as const) {
      const { key } = await team.mint();
      await setLimits(team, { requestsPerMinute: allowance });
      await api(key, served.base).get("/me");
      const answer = await api(key, served.base).get("/usage");
      assert.deepEqual(answer.body.data.limits[REQUESTS], { limit: allowance, used: 2, remaining: limit - 2 });
      assert.equal(answer.headers.get("ratelimit-remaining"), `${limit - 2}`);
    }
  });

  it("shows the credits and today's mails of a send that has ended and of one that waits", async () => {
    const sender = await makeSender({ recipients: 3, credits: 10, dailySendCap: 500 });
    const second = await anotherNewsletter(sender);
    await sendAndWait(sender);
    await sql`update newsletters set send_days = array[(extract(isodow from now() at time zone 'UTC')::int + 2) % 7 + 1]
      where id = ${second.newsletterId}`.execute(kysely(sender.em));
    await startSend(second);
    const { limits } = await usage(sender.keys.live);
    assert.deepEqual(limits["email.credits"], { limit: 10, used: 3, reserved: 3, remaining: 4 });
    assert.deepEqual(limits["email.sends_today"], { limit: 500, used: 6, remaining: 494 });
    const other = (await usage(sender.keys.cleanup)).limits;
    assert.deepEqual(other["email.credits"], limits["email.credits"]);
    assert.equal(other["email.sends_today"].used, 0, "the cap belongs to a key");
    assert.equal((await usage(sender.keys.test)).limits["email.credits"].limit, 0);

    // Consumed before the period: the credits that were left count from its start.
    await sql`update credit_entries set created_at = date_trunc('month', now(), 'UTC') - interval '1 ms'
      where team_id = ${sender.team.id} and kind = 'CONSUME'`.execute(kysely(sender.em));
    const later = (await usage(sender.keys.live)).limits;
    assert.deepEqual(later["email.credits"], { limit: 7, used: 0, reserved: 3, remaining: 4 });
  });

  it("counts the webhook endpoints of the environment that the team registered", async () => {
    const client = api(team.keys.live);
    for (let i = 0; i < 2; i++) assert.equal((await client.post("/webhooks", webhookBody())).status, 201);
    await insertAppEndpoint(team);
    const left = { limit: MAX_ENDPOINTS, used: 2, remaining: MAX_ENDPOINTS - 2 };
    assert.deepEqual((await usage()).limits["webhooks.endpoints"], left);
    assert.equal((await usage(team.keys.test)).limits["webhooks.endpoints"].used, 0);
  });

  it("lets an OAuth client read it, which sends nothing", async () => {
    const issuer = await openIssuer();
    const app = await serveRoutes(appRouter, { changes: issuer.settings });
    try {
      const [key = assert.fail()] = issuer.keys;
      const token = await signToken(key, await claimsFor(issuer, team, { scope: "usage:read" }));
      const { limits } = await usage(token, app.base);
      assert.deepEqual(limits["email.sends_today"], { limit: 0, used: 0, remaining: 0 });
      assert.equal(limits[REQUESTS].used, 1);
    } finally {
      await app.close();
      await issuer.close();
    }
  });
});

describe("npm run app -- plan:set", () => {
  let team: TestTeam;
  beforeEach(async () => {
    team = await makeTeam();
  });

  async function planSet(...args: string[]): Promise<Json> {
    const { code, json, stderr } = await command("plan:set", "--team", team.team.id, ...args, "--json");
    assert.equal(code, 0, stderr);
    return json.team;
  }

  it("sets the plan and each limit, leaves the others, and lifts them", async () => {
    const none = { "api.requests_per_minute": null, "contacts.slots": null, "webhooks.endpoints": null };
    const set = await planSet("--requests-per-minute", "50", "--contact-slots", "9", "--webhook-endpoints", "1");
    const limits = { "api.requests_per_minute": 50, "contacts.slots": 9, "webhooks.endpoints": 1 };
    assert.deepEqual(set, { id: team.team.id, plan: "BUSINESS", limits });
    const { body } = await api(team.keys.live).get("/usage");
    for (const [name, limit] of Object.entries(limits)) assert.equal(body.data.limits[name].limit, limit, name);

    const free = await planSet("--plan", "free", "--contact-slots", "none");
    assert.deepEqual(free, { id: team.team.id, plan: "FREE", limits: { ...limits, "contacts.slots": null } });
    assert.equal((await api(team.keys.live).get("/usage")).body.error.code, "plan_upgrade_required");
    const lifted = await planSet("--plan", "BUSINESS", "--requests-per-minute", "none", "--webhook-endpoints", "none");
    assert.deepEqual(lifted, { id: team.team.id, plan: "BUSINESS", limits: none });
    assert.deepEqual((await command("plan:show", "--team", team.team.id, "--json")).json.team, lifted);
  });

  it("refuses more endpoints than any team may have, what is no number, and nothing at all", async () => {
    for (const [args, why] of [
      [["--webhook-endpoints", `${MAX_ENDPOINTS + 1}`], /from 0 to 20, or none/],
      [["--contact-slots", "many"], /whole number/],
      [["--requests-per-minute", "0"], /from 1 to/],
      [[], /Name a plan or a limit/],
    ] as const) {
      const { code, stderr } = await command("plan:set", "--team", team.team.id, ...args);
      assert.equal(code, 1);
      assert.match(stderr, why);
    }
    assert.equal((await command("plan:set", "--team", unique("team"), "--contact-slots", "1")).code, 1);
  });

  it("makes a full number of endpoints resource_limit_reached, also below that of any team", async () => {
    await setLimits(team, { webhookEndpoints: 1 });
    const client = api(team.keys.live);
    assert.equal((await client.post("/webhooks", webhookBody())).status, 201);
    const refused = await client.post("/webhooks", webhookBody());
    assert.deepEqual([refused.status, refused.body.error.code], [409, "resource_limit_reached"]);
    const { limits } = (await client.get("/usage")).body.data;
    assert.deepEqual(limits["webhooks.endpoints"], { limit: 1, used: 1, remaining: 0 });
  });
});
