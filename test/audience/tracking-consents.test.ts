import assert from "node:assert/strict";
import type { ConsentWay } from "../../db/entities/audience.ts";
import { kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { type ConsentAnswer, setConsents } from "../../domain/audience/tracking-consents.ts";
import { erasePerson } from "../../domain/erasure/erase.ts";
import type { Vault } from "../../domain/secrets/crypto.ts";
import { api, type Json } from "../support/api.ts";
import { backdoor, makeTeam, type TestTeam } from "../support/factories.ts";

const EMAIL = "ada@example.com";
const agoMs = (ms: number) => new Date(Date.now() - ms);

describe("Consents to be tracked", () => {
  let test: TestTeam;
  let tenant: Tenant;
  let vault: Vault;
  before(async () => {
    ({ vault } = await backdoor());
  });
  beforeEach(async () => {
    test = await makeTeam();
    tenant = { teamId: test.team.id, environment: "LIVE" };
  });

  const say = (
    way: ConsentWay,
    status: ConsentAnswer["status"],
    more: Partial<ConsentAnswer & { email: string }> = {},
  ) => transaction(test.em.fork(), (em) => setConsents(em, vault, tenant, [{ email: EMAIL, status, ...more }], way));
  const found = () =>
    kysely(test.em.fork())
      .selectFrom("tracking_consents")
      .select(["email", "status", "way", "words"])
      .where(ofTenant(tenant))
      .orderBy("email")
      .execute();
  const state = async () => (await found()).map(({ status, way }) => `${status} by ${way}`);

  it("keep the last answer of an address, in any spelling", async () => {
    await say("API", "GRANTED", { email: "Ada@Example.com", words: "May we count?" });
    await say("PAGE", "DENIED");
    assert.deepEqual(await found(), [{ email: EMAIL, status: "DENIED", way: "PAGE", words: null }]);
    await say("PAGE", "GRANTED");
    assert.deepEqual(await state(), ["GRANTED by PAGE"]);
  });

  it("take an earlier answer only where there is none", async () => {
    await say("API", "DENIED", { at: agoMs(60_000) });
    assert.deepEqual([...(await say("API", "GRANTED", { at: agoMs(120_000) }))], []);
    assert.deepEqual(await state(), ["DENIED by API"]);
    await say("API", "GRANTED", { at: agoMs(30_000) });
    await say("API", "DENIED", { at: agoMs(40_000) });
    assert.deepEqual(await state(), ["GRANTED by API"]);
  });

  it("keep their proof where a client repeats them without a time", async () => {
    for (const status of ["GRANTED", "DENIED"] as const) {
      await say("PAGE", status, { words: "May we count?" });
      for (const words of [undefined, "May we count?"]) {
        assert.deepEqual([...(await say("API", status, { words }))], []);
      }
      assert.deepEqual(await found(), [{ email: EMAIL, status, way: "PAGE", words: "May we count?" }]);
      await say("API", status, { words: "May we count clicks?" });
      assert.deepEqual((await found())[0]?.words, "May we count clicks?");
      await say("API", status, { at: new Date() });
      assert.deepEqual((await found())[0]?.words, null);
    }
  });

  it("never lie in the future", async () => {
    await say("API", "GRANTED", { at: agoMs(-3_600_000) });
    await say("PAGE", "DENIED");
    assert.deepEqual(await state(), ["DENIED by PAGE"]);
  });

  for (const [name, way, lifts] of [
    ["an import", "IMPORT", false],
    ["a client's answer without a time", "API", false],
    ["a member's answer", "MEMBER", true],
    ["the person's own answer", "PAGE", true],
  ] as const) {
    it(`${lifts ? "give up" : "keep"} a denial for ${name}`, async () => {
      await say("PAGE", "DENIED");
      await say(way, "GRANTED");
      assert.deepEqual(await state(), [lifts ? `GRANTED by ${way}` : "DENIED by PAGE"]);
    });
  }

  it("take an import's grant where there is no answer, and its denial in place of a grant", async () => {
    await say("IMPORT", "GRANTED", { words: "first" });
    await say("IMPORT", "GRANTED", { words: "second" });
    assert.deepEqual(await found(), [{ email: EMAIL, status: "GRANTED", way: "IMPORT", words: "first" }]);
    await say("IMPORT", "DENIED");
    assert.deepEqual(await state(), ["DENIED by IMPORT"]);
  });

  it("are of one team and environment", async () => {
    await say("API", "GRANTED");
    const other = await makeTeam();
    for (const [key, expected] of [
      [test.keys.live, "granted"],
      [test.keys.test, undefined],
      [other.keys.live, undefined],
    ] as const) {
      const { body } = await api(key).post("/contacts", { email: EMAIL });
      assert.equal(body.data.tracking_consent?.status, expected);
    }
  });

  it("are erased with the person, and taken of them no more", async () => {
    await say("API", "GRANTED", { email: "other@example.com" });
    await say("API", "GRANTED");
    await erasePerson(test.em.fork(), vault, tenant, EMAIL, { dryRun: false });
    await say("PAGE", "DENIED");
    assert.deepEqual(
      (await found()).map(({ email }) => email),
      ["other@example.com"],
    );
  });

  describe("by the API", () => {
    const GRANTED = { status: "granted", words: "May we count?" };
    const client = () => api(test.keys.live);
    const made = async (path: string, body: Json) => {
      const answer = await client().post(path, body);
      assert.equal(answer.status, 201);
      return answer.body.data;
    };

    for (const kind of ["subscribers", "contacts"]) {
      it(`are set and shown with ${kind}`, async () => {
        const unknown = await made(`/${kind}`, { email: "bob@example.com" });
        assert.equal(unknown.tracking_consent, null);
        const { id, tracking_consent } = await made(`/${kind}`, { email: EMAIL, tracking_consent: GRANTED });
        assert.deepEqual(
          { ...tracking_consent, at: Date.parse(tracking_consent.at) > Date.now() - 60_000 },
          { ...GRANTED, way: "api", at: true },
        );
        const changed = await client().patch(`/${kind}/${id}`, { tracking_consent: { status: "denied" } });
        assert.deepEqual(
          [changed.body.data.tracking_consent.status, changed.body.data.tracking_consent.words],
          ["denied", null],
        );
        assert.equal(changed.body.meta.impact?.would_update ?? 1, 1);
        const same = await client().patch(`/${kind}/${id}`, { first_name: "Ada", tracking_consent: GRANTED });
        assert.equal(same.body.data.tracking_consent.status, "denied", "a grant without a time lifts no denial");
        const later = { ...GRANTED, at: new Date().toISOString() };
        const lifted = await client().patch(`/${kind}/${id}`, { tracking_consent: later });
        assert.equal(lifted.body.data.tracking_consent.status, "granted");
        for (const answer of [await client().get(`/${kind}/${id}`), await client().get(`/${kind}?email=${EMAIL}`)]) {
          const [person] = [answer.body.data].flat();
          assert.equal(person.tracking_consent.words, GRANTED.words);
        }
      });

      it(`are refused with a sentence where they are not valid, of ${kind}`, async () => {
        for (const [tracking_consent, message] of [
          [null, /tracking_consent must be an object; it is null/],
          [{ status: "yes" }, /tracking_consent\.status must be one of "granted", "denied"/],
          [{ status: "granted", at: new Date(Date.now() + 3_600_000).toISOString() }, /at must not be in the future/],
          [{ status: "granted", words: "x".repeat(1_001) }, /words must be at most 1000 characters/],
        ] as const) {
          const answer = await client().post(`/${kind}`, { email: EMAIL, tracking_consent });
          assert.equal(answer.status, 400);
          assert.match(answer.body.error.message, message);
        }
        assert.deepEqual(await found(), []);
      });
    }

    for (const kind of ["subscribers", "contacts"]) {
      it(`hold for a new address of ${kind} where it is a denial`, async () => {
        for (const [name, status] of [
          ["ada", "denied"],
          ["bob", "granted"],
        ]) {
          const { id } = await made(`/${kind}`, { email: `${name}@old.example`, tracking_consent: { status } });
          const moved = await client().patch(`/${kind}/${id}`, { email: `${name}@new.example` });
          assert.equal(moved.body.data.tracking_consent?.status, status === "denied" ? "denied" : undefined);
        }
      });
    }

    it("are not stored for a person who could not be made", async () => {
      await made("/contacts", { email: EMAIL });
      assert.equal((await client().post("/contacts", { email: EMAIL, tracking_consent: GRANTED })).status, 409);
      assert.deepEqual(await found(), []);
    });

    it("are set in bulk, and make an item `updated`", async () => {
      await made("/contacts", { email: EMAIL });
      const items = [
        { email: EMAIL.toUpperCase(), tracking_consent: GRANTED },
        { email: "bob@example.com", tracking_consent: { status: "denied" } },
        { email: "eve@example.com" },
        { email: "nope", tracking_consent: GRANTED },
      ];
      const { body } = await client().post("/contacts/bulk", { contacts: items }, { idempotencyKey: "k".repeat(20) });
      assert.deepEqual(
        body.data.results.map(({ status }: Json) => status),
        ["updated", "created", "created", "failed"],
      );
      assert.deepEqual(
        (await found()).map(({ email, status }) => [email, status]),
        [
          [EMAIL, "GRANTED"],
          ["bob@example.com", "DENIED"],
        ],
      );
    });
  });
});
