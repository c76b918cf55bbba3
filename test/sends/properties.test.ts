import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { DateTime } from "luxon";
import { newId } from "../../domain/ids.ts";
import { openVault } from "../../domain/secrets/crypto.ts";
import type { PlanSubject } from "../../domain/sends/drafts/draft.ts";
import { planDigest } from "../../domain/sends/plan/plan.ts";
import { nextSendAt } from "../../domain/sends/plan/send-time.ts";
import { confirmationToken, isGenuine, previewIdOf, type TokenFacts } from "../../domain/sends/plan/token.ts";
import { accountFailureWaitMs } from "../../workflows/steps.ts";

const vault = openVault({
  SIGNING_SECRET: [["k1", randomBytes(32).toString("base64")]],
  ENCRYPTION_KEYS: [["k1", randomBytes(32).toString("base64")]],
});

const facts = fc.record({
  previewId: fc.constant(null).map(() => newId("send")),
  apiKeyId: fc.string({ minLength: 1 }),
  planDigest: fc.base64String(),
  expiresAt: fc.date({ min: new Date(0), max: new Date(4e12), noInvalidDate: true }),
});

describe("A confirmation token", () => {
  it("is genuine for the facts it was made over, and names its preview", () => {
    fc.assert(
      fc.property(facts, (given) => {
        const token = confirmationToken(vault, given);
        assert.equal(previewIdOf(token), given.previewId);
        assert.ok(isGenuine(vault, token, given));
        assert.equal(confirmationToken(vault, given), token);
      }),
    );
  });

  it("is not genuine once any fact, or any character of it, is another", () => {
    fc.assert(
      fc.property(facts, facts, fc.nat(), (given, other, at) => {
        const token = confirmationToken(vault, given);
        for (const key of ["previewId", "apiKeyId", "planDigest", "expiresAt"] as const) {
          const altered: TokenFacts = { ...given, [key]: other[key] };
          const same =
            String(altered[key]) === String(given[key]) && Number(altered.expiresAt) === Number(given.expiresAt);
          assert.equal(isGenuine(vault, token, altered), same);
        }
        const i = at % token.length;
        const flipped = `${token.slice(0, i)}${token[i] === "x" ? "y" : "x"}${token.slice(i + 1)}`;
        assert.equal(isGenuine(vault, flipped, given), false);
      }),
    );
  });

  it("takes any text without throwing", () => {
    fc.assert(
      fc.property(fc.string(), facts, (text, given) => {
        assert.equal(isGenuine(vault, text, given), false);
      }),
    );
  });
});

const subject: fc.Arbitrary<PlanSubject> = fc.record({
  teamId: fc.string(),
  environment: fc.constantFrom("LIVE" as const, "TEST" as const),
  resource: fc.record({ type: fc.constantFrom("newsletter" as const, "campaign" as const), id: fc.string() }),
  rules: fc.constant("campaign" as const),
  subject: fc.option(fc.string()),
  body: fc.option(fc.string()),
  fromAddresses: fc.uniqueArray(fc.string()),
  fromName: fc.option(fc.string()),
  sendDays: fc.uniqueArray(fc.integer({ min: 1, max: 7 })),
  timeZone: fc.constant("UTC"),
  sendAt: fc.option(fc.string()),
  accountAddresses: fc.uniqueArray(fc.string()),
  targetIds: fc.uniqueArray(fc.string()),
  segmentId: fc.option(fc.string()),
  fieldNames: fc.constant([]),
  tracking: fc.constant("OFF" as const),
  footer: fc.record({
    language: fc.constantFrom("en" as const, "de" as const),
    mailFooter: fc.option(fc.string()),
    postalAddress: fc.option(fc.string()),
    isOnWeb: fc.boolean(),
  }),
});
const members = fc.record({
  total: fc.nat(),
  ineligible: fc.nat(),
  suppressed: fc.nat(),
  eligible: fc.nat(),
  sum: fc.bigInt().map(String),
});

describe("The plan digest", () => {
  it("does not depend on the order of targets, senders and days", () => {
    fc.assert(
      fc.property(subject, members, (plan, counted) => {
        const turned = {
          ...plan,
          targetIds: plan.targetIds.toReversed(),
          fromAddresses: plan.fromAddresses.toReversed(),
          accountAddresses: plan.accountAddresses.toReversed(),
          sendDays: plan.sendDays.toReversed(),
        };
        assert.equal(planDigest(turned, counted), planDigest(plan, counted));
      }),
    );
  });

  it("changes with every fact of the plan", () => {
    fc.assert(
      fc.property(subject, subject, members, members, (plan, otherPlan, counted, otherCounted) => {
        const before = planDigest(plan, counted);
        const sorted = (value: unknown) => JSON.stringify(Array.isArray(value) ? [...value].sort() : value);
        for (const key of Object.keys(plan) as (keyof PlanSubject)[]) {
          const same = sorted(plan[key]) === sorted(otherPlan[key]);
          assert.equal(planDigest({ ...plan, [key]: otherPlan[key] }, counted) === before, same, key);
        }
        for (const key of Object.keys(counted) as (keyof typeof counted)[]) {
          const same = counted[key] === otherCounted[key];
          assert.equal(planDigest(plan, { ...counted, [key]: otherCounted[key] }) === before, same, key);
        }
      }),
    );
  });
});

describe("The send-day calendar", () => {
  // Zones with daylight saving on both halves of the globe, at midnight (Santiago, Beirut), and odd offsets.
  const zones = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Asia/Beirut",
    "Australia/Lord_Howe",
    "Pacific/Auckland",
    "Asia/Kathmandu",
    "Pacific/Apia",
  ];
  const now = fc.date({ min: new Date("2020-01-01"), max: new Date("2035-01-01"), noInvalidDate: true });
  const days = fc.uniqueArray(fc.integer({ min: 1, max: 7 }), { minLength: 1 });

  it("begins at once where every day is allowed", () => {
    fc.assert(fc.property(now, fc.constantFrom(...zones), (at, zone) => nextSendAt(at, [], zone, "00:00") === at));
  });

  it("begins on the first allowed day, at once or at that day's first instant", () => {
    fc.assert(
      fc.property(now, days, fc.constantFrom(...zones), (at, allowed, zone) => {
        const sendAt = nextSendAt(at, allowed, zone, "00:00");
        const local = DateTime.fromJSDate(sendAt, { zone });
        assert.ok(allowed.includes(local.weekday), "an allowed day");
        if (sendAt === at) return;
        assert.ok(sendAt > at, "never in the past");
        assert.notEqual(local.minus({ milliseconds: 1 }).day, local.day, "the first instant of its day");
        // No allowed day lies between.
        for (let day = DateTime.fromJSDate(at, { zone }); day < local.startOf("day"); day = day.plus({ days: 1 })) {
          if (day.hasSame(local, "day")) break;
          assert.ok(!allowed.includes(day.weekday), `${day.toISO()} was allowed`);
        }
        assert.ok(sendAt.getTime() - at.getTime() < 7.1 * 86_400_000, "within a week");
      }),
      { numRuns: 500 },
    );
  });

  it("starts a day without a midnight at its first instant", () => {
    // Chile's clocks went from Saturday 24:00 to Sunday 01:00 on 8 September 2024.
    const saturday = new Date("2024-09-07T12:00:00Z");
    assert.equal(nextSendAt(saturday, [7], "America/Santiago", "00:00").toISOString(), "2024-09-08T04:00:00.000Z");
  });
});

describe("The wait after account failures", () => {
  it("grows from five seconds to five minutes and stays there", () => {
    assert.deepEqual([1, 2, 3, 7, 50].map(accountFailureWaitMs), [5_000, 10_000, 20_000, 300_000, 300_000]);
  });
});
