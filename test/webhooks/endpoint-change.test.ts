import assert from "node:assert/strict";
import { newId } from "../../domain/ids.ts";
import { type AttemptOutcome, settleAttempts } from "../../domain/webhooks/attempts.ts";
import { FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import { api } from "../support/api.ts";
import { type LogLine, untilLogged } from "../support/logs.ts";
import { makeEndpoint, makeTeam, PUBLIC_URL } from "../support/webhooks.ts";

const outcomes = (status: AttemptOutcome["status"], count: number): AttemptOutcome[] =>
  Array.from({ length: count }, () => ({
    ...{ id: newId("delivery"), status, responseStatus: 500, responseBody: null, errorMessage: null, durationMs: 1 },
  }));

describe("A PATCH of an endpoint", () => {
  it("is logged by the API when it switches the endpoint off or on, once each", async () => {
    const team = await makeTeam();
    const { id } = await makeEndpoint(team, { url: PUBLIC_URL, events: [] });
    const client = api(team.keys.live);
    const patch = async (active: boolean, query: Record<string, string> = {}) => {
      assert.equal((await client.patch(`/webhooks/${id}`, { active }, { query })).status, 200);
    };
    await patch(false, { dry_run: "true" });
    for (const active of [true, false, false, true]) await patch(active);
    const isOn = ({ webhookId, state }: LogLine) => webhookId === id && state === "on";
    await untilLogged("api", isOn);
    const lines = await untilLogged("api", ({ webhookId }) => webhookId === id);
    assert.deepEqual(
      lines.map(({ msg, teamId }) => [msg, teamId]),
      [
        ["an endpoint is off", team.team.id],
        ["an endpoint is on", team.team.id],
      ],
    );
  });
});

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
