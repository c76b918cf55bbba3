import assert from "node:assert/strict";
import { kysely } from "../../db/orm.ts";
import { EVENT_NAMES } from "../../domain/webhooks/catalogue.ts";
import { openSecret } from "../../domain/webhooks/secrets.ts";
import { api, type Json } from "../support/api.ts";
import { app } from "../support/command.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { PUBLIC_URL, QUIET_EVENT, webhookBody } from "../support/webhooks.ts";

const SECRET = /^whsec_[\w-]{43}$/;
const HOUR_MS = 3_600_000;

describe("Webhook endpoints on the command line", () => {
  let team: TestTeam;
  before(async () => {
    team = await makeTeam();
  });

  const secretsOf = async (id: string) => {
    const row = await kysely(team.em.fork())
      .selectFrom("webhook_endpoints")
      .selectAll()
      .where("id", "=", id)
      .executeTakeFirstOrThrow();
    const { encrypted_secret: current, previous_encrypted_secret: previous, previous_secret_expires_at: expires } = row;
    return {
      current: openSecret(team.vault, id, current),
      previous: previous === null ? null : openSecret(team.vault, id, previous),
      expires: expires === null ? null : new Date(expires),
    };
  };

  describe("webhook:rotate-secret", () => {
    it("shows a new secret once; the old one signs beside it for a day", async () => {
      const { id, secret } = (await api(team.keys.live).post("/webhooks", webhookBody())).body.data;
      const { code, json, stderr } = await app("--json", "webhook:rotate-secret", id);
      assert.equal(code, 0, stderr);
      assert.match(json.webhook.secret, SECRET);
      assert.notEqual(json.webhook.secret, secret);
      const { current, previous, expires } = await secretsOf(id);
      assert.deepEqual([current, previous], [json.webhook.secret, secret]);
      assert.equal(expires?.toISOString(), json.webhook.previous_secret_expires_at);
      assert.ok(Math.abs((expires?.getTime() ?? 0) - Date.now() - 24 * HOUR_MS) < HOUR_MS / 6);
    });

    it("is POST /webhooks/{id}/rotate-secret as well, which a repetition answers with the same secret", async () => {
      const client = api(team.keys.live);
      const { id, secret } = (await client.post("/webhooks", webhookBody())).body.data;
      const rotate = (body?: Json, idempotencyKey?: string) =>
        client.post(`/webhooks/${id}/rotate-secret`, body, { idempotencyKey });
      const key = unique("key");
      const first = await rotate(undefined, key);
      assert.equal(first.status, 200, first.text);
      assert.equal((await rotate(undefined, key)).text, first.text);
      const { previous_secret_expires_at: until, ...shown } = first.body.data;
      assert.match(shown.secret, SECRET);
      assert.deepEqual(shown, { object: "webhook_secret", id, secret: shown.secret });
      const stored = await secretsOf(id);
      assert.deepEqual([stored.current, stored.previous], [shown.secret, secret]);
      assert.equal(stored.expires?.toISOString(), until);
      const { data } = (await rotate({ overlap_hours: 0 })).body;
      assert.deepEqual(await secretsOf(id), { current: data.secret, previous: null, expires: null });
      assert.equal(data.previous_secret_expires_at, null);
      const refused = await rotate({ overlap_hours: 721 });
      assert.deepEqual([refused.status, refused.body.error.param], [400, "overlap_hours"]);
    });

    it("says in one line why it refuses", async () => {
      for (const [args, why] of [
        [["whk_none"], /There is no webhook endpoint whk_none/],
        [["whk_none", "--overlap-hours", "-1"], /whole number/],
      ] as const) {
        const { code, stderr } = await app("webhook:rotate-secret", ...args);
        assert.equal(code, 1);
        assert.match(stderr, why);
      }
    });
  });

  describe("webhook:connect", () => {
    const connect = (...args: string[]) => app("--json", "webhook:connect", "--team", team.team.id, ...args);

    it("makes an endpoint that the API does not list but shows by its id", async () => {
      const { code, json, stderr } = await connect("--url", PUBLIC_URL, "--event", `${QUIET_EVENT},account.error`);
      assert.equal(code, 0, stderr);
      const { id, secret, events } = json.webhook;
      assert.match(secret, SECRET);
      assert.deepEqual(events, [QUIET_EVENT, "account.error"]);
      assert.equal((await secretsOf(id)).current, secret);
      const client = api(team.keys.live);
      const { data } = (await client.get(`/webhooks/${id}`)).body;
      assert.deepEqual([data.name, data.url, data.active], ["1.1.1.1", PUBLIC_URL, true]);
      assert.ok(!(await client.get("/webhooks")).text.includes(id));
    });

    it("takes a star, a name and the environment", async () => {
      const args = ["--event", "*", "--name", "App", "--environment", "test"];
      const { json } = await connect("--url", PUBLIC_URL, ...args);
      assert.deepEqual(json.webhook.events, EVENT_NAMES);
      assert.equal((await api(team.keys.live).get(`/webhooks/${json.webhook.id}`)).status, 404);
      assert.equal((await api(team.keys.test).get(`/webhooks/${json.webhook.id}`)).body.data.name, "App");
    });

    it("refuses the same as the API", async () => {
      for (const [url, event, why] of [
        ["ftp://1.1.1.1/", QUIET_EVENT, /url/],
        ["nothing", QUIET_EVENT, /not a URL/],
        [PUBLIC_URL, "no.such", /no\.such is not an event/],
        [PUBLIC_URL, "", /one event/],
      ] as const) {
        const { code, stderr } = await connect("--url", url, "--event", event);
        assert.equal(code, 1);
        assert.match(stderr, why);
      }
    });
  });
});
