import assert from "node:assert/strict";
import type { SendState } from "../../domain/sends/ledger/lifecycle.ts";
import type { LaneView } from "../../workflows/lane-view.ts";
import type { SendView, Step } from "../../workflows/send-decision.ts";
import { factsOf, withFacts } from "../../workflows/send-facts.ts";

const NOW = Date.parse("2026-11-22T12:00:00Z");
const STARTS_AT = "2026-11-23T00:00:00.000Z (mon, fri in Europe/Berlin)";
const WAIT: Step = { kind: "wait", summary: "", details: "Waits.", ms: 5_000 };

const view = (send: Partial<SendState>, change: Partial<SendView> = {}): SendView => ({
  now: NOW,
  send: {
    ...{ status: "SENDING", startsInMs: 0, recipients: 7, sent: 3, pauseReason: null, accountIds: ["acct_1"] },
    ...{ resumes: 0, closedEpochs: {} },
    ...{ since: "2026-11-22T10:00:00.000Z", startsAt: STARTS_AT },
    ...send,
  },
  ...{ isStale: false, isTokenExpired: false, pauses: [], cancels: [], review: "open", isLong: false, lanes: [] },
  ...change,
});

const lane = (lastFailure?: LaneView["lastFailure"]): LaneView => {
  return { accountId: "acct_1", slice: "none", accountFailures: 0, mayFindMore: false, lastFailure };
};

describe("The facts that operators read of a send", () => {
  it("tell its progress, its accounts, the reply of a server that failed and when it looks again, as instants", () => {
    const failed = lane({ reason: "login_refused", reply: "454 4.7.0 Try again", at: NOW - 1_000 });
    assert.deepEqual(factsOf(view({}, { lanes: [failed] }), WAIT), [
      "3 of 7 sent; SENDING since 2026-11-22T10:00:00.000Z.",
      "Accounts: acct_1.",
      'acct_1 failed at 2026-11-22T11:59:59.000Z: login_refused, "454 4.7.0 Try again".',
      "Looks again at 2026-11-22T12:00:05.000Z.",
    ]);
  });

  it("say that mails of the slices under way are not counted yet", () => {
    const [progress] = factsOf(view({}, { lanes: [{ ...lane(), slice: "under way" }] }), WAIT);
    assert.equal(progress, "3 of 7 sent before the slices under way; SENDING since 2026-11-22T10:00:00.000Z.");
  });

  it("tell the send_at of one that is SCHEDULED or PAUSED, with its send days", () => {
    for (const status of ["SCHEDULED", "PAUSED"] as const) {
      assert.ok(factsOf(view({ status }), WAIT).includes(`Its send_at is ${STARTS_AT}.`));
    }
    assert.ok(!factsOf(view({}), WAIT).join().includes("send_at"));
  });

  it("say why it is CANCELLED or REFUSED, below the sentence of its state", () => {
    const ended = (outcome: "CANCELLED" | "refused"): Step => ({ kind: "end", outcome, details: "Ended." });
    assert.equal(
      withFacts(view({ status: "CANCELLED" }), ended("CANCELLED")).details,
      "Ended.\n\nAn operator or a client cancelled it.",
    );
    const refused = view({}, { send: undefined, neverBegan: "refused", refusal: "campaign_not_ready (no_subject)" });
    assert.equal(withFacts(refused, ended("refused")).details, "Ended.\n\nRefused: campaign_not_ready (no_subject).");
  });
});
