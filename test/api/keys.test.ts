import assert from "node:assert/strict";
import fc from "fast-check";
import { transaction } from "../../db/transaction.ts";
import { formatKey, generateKey, mintKey, parseKey, revokeKey, rotateKey } from "../../domain/access/keys.ts";
import { roleHolds, SCOPES } from "../../domain/access/scopes.ts";
import { ApiError, type ErrorCode } from "../../domain/errors.ts";
import { api } from "../support/api.ts";
import { backdoor, makeMember, makeTeam } from "../support/factories.ts";

const BASE62 = [..."0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"];
const base62 = (length: number) =>
  fc.string({ unit: fc.constantFrom(...BASE62), minLength: length, maxLength: length });
const environment = fc.constantFrom("LIVE" as const, "TEST" as const);
/** Keys of a team: more than a test mints. */
const LIMIT = 100;
const parts = { environment, publicId: base62(12), secret: base62(43) };
const keys = fc.record(parts, { noNullPrototype: true });

const refused = (code: ErrorCode, param?: string) => (error: unknown) =>
  error instanceof ApiError && error.code === code && (param === undefined || error.param === param);

describe("API key format", () => {
  it("parses every key it formats back into its parts", () => {
    fc.assert(fc.property(keys, (key) => assert.deepEqual(parseKey(formatKey(key)), key)));
  });

  it("refuses a key with one character exchanged, anywhere behind the prefix", () => {
    fc.assert(
      fc.property(keys, fc.nat(), fc.constantFrom(...BASE62), (key, place, character) => {
        const text = formatKey(key);
        const at = "mk_live_".length + (place % (text.length - "mk_live_".length));
        fc.pre(text[at] !== character);
        assert.equal(parseKey(text.slice(0, at) + character + text.slice(at + 1)), null);
      }),
    );
  });

  it("refuses any other text without throwing", () => {
    fc.assert(fc.property(fc.string({ unit: "binary" }), (text) => assert.equal(parseKey(text), null)));
    const key = formatKey(generateKey("LIVE"));
    for (const text of [key.slice(0, -1), `${key}0`, ` ${key}`, `${key}\n`, key.toUpperCase()]) {
      assert.equal(parseKey(text), null);
    }
  });

  it("keeps the environment outside the checksum, so that the other prefix is well-formed", () => {
    const key = generateKey("LIVE");
    assert.equal(parseKey(formatKey(key).replace("mk_live_", "mk_test_"))?.environment, "TEST");
  });
});

describe("minting a key", () => {
  it("stores no part of the secret", async () => {
    const { liveKey } = await makeTeam();
    const secret = parseKey(liveKey.key)?.secret;
    assert.ok(secret);
    assert.ok(!JSON.stringify(liveKey.record).includes(secret));
  });

  it("refuses a forbidden pair of scopes", async () => {
    const { mint } = await makeTeam();
    for (const send of ["newsletters:send", "campaigns:send"]) {
      await assert.rejects(mint({ scopes: ["suppressions:delete", send] }), refused("forbidden_scope_pair"));
    }
  });

  it("refuses an unknown scope, naming its place", async () => {
    const { mint } = await makeTeam();
    await assert.rejects(mint({ scopes: ["lists:read", "lists:own"] }), refused("validation_failed", "scopes[1]"));
  });

  it("refuses scopes beyond the role, for every role and scope", async () => {
    for (const role of ["VIEWER", "EDITOR"] as const) {
      const { mint } = await makeTeam({ role });
      for (const scope of SCOPES.filter((scope) => !roleHolds(role, scope))) {
        await assert.rejects(mint({ scopes: [scope] }), refused("role_insufficient"));
      }
    }
  });

  it("refuses a member of another team and a member who left", async () => {
    const ours = await makeTeam();
    const theirs = await makeTeam();
    await assert.rejects(ours.mint({ memberId: theirs.owner.id }), refused("not_found"));
    const left = await makeMember(ours.em, ours.team.id, "ADMIN");
    left.removedAt = new Date();
    await ours.em.flush();
    await assert.rejects(ours.mint({ memberId: left.id }), refused("role_insufficient"));
  });

  it("refuses a text that is not a domain, and lower-cases a domain", async () => {
    const { mint } = await makeTeam();
    await assert.rejects(mint({ sendDomains: ["ok.example", "no domain"] }), refused("validation_failed"));
    const { record } = await mint({ sendDomains: [" Example.COM ", "example.com"] });
    assert.deepEqual(record.sendDomains, ["example.com"]);
  });
});

describe("the number of keys of a team in an environment", () => {
  /** A team with two keys that work in LIVE and one in TEST. */
  async function withLimit(limit: number) {
    const made = await makeTeam();
    const { orm } = await backdoor();
    const { team, owner, vault } = made;
    const grant = { teamId: team.id, memberId: owner.id, name: "one more", scopes: ["lists:read"] };
    return {
      ...made,
      mintOne: (environment: "LIVE" | "TEST" = "LIVE") =>
        transaction(orm.em, (em) => mintKey(em, vault, { ...grant, environment }, limit)),
      rotate: (key: string, graceHours: number) =>
        rotateKey(orm.em.fork(), vault, { teamId: team.id, key }, limit, graceHours),
    };
  }

  it("leaves out keys of the other environment, and those that were revoked or have expired", async () => {
    const { mintOne, em, team, liveKey, mint } = await withLimit(2);
    await mint({ expiresAt: new Date(Date.now() - 1_000) });
    await assert.rejects(mintOne(), refused("resource_limit_reached"));
    await mintOne("TEST");
    await revokeKey(em, { teamId: team.id, key: liveKey.record.id });
    await mintOne();
  });

  it("lets a key be replaced at once when it is reached, but not with hours of grace for the old one", async () => {
    const { rotate, liveKey } = await withLimit(2);
    await assert.rejects(rotate(liveKey.record.id, 24), refused("resource_limit_reached"));
    assert.equal((await api(liveKey.key).get("/me")).status, 200, "a refused rotation leaves the key as it was");
    const { key } = await rotate(liveKey.record.id, 0);
    assert.equal((await api(key).get("/me")).status, 200);
  });
});

describe("rotating and revoking a key", () => {
  it("replaces a key at once or after a grace period, with the same grant and lineage", async () => {
    const { liveKey, em, vault, team } = await makeTeam({ sendDomains: ["a.example"], dailySendCap: 7 });
    const first = await rotateKey(em, vault, { teamId: team.id, key: liveKey.record.id }, LIMIT);
    const codeOf = async (key: string) => (await api(key).get("/me")).body.error?.code;
    assert.deepEqual([await codeOf(liveKey.key), await codeOf(first.key)], ["api_key_revoked", undefined]);
    const { lineageId, sendDomains, dailySendCap, grantedScopes } = liveKey.record;
    const { record } = first;
    assert.deepEqual(
      [record.lineageId, record.sendDomains, record.dailySendCap, record.grantedScopes],
      [lineageId, sendDomains, dailySendCap, grantedScopes],
    );
    const second = await rotateKey(em, vault, { teamId: team.id, key: record.id }, LIMIT, 24);
    assert.deepEqual([await codeOf(first.key), await codeOf(second.key)], [undefined, undefined]);
    await em.execute("update api_keys set expires_at = expires_at - interval '24 hours' where id = ?", [record.id]);
    assert.equal(await codeOf(first.key), "api_key_expired");
  });

  it("rotates a key once when two requests race", async () => {
    const { liveKey, vault, team } = await makeTeam();
    const { orm } = await backdoor();
    const name = { teamId: team.id, key: liveKey.record.id };
    const results = await Promise.allSettled([1, 2, 3].map(() => rotateKey(orm.em.fork(), vault, name, LIMIT)));
    const failures = results.flatMap((result) => (result.status === "rejected" ? [result.reason] : []));
    assert.equal(failures.length, 2);
    assert.ok(failures.every(refused("resource_state_invalid")));
  });

  it("revokes by record id or shown id, for good, and only in its own team", async () => {
    const { liveKey, testKey, em, team } = await makeTeam();
    const other = await makeTeam();
    await assert.rejects(revokeKey(em, { teamId: other.team.id, key: liveKey.record.id }), refused("not_found"));
    await revokeKey(em, { teamId: team.id, key: liveKey.record.id });
    await revokeKey(em, { teamId: team.id, key: liveKey.record.id });
    await revokeKey(em, { teamId: team.id, key: `mk_test_${testKey.record.publicId}` });
    for (const { key } of [liveKey, testKey]) {
      assert.equal((await api(key).get("/me")).body.error.code, "api_key_revoked");
    }
  });
});
