import assert from "node:assert/strict";
import { openSendSteps } from "../support/send-steps.ts";
import { makeSender, startTomorrow } from "../support/sending.ts";

describe("The log of a send", () => {
  it("has one line for each change of its status, with its id and the reason, and none for a repeated step", async () => {
    const sender = await makeSender({ recipients: 1 });
    const { data } = await startTomorrow(sender);
    const lines: Record<string, unknown>[] = [];
    const { steps, orm } = await openSendSteps(sender.vault, { write: (line) => lines.push(JSON.parse(line)) });
    after(() => orm.close(true));
    await steps.pauseSend(data.id, "login_refused");
    await steps.pauseSend(data.id, "login_refused");
    await steps.resumeSend(data.id, "resume-1");
    await steps.resumeSend(data.id, "resume-1");
    const changed = await steps.cancelSend(data.id);
    assert.deepEqual(
      lines.map(({ level, ...line }) => line),
      [
        {
          ...{ sendId: data.id, from: "SCHEDULED", status: "PAUSED", reason: "login_refused" },
          msg: "a send is PAUSED",
        },
        { sendId: data.id, from: "PAUSED", status: "SCHEDULED", msg: "a send is SCHEDULED" },
        { sendId: data.id, from: "SCHEDULED", status: "CANCELLED", msg: "a send is CANCELLED" },
      ],
    );
    assert.deepEqual(Object.keys(changed).sort(), ["changed", "state"], "the history holds no more");
  });
});
