import assert from "node:assert/strict";
import { appRouter } from "../../api/router.ts";
import { kysely, ofTenant } from "../../db/orm.ts";
import type { Scope } from "../../domain/access/scopes.ts";
import { ApiError } from "../../domain/errors.ts";
import { MAX_ENDPOINTS } from "../../domain/teams/plans.ts";
import { EVENT_NAMES, EVENTS } from "../../domain/webhooks/catalogue.ts";
import { openHeaders, openSecret } from "../../domain/webhooks/secrets.ts";
import { type ApiAnswer, type ApiClient, api, type Json } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";
import {
  insertAppEndpoint,
  insertDelivery,
  PUBLIC_URL,
  QUIET_CONTACT_EVENT,
  QUIET_EVENT,
  webhookBody,
} from "../support/webhooks.ts";

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const SECRET = /^whsec_[\w-]{43}$/;

describe("Webhook endpoints", () => {
  let team: TestTeam;
  let client: ApiClient;
  beforeEach(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
  });

  const register = async (fields: Json = {}, by = client): Promise<Json> => {
    const answer = await by.post("/webhooks", webhookBody(fields));
    assert.equal(answer.status, 201, answer.text);
    return answer.body.data;
  };
  const shown = async (id: string): Promise<Json> => (await client.get(`/webhooks/${id}`)).body.data;
  const patch = async (id: string, body: Json): Promise<Json> => {
    const answer = await client.patch(`/webhooks/${id}`, body);
    assert.equal(answer.status, 200, answer.text);
    return answer.body.data;
  };
  const db = () => kysely(team.em.fork());
  const stored = (id: string) =>
    db().selectFrom("webhook_endpoints").selectAll().where("id", "=", id).executeTakeFirstOrThrow();
  const keyWith = async (...scopes: Scope[]): Promise<ApiClient> =>
    api((await team.mint({ scopes: ["webhooks:read", "webhooks:write", ...scopes] })).key);
  const assertRefused = ({ status, body, text }: ApiAnswer, code: string, param?: string) => {
    assert.equal(body?.error?.code, code, text);
    assert.equal(body.error.param, param, text);
    assert.ok(status >= 400);
  };

  describe("registering one", () => {
    it("answers with everything it then shows, and the secret", async () => {
      const answer = await client.post("/webhooks", {
        url: "https://1.1.1.1:8443/a?b=c",
        events: ["newsletter.paused", "account.error"],
        name: "  CRM  ",
        description: "Tells the CRM",
        headers: { Authorization: "Bearer x", "x-Tenant": "7" },
      });
      assert.equal(answer.status, 201);
      assert.equal(answer.body.meta.dry_run, false);
      const { secret, id, created_at, updated_at, ...rest } = answer.body.data;
      assert.match(secret, SECRET);
      assert.match(id, /^whk_/);
      assert.match(created_at, ISO);
      assert.equal(updated_at, created_at);
      assert.deepEqual(rest, {
        object: "webhook_endpoint",
        name: "CRM",
        url: "https://1.1.1.1:8443/a?b=c",
        events: ["newsletter.paused", "account.error"],
        active: true,
        description: "Tells the CRM",
        signature_version: "v1",
        api_version: "2026-08-15",
        header_names: ["Authorization", "x-Tenant"],
        consecutive_failures: 0,
        last_success_at: null,
        last_failure_at: null,
        health: "unproven",
        next_probe_at: null,
        disabled_at: null,
        disabled_reason: null,
      });
      assert.deepEqual(await shown(id), { ...rest, id, created_at, updated_at });
    });

    it("takes each field up to its limit, and needs a URL and events only: the name is the host then", async () => {
      const url = `${PUBLIC_URL}/${"x".repeat(2_048 - PUBLIC_URL.length - 1)}`;
      const events = Array.from({ length: 64 }, () => QUIET_EVENT);
      await register({ url, events, name: "n".repeat(200), description: "d".repeat(1_000) });
      const { name, description, header_names } = await register({ url: "https://1.1.1.1:8443/x" });
      assert.deepEqual([name, description, header_names], ["1.1.1.1:8443", null, []]);
    });

    for (const [what, fields, param] of [
      ["no URL", { url: undefined }, "url"],
      ["a URL of 7 characters", { url: "http://" }, "url"],
      ["a URL of 2,049 characters", { url: `${PUBLIC_URL}/${"x".repeat(2_048 - PUBLIC_URL.length)}` }, "url"],
      ["what is no URL", { url: "not a url" }, "url"],
      ["a URL with a line break", { url: `${PUBLIC_URL}\n` }, "url"],
      ["another scheme", { url: "ftp://1.1.1.1/hooks" }, "url"],
      ["no events", { events: undefined }, "events"],
      ["an empty list of events", { events: [] }, "events"],
      ["65 events", { events: Array.from({ length: 65 }, () => QUIET_EVENT) }, "events"],
      ["one event as text", { events: QUIET_EVENT }, "events"],
      ["an unknown event", { events: [QUIET_EVENT, "no.such"] }, "events[1]"],
      ["a family of events", { events: ["contact.*"] }, "events[0]"],
      ["every event and one more", { events: [QUIET_EVENT, "*"] }, "events[1]"],
      ["an event that is a property of every object", { events: ["constructor"] }, "events[0]"],
      ["an empty name", { name: "" }, "name"],
      ["null for a name", { name: null }, "name"],
      ["a name of 201 characters", { name: "n".repeat(201) }, "name"],
      ["a description of 1,001 characters", { description: "d".repeat(1_001) }, "description"],
      ["headers as a list", { headers: [] }, "headers"],
      ["null for headers", { headers: null }, "headers"],
      ["a header that is no text", { headers: { "x-a": 1 } }, "headers.x-a"],
      ["a reserved header", { headers: { "x-ok": "1", "X-Service-Event": "1" } }, "headers.X-Service-Event"],
      ["another media type", { headers: { "content-TYPE": "text/xml" } }, "headers.content-TYPE"],
      ["a header that injects another", { headers: { "x-a": "1\r\nx-b: 2" } }, "headers.x-a"],
      ["21 headers", { headers: Object.fromEntries(Array.from({ length: 21 }, (_, i) => [`x-${i}`, "v"])) }, "headers"],
      ["a secret of its own", { secret: "whsec_mine" }, "secret"],
      ["an endpoint that is off", { active: false }, "active"],
    ] as const) {
      it(`refuses ${what}, naming it`, async () => {
        assertRefused(await client.post("/webhooks", webhookBody(fields)), "validation_failed", param);
      });
    }

    it("refuses a header called __proto__ and takes one called constructor", async () => {
      const body = `{"url":"${PUBLIC_URL}","events":["${QUIET_EVENT}"],"headers":{"__proto__":"x"}}`;
      assertRefused(await client.post("/webhooks", body), "validation_failed", "headers.__proto__");
      const { id } = await register({ headers: { constructor: "c", toString: "t" } });
      assert.deepEqual((await shown(id)).header_names, ["constructor", "toString"]);
    });

    it("stores every event there is for a star, which stands alone, and a repeated event once, in the order they came", async () => {
      const { id, events } = await register({ events: ["*"] });
      assert.deepEqual(events, EVENT_NAMES);
      assert.deepEqual((await stored(id)).events, EVENT_NAMES);
      const { body } = await client.post("/webhooks", webhookBody({ events: ["*", QUIET_EVENT] }));
      assert.match(body.error.message, /\["\*"\]/);
      const repeated = await register({ events: ["account.error", QUIET_EVENT, "account.error"] });
      assert.deepEqual(repeated.events, ["account.error", QUIET_EVENT]);
    });
  });

  describe("secrets", () => {
    it("are shown only by the registration", async () => {
      const { id, secret } = await register();
      const answers = [
        await client.get(`/webhooks/${id}`),
        await client.get("/webhooks"),
        await client.patch(`/webhooks/${id}`, { name: "Other" }),
        await client.patch(`/webhooks/${id}`, {}, { query: { dry_run: "true" } }),
        await client.delete(`/webhooks/${id}`),
      ];
      for (const { status, text } of answers) {
        assert.equal(status, 200);
        assert.ok(!text.includes(secret) && !text.includes("whsec_"), text);
      }
    });

    it("are replayed under the same Idempotency-Key, and are stored nowhere unencrypted", async () => {
      const idempotencyKey = unique("key");
      const value = unique("credential");
      const ask = () =>
        client.post("/webhooks", webhookBody({ headers: { authorization: value } }), { idempotencyKey });
      const first = await ask();
      await client.patch(`/webhooks/${first.body.data.id}`, { name: "Other" });
      const again = await ask();
      assert.equal(again.headers.get("idempotent-replayed"), "true");
      assert.equal(again.text, first.text);
      const { id, secret } = first.body.data;
      assert.match(secret, SECRET);

      const answers = await db()
        .selectFrom("idempotency_records")
        .selectAll()
        .where("team_id", "=", team.team.id)
        .execute();
      const endpoint = await stored(id);
      for (const text of [JSON.stringify(answers), JSON.stringify(endpoint)]) {
        assert.ok(!text.includes(secret.slice("whsec_".length)) && !text.includes(value));
      }
      assert.equal(openSecret(team.vault, id, endpoint.encrypted_secret), secret);
      assert.deepEqual(openHeaders(team.vault, id, endpoint.encrypted_headers), { authorization: value });
      assert.throws(() => openSecret(team.vault, "whk_other", endpoint.encrypted_secret));
    });
  });

  describe("contact data", () => {
    const BOTH = /contacts:read or suppressions:read/;
    const assertForbidden = (answer: ApiAnswer) => {
      assert.equal(answer.status, 403, answer.text);
      assertRefused(answer, "insufficient_scope");
      assert.match(answer.body.error.message, BOTH);
    };

    it("is for keys that may read it: by the event", async () => {
      const without = await keyWith();
      for (const events of [["*"], ...EVENT_NAMES.map((name) => [name])]) {
        const answer = await without.post("/webhooks", webhookBody({ events }), { query: { dry_run: "true" } });
        const personal = events[0] === "*" || EVENTS[events[0] as keyof typeof EVENTS].contactData;
        if (personal) assertForbidden(answer);
        else assert.equal(answer.status, 200, `${events[0]} ${answer.text}`);
      }
    });

    for (const scope of ["contacts:read", "suppressions:read"] as const) {
      it(`may be subscribed to with ${scope}`, async () => {
        await register({ events: ["*"] }, await keyWith(scope));
      });
    }

    it("is needed again for a replay of the answer", async () => {
      const own = await team.mint({ scopes: ["webhooks:read", "webhooks:write", "contacts:read"] });
      const by = api(own.key);
      const created = () =>
        by.post("/webhooks", webhookBody({ events: [QUIET_CONTACT_EVENT] }), { idempotencyKey: "create" });
      const first = await created();
      assert.equal(first.status, 201, first.text);
      const path = `/webhooks/${first.body.data.id}`;
      const moved = () => by.patch(path, { url: `${PUBLIC_URL}/moved` }, { idempotencyKey: "move" });
      const renamed = () => by.patch(path, { name: "Renamed" }, { idempotencyKey: "rename" });
      for (const ask of [moved, renamed]) assert.equal((await ask()).status, 200);
      assert.equal((await created()).text, first.text);

      await db()
        .updateTable("api_keys")
        .set({ granted_scopes: ["webhooks:read", "webhooks:write"] })
        .where("id", "=", own.record.id)
        .where(ofTenant({ teamId: team.team.id, environment: "LIVE" }))
        .execute();
      assertForbidden(await created());
      assertForbidden(await moved());
      assert.equal((await renamed()).headers.get("idempotent-replayed"), "true");
    });

    it("does not get to an endpoint, or another URL, by a key that may not read it", async () => {
      const without = await keyWith();
      const path = `/webhooks/${(await register({ events: [QUIET_EVENT, QUIET_CONTACT_EVENT] })).id}`;
      for (const change of [
        { events: [QUIET_EVENT, QUIET_CONTACT_EVENT, "email.sent"] },
        { events: ["*"] },
        { url: `${PUBLIC_URL}/other` },
        { url: `${PUBLIC_URL}/other`, events: [QUIET_EVENT] },
      ]) {
        assertForbidden(await without.patch(path, change));
        assertForbidden(await without.patch(path, change, { query: { dry_run: "true" } }));
      }
      for (const change of [
        { name: "Other", description: null, headers: { "x-a": "b" } },
        { active: false },
        { active: true },
        { url: PUBLIC_URL },
        { events: [QUIET_CONTACT_EVENT, QUIET_EVENT], url: PUBLIC_URL },
        { events: [QUIET_EVENT] },
        { url: `${PUBLIC_URL}/other` },
      ]) {
        const { status, text } = await without.patch(path, change);
        assert.equal(status, 200, `${JSON.stringify(change)} ${text}`);
      }
      assertForbidden(await without.patch(path, { events: [QUIET_EVENT, QUIET_CONTACT_EVENT] }));
    });

    /** Unsubscribing needs no scope: repointing then must not lead contact data of the log to the new URL by a replay. */
    it("is not led elsewhere by unsubscribing first and replaying then", async () => {
      const without = await keyWith();
      const { id } = await register({ events: [QUIET_EVENT, QUIET_CONTACT_EVENT] });
      await insertDelivery(team, id, { event_type: QUIET_CONTACT_EVENT });
      assert.equal((await without.patch(`/webhooks/${id}`, { events: [QUIET_EVENT] })).status, 200);
      assertForbidden(await without.patch(`/webhooks/${id}`, { url: `${PUBLIC_URL}/other` }));
      await patch(id, { url: `${PUBLIC_URL}/other` });
    });
  });

  describe("the cap", () => {
    const fill = async (count: number, by = client) => {
      for (let i = 0; i < count; i++) await register({}, by);
    };
    const count = async () => (await client.get("/webhooks", { query: { limit: 100 } })).body.data.length;

    it("is 20 a team and environment; endpoints the app made do not count", async () => {
      await insertAppEndpoint(team);
      await fill(MAX_ENDPOINTS);
      assert.equal(MAX_ENDPOINTS, 20);
      const refused = await client.post("/webhooks", webhookBody());
      assert.equal(refused.status, 409);
      assertRefused(refused, "resource_limit_reached");
      assertRefused(
        await client.post("/webhooks", webhookBody(), { query: { dry_run: "true" } }),
        "resource_limit_reached",
      );
      await register({}, api(team.keys.test));
    });

    it("gives twenty that race for the last place one 201 and nineteen 409s", async () => {
      await fill(MAX_ENDPOINTS - 1);
      const answers = await Promise.all(Array.from({ length: 20 }, () => client.post("/webhooks", webhookBody())));
      const codes = answers.map(({ status, body }) => body.error?.code ?? status).sort();
      assert.deepEqual(codes, [201, ...Array.from({ length: 19 }, () => "resource_limit_reached")]);
      assert.equal(await count(), MAX_ENDPOINTS);
    });
  });

  describe("changing one", () => {
    it("replaces events and headers as a whole, and moves updated_at", async () => {
      const made = await register({ events: [QUIET_EVENT, "account.error"], headers: { "x-a": "1", "x-b": "2" } });
      const { id } = made;
      const changed = await patch(id, { events: ["account.recovered"], headers: { "X-C": "3" } });
      assert.deepEqual(changed.events, ["account.recovered"]);
      assert.deepEqual(changed.header_names, ["X-C"]);
      assert.ok(changed.updated_at > made.updated_at);
      assert.deepEqual(openHeaders(team.vault, id, (await stored(id)).encrypted_headers), { "X-C": "3" });
      assert.deepEqual((await patch(id, { headers: {} })).header_names, []);
      assert.equal((await stored(id)).encrypted_headers, null);
    });

    it("does not move updated_at when nothing changes", async () => {
      const headers = { authorization: "x", "x-b": "2" };
      const { secret: _, ...made } = await register({ headers, name: "Same" });
      for (const body of [
        {},
        { name: "Same" },
        { headers },
        { url: PUBLIC_URL, events: [QUIET_EVENT], description: null, active: true },
      ]) {
        assert.deepEqual(await patch(made.id, body), made);
      }
    });

    it("does not move updated_at when deliveries fare well or badly", async () => {
      const { secret: _, ...made } = await register();
      const at = new Date("2026-08-15T10:00:00.123Z");
      await db()
        .updateTable("webhook_health")
        .set({ consecutive_failures: 3, last_success_at: at, last_failure_at: at })
        .where("webhook_id", "=", made.id)
        .execute();
      const expected = {
        ...made,
        consecutive_failures: 3,
        last_success_at: at.toISOString(),
        last_failure_at: at.toISOString(),
      };
      assert.deepEqual(await shown(made.id), expected);
      assert.deepEqual((await client.get("/webhooks")).body.data, [expected]);
    });

    for (const [what, body, param] of [
      ["a name that is null", { name: null }, "name"],
      ["a reserved header", { headers: { Host: "x" } }, "headers.Host"],
      ["active as text", { active: "true" }, "active"],
      ["a field it does not have", { origin: "APP" }, "origin"],
    ] as const) {
      it(`refuses ${what}, and changes nothing`, async () => {
        const { secret: _, ...made } = await register();
        assertRefused(
          await client.patch(`/webhooks/${made.id}`, { description: "x", ...body }),
          "validation_failed",
          param,
        );
        assert.deepEqual(await shown(made.id), made);
      });
    }
  });

  describe("stopping and re-activating one", () => {
    /** As the platform does it after long failure. */
    const switchOff = async (id: string) => {
      await db()
        .updateTable("webhook_endpoints")
        .set({
          active: false,
          disabled_at: new Date("2026-08-15T10:00:00.000Z"),
          disabled_reason: "delivery_failures",
          enabled_at: new Date("2026-08-01T10:00:00.000Z"),
          notice_due_at: new Date("2036-01-01T00:00:00.000Z"),
        })
        .where("id", "=", id)
        .execute();
      await db().updateTable("webhook_health").set({ consecutive_failures: 25 }).where("webhook_id", "=", id).execute();
    };

    it("reports a stop by hand, and since when; its failures stay when it is on again", async () => {
      const made = await register();
      const before = await stored(made.id);
      const off = await patch(made.id, { active: false });
      assert.deepEqual([off.active, off.disabled_reason, off.disabled_at], [false, "manual", off.updated_at]);
      assert.deepEqual(await patch(made.id, { active: false }), off);
      const health = { consecutive_failures: 4 };
      await db().updateTable("webhook_health").set(health).where("webhook_id", "=", made.id).execute();
      const on = await patch(made.id, { active: true });
      assert.deepEqual([on.active, on.disabled_at, on.disabled_reason, on.consecutive_failures], [true, null, null, 4]);
      const { enabled_at } = await stored(made.id);
      assert.ok(enabled_at > before.enabled_at);
      await patch(made.id, { active: true, name: "Other" });
      assert.deepEqual((await stored(made.id)).enabled_at, enabled_at);
    });

    it("clears the failures of one the platform had switched off, and counts from now", async () => {
      const { id } = await register();
      await switchOff(id);
      assert.deepEqual(
        [(await shown(id)).disabled_reason, (await shown(id)).consecutive_failures],
        ["delivery_failures", 25],
      );
      const on = await patch(id, { active: true });
      assert.deepEqual([on.active, on.disabled_at, on.disabled_reason, on.consecutive_failures], [true, null, null, 0]);
      const { enabled_at, notice_due_at } = await stored(id);
      assert.equal(new Date(enabled_at).toISOString(), on.updated_at);
      assert.equal(notice_due_at, null);
    });

    it("turns a switch-off into a stop by hand, since the same moment; the owner is still mailed", async () => {
      const { id } = await register();
      await switchOff(id);
      const off = await patch(id, { active: false });
      assert.deepEqual([off.disabled_reason, off.disabled_at], ["manual", "2026-08-15T10:00:00.000Z"]);
      assert.notEqual((await stored(id)).notice_due_at, null);
    });
  });

  it("are refused over http and in denied networks where settings say so, when registered and when changed", async () => {
    const { id } = await register();
    const strict = await serveRoutes(appRouter, {
      changes: { WEBHOOK_HTTPS_ONLY: true, EGRESS_DENIED_NETWORKS: ["1.0.0.0/8", "2606:4700::/32"] },
    });
    try {
      const there = api(team.keys.live, strict.base);
      for (const [url, why] of [
        ["http://8.8.8.8/hooks", /starts with https/],
        ["https://1.0.0.1/hooks", /a network that this service does not connect to/],
        ["https://[2606:4700::1]/hooks", /a network that this service does not connect to/],
      ] as const) {
        for (const { body } of [
          await there.post("/webhooks", webhookBody({ url })),
          await there.patch(`/webhooks/${id}`, { url }),
        ]) {
          assert.deepEqual([body.error.code, body.error.param], ["validation_failed", "url"], url);
          assert.match(body.error.message, why);
        }
      }
      assert.equal((await there.post("/webhooks", webhookBody({ url: "https://8.8.8.8/hooks" }))).status, 201);
      assert.equal((await shown(id)).url, PUBLIC_URL);
    } finally {
      await strict.close();
    }
  });

  describe("the check of a URL", () => {
    let app: TestApp;
    let asked: string[];
    let own: ApiClient;
    before(async () => {
      const checkWebhookUrl = async (url: string) => {
        asked.push(url);
        if (url.includes("private")) throw new ApiError("validation_failed", "not public", { param: "url" });
      };
      app = await serveRoutes(appRouter, { with: { checkWebhookUrl } });
    });
    after(() => app.close());
    beforeEach(() => {
      asked = [];
      own = api(team.keys.live, app.base);
    });

    it("comes before an endpoint is registered, also dry", async () => {
      assertRefused(
        await own.post("/webhooks", webhookBody({ url: "https://private.test" })),
        "validation_failed",
        "url",
      );
      const dry = { query: { dry_run: "true" } };
      assertRefused(
        await own.post("/webhooks", webhookBody({ url: "https://private.test" }), dry),
        "validation_failed",
        "url",
      );
      const taken = ["https://public.test", "http://a", "https://bücher.example/x?y#z"];
      for (const url of taken) assert.equal((await register({ url }, own)).url, url);
      assert.deepEqual(asked, ["https://private.test", "https://private.test", ...taken]);
    });

    it("comes with a changed URL only, and for no request that is refused anyway", async () => {
      const { id } = await register();
      for (const body of [{}, { url: PUBLIC_URL }, { name: "Other", active: false }]) {
        assert.equal((await own.patch(`/webhooks/${id}`, body)).status, 200);
      }
      assert.deepEqual(asked, []);
      assertRefused(await own.patch(`/webhooks/${id}`, { url: "https://private.test" }), "validation_failed", "url");
      assert.equal((await own.patch(`/webhooks/${id}`, { url: "https://public.test" })).status, 200);
      assert.deepEqual(asked, ["https://private.test", "https://public.test"]);
      assert.equal((await shown(id)).url, "https://public.test");
      const foreign = await insertAppEndpoint(await makeTeam());
      assertRefused(await own.patch(`/webhooks/${foreign}`, { url: "https://private.test" }), "not_found");
      const { key } = await team.mint({ scopes: ["webhooks:write"] });
      const body = webhookBody({ events: ["*"], url: "https://private.test" });
      assertRefused(await api(key, app.base).post("/webhooks", body), "insufficient_scope");
      assert.equal(asked.length, 2);
    });
  });

  describe("listing them", () => {
    const ids = async (query: Record<string, string | number> = {}): Promise<string[]> =>
      (await client.get("/webhooks", { query })).body.data.map(({ id }: Json) => id);

    it("shows the one that changed last first, and what has changed since an instant", async () => {
      const [first, second] = [(await register()).id, (await register()).id];
      assert.deepEqual(await ids(), [second, first]);
      const { updated_at } = await patch(first, { name: "Moved" });
      assert.deepEqual(await ids(), [first, second]);
      assert.deepEqual(await ids({ updated_since: updated_at }), [first]);
    });

    it("filters by active, which is true or false", async () => {
      const [on, off] = [(await register()).id, (await register()).id];
      await patch(off, { active: false });
      assert.deepEqual(await ids({ active: "true" }), [on]);
      assert.deepEqual(await ids({ active: "false" }), [off]);
      for (const active of ["1", "TRUE", "yes", ""]) {
        assertRefused(await client.get("/webhooks", { query: { active } }), "validation_failed", "active");
      }
    });

    it("filters by event; an unknown one gives an empty list", async () => {
      const { id } = await register({ events: [QUIET_EVENT, "account.error"] });
      await register();
      assert.deepEqual(await ids({ event: "account.error" }), [id]);
      for (const event of ["no.such", "*", "account"]) assert.deepEqual(await ids({ event }), []);
      assertRefused(await client.get("/webhooks", { query: { event: "e".repeat(65) } }), "validation_failed", "event");
    });

    it("leaves out endpoints the app made for itself, which can be retrieved by their id", async () => {
      const { id } = await register();
      const hidden = await insertAppEndpoint(team);
      assert.deepEqual(await ids(), [id]);
      assert.equal((await shown(hidden)).id, hidden);
      assert.equal((await patch(hidden, { name: "Mine" })).name, "Mine");
      assert.equal((await client.delete(`/webhooks/${hidden}`)).status, 200);
    });
  });

  describe("the catalogue", () => {
    it("lists every event at once", async () => {
      const { status, body } = await client.get("/webhooks/events");
      assert.equal(status, 200);
      assert.deepEqual([body.meta.has_more, body.meta.next_cursor], [false, null]);
      assert.ok(!("synced_through" in body.meta));
      assert.deepEqual(
        body.data,
        EVENT_NAMES.map((type) => ({
          object: "webhook_event_type",
          id: type,
          type,
          description: EVENTS[type].description,
          object_type: EVENTS[type].objectType,
        })),
      );
    });
  });

  describe("deleting one", () => {
    it("takes its log and its health along, and no other's", async () => {
      const [gone, kept] = [(await register()).id, (await register()).id];
      for (const id of [gone, gone, kept]) await insertDelivery(team, id);
      const { status, body } = await client.delete(`/webhooks/${gone}`);
      assert.equal(status, 200);
      assert.deepEqual(body.data, { object: "webhook_endpoint", id: gone, deleted: true });
      for (const path of [`/webhooks/${gone}`, `/webhooks/${gone}/deliveries`]) {
        assertRefused(await client.get(path), "not_found");
      }
      assertRefused(await client.delete(`/webhooks/${gone}`), "not_found");
      for (const table of ["webhook_deliveries", "webhook_health"] as const) {
        const rows = await db()
          .selectFrom(table)
          .select("webhook_id")
          .where("webhook_id", "in", [gone, kept])
          .execute();
        assert.deepEqual([...new Set(rows.map((row) => row.webhook_id))], [kept], table);
      }
    });
  });
});
