import assert from "node:assert/strict";
import { newId } from "../../domain/ids.ts";
import { type AttemptOutcome, settleAttempts } from "../../domain/webhooks/attempts.ts";
import { FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import { makeEndpoint, makeTeam, PUBLIC_URL } from "../support/webhooks.ts";

const outcomes = (status: AttemptOutcome["status"], count: number): AttemptOutcome[] =>
  Array.from({ length: count }, () => ({
    ...{ id: newId("delivery"), status, responseStatus: 500, responseBody: null, errorMessage: null, durationMs: 1 },
  }));

describe("The settlement of attempts", () => {
  it("says once that an endpoint is failing, and once that it works again", async () => {
    const team = await makeTeam();
    const { id } = await makeEndpoint(team, { url: PUBLIC_URL, events: [] });
    const settle = (status: AttemptOutcome["status"], count = 1) =>
      settleAttempts(team.em.fork(), id, outcomes(status, count), 0, { isProbe: false, askedWaitMs: 0 });
    assert.equal(await settle("SUCCEEDED"), undefined);
    assert.equal(await settle("RETRYING", FAILING_AFTER - 1), undefined);
    assert.equal(await settle("RETRYING"), "failing");
    assert.equal(await settle("RETRYING"), undefined);
    assert.equal(await settle("SUCCEEDED"), "working");
    assert.equal(await settle("SUCCEEDED"), undefined);
  });
});
