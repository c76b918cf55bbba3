import assert from "node:assert/strict";
import { SEND_STATUSES, type SendStatus } from "../../db/entities/send.ts";
import type { SendState } from "../../domain/sends/ledger/lifecycle.ts";
import { isSetBack, type KnownProgress, progressOf } from "../../workflows/progress.ts";

const state = (status: SendStatus, closedEpochs: Record<string, number> = { acct_1: 4, acct_2: 2 }): SendState => ({
  ...{
    status,
    startsInMs: 0,
    recipients: 7,
    sent: 3,
    pauseReason: null,
    resumes: 0,
    accountIds: ["acct_1", "acct_2"],
    closedEpochs,
  },
  ...{ since: "2026-11-22T10:00:00.000Z", startsAt: "2026-11-22T10:00:00.000Z" },
});
const known = (change: Partial<KnownProgress> = {}): KnownProgress => ({ ...progressOf(state("SENDING")), ...change });

describe("Postgres is behind a send's workflow", () => {
  it("when a lane's last slice is missing, and not when another has begun", () => {
    assert.ok(isSetBack(known(), state("SENDING", { acct_1: 4, acct_2: 1 })));
    assert.ok(isSetBack(known(), state("SENDING", { acct_1: 4 })));
    assert.ok(!isSetBack(known(), state("SENDING", { acct_1: 5, acct_2: 2 })));
  });

  it("when the send's status is one that it had left, unless a client resumed it", () => {
    const behind = (from: SendStatus | undefined, resumes = 0): SendStatus[] => {
      const { status: _status, ...rest } = known();
      const before = from === undefined ? rest : { ...rest, status: from };
      return SEND_STATUSES.filter((status) => isSetBack(before, { ...state(status), resumes }));
    };
    assert.deepEqual(behind("SCHEDULED"), []);
    assert.deepEqual(behind("SENDING"), ["SCHEDULED"]);
    assert.deepEqual(behind("PAUSED"), ["SCHEDULED", "SENDING"]);
    assert.deepEqual(behind("PAUSED", 1), []);
    for (const ended of ["SENT", "CANCELLED", "FAILED"] as const) {
      assert.deepEqual(behind(ended), ["SCHEDULED", "SENDING", "PAUSED"]);
    }
    assert.deepEqual(behind(undefined), [], "the send's own step may have taken it back");
  });

  it("when an operator held the send after a restore, and Postgres knows of fewer mails", () => {
    const held = { ...state("PAUSED"), pauseReason: "database_restored" };
    assert.ok(isSetBack(known({ sent: 4 }), held));
    assert.ok(!isSetBack(known({ sent: 3 }), held));
  });

  it("not because a read that began before a slice ended is answered after it", () => {
    const later = progressOf(
      state("SENDING", { acct_1: 4, acct_2: 2 }),
      known({ closedEpochs: { acct_1: 6 }, sent: 5 }),
    );
    assert.deepEqual(later, { status: "SENDING", sent: 5, resumes: 0, closedEpochs: { acct_1: 6, acct_2: 2 } });
  });
});
