import assert from "node:assert/strict";
import fc from "fast-check";
import type { CreditKind } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { CREDIT_EFFECT, grantCredits, moveCredits, readCreditBalance } from "../../domain/teams/credits.ts";
import { makeTeam, type TestTeam, tenantOf } from "../support/factories.ts";

const reserve = (team: TestTeam, sendId: string, amount: number) =>
  transaction(team.em, (tx) => moveCredits(tx, tenantOf(team), { kind: "RESERVE", amount, sendId, cause: "" }));

async function ledgerSum({ em, team }: TestTeam) {
  const rows = await kysely(em)
    .selectFrom("credit_entries")
    .select(["kind", "amount"])
    .where("team_id", "=", team.id)
    .execute();
  const sum = { available: 0, reserved: 0 };
  for (const { kind, amount } of rows) {
    sum.available += CREDIT_EFFECT[kind].available * Number(amount);
    sum.reserved += CREDIT_EFFECT[kind].reserved * Number(amount);
  }
  return sum;
}

describe("Credits", () => {
  it("are of one environment, and a reservation of more than are available is refused", async () => {
    const team = await makeTeam();
    const tenant = tenantOf(team);
    await transaction(team.em, (em) => grantCredits(em, tenant, 10, "start"));
    const elsewhere = { ...tenant, environment: "TEST" } as const;
    assert.deepEqual(await readCreditBalance(team.em, elsewhere), { available: 0, reserved: 0 });
    const reserving = reserve(team, newId("send"), 11);
    await assert.rejects(reserving, { code: "quota_exceeded" });
    assert.deepEqual(await readCreditBalance(team.em, tenant), { available: 10, reserved: 0 });
  });

  it("gives racing reservations no more than is available, and one send one reservation", async () => {
    const team = await makeTeam();
    const tenant = tenantOf(team);
    await transaction(team.em, (em) => grantCredits(em, tenant, 10, "start"));
    const sends = Array.from({ length: 3 }, () => newId("send"));
    const outcomes = await Promise.allSettled([...sends, ...sends].map((send) => reserve(team, send, 4)));
    assert.equal(outcomes.filter(({ status }) => status === "fulfilled").length, 4);
    assert.deepEqual(await readCreditBalance(team.em, tenant), { available: 2, reserved: 8 });
    assert.deepEqual(await ledgerSum(team), { available: 2, reserved: 8 });
  });

  it("equals its ledger's sum and a simple model after any sequence of movements", async () => {
    interface Step {
      kind: CreditKind;
      send: number;
      cause: number;
      amount: number;
    }
    const step: fc.Arbitrary<Step> = fc.record({
      kind: fc.constantFrom<CreditKind>("GRANT", "RESERVE", "CONSUME", "RELEASE"),
      send: fc.nat(2),
      cause: fc.nat(3),
      amount: fc.nat(20),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
        const team = await makeTeam();
        const tenant = tenantOf(team);
        const sends = Array.from({ length: 3 }, () => newId("send"));
        const model = { available: 0, reserved: 0 };
        const done = new Set<string>();
        for (const { kind, send, cause, amount } of steps) {
          const sendId = sends[send] ?? "";
          const move = () =>
            transaction(team.em, (em) => {
              if (kind === "GRANT") return grantCredits(em, tenant, amount, `${cause}`);
              return moveCredits(em, tenant, { kind, amount, sendId, cause: kind === "RESERVE" ? "" : `${cause}` });
            });
          const once = {
            GRANT: `${cause}`,
            RESERVE: sendId,
            CONSUME: `${sendId}${cause}`,
            RELEASE: `${sendId}${cause}`,
          };
          const key = `${kind}/${once[kind]}`;
          const { available, reserved } = CREDIT_EFFECT[kind];
          const next = {
            available: model.available + available * amount,
            reserved: model.reserved + reserved * amount,
          };
          if (done.has(key) || amount === 0) await move();
          else if (next.available < 0 || next.reserved < 0) await assert.rejects(move());
          else {
            await move();
            Object.assign(model, next);
            done.add(key);
          }
          assert.deepEqual(await readCreditBalance(team.em, tenant), model);
        }
        assert.deepEqual(await ledgerSum(team), model);
      }),
      { numRuns: 10 },
    );
  });
});
