import assert from "node:assert/strict";
import { type LogLine, untilLogged } from "../support/logs.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import { makeSender, preview, setFaults, startSend, untilStatus } from "../support/sending.ts";

describe("The log of a send", () => {
  const { untilDetails } = useSendWorkflows();

  it("names the gate, the key and the workflow of a refused preview", async () => {
    const sender = await makeSender({ recipients: 0 });
    const { newsletterId, liveKey } = sender;
    const { status, body } = await preview(sender);
    assert.deepEqual([status, body.error.code], [409, "campaign_not_ready"]);
    const requestId = body.error.request_id;
    const [line = {}] = await untilLogged(
      "api",
      (each) => each["requestId"] === requestId && each["msg"] === "request",
    );
    const { code, reason, resourceId, sendId, keyId, workflowId, route } = line;
    assert.deepEqual(
      { code, reason, resourceId, keyId, workflowId, route },
      {
        ...{ code: "campaign_not_ready", reason: "no_recipients", resourceId: newsletterId },
        ...{
          keyId: liveKey.record.id,
          workflowId: `send/${sendId}`,
          route: "/newsletters/{newsletterId}/send-preview",
        },
      },
    );
  });

  it("has a line for the failure of its account, as the details do: with the reply of its server, without addresses", async () => {
    const sender = await makeSender({ recipients: 1 });
    await setFaults([
      { stage: "mail", match: sender.domain, code: 553, message: "5.7.1 ada@example.com is not allowed" },
    ]);
    try {
      const { data } = await startSend(sender);
      await untilStatus(sender, ["PAUSED"]);
      const ofSend = (line: LogLine) => line["sendId"] === data.id;
      const lines = await untilLogged("dispatch", (line) => ofSend(line) && line["msg"] === "a send's account failed");
      assert.deepEqual(
        lines.map(({ accountId, teamId, reason, temporary, reply }) => ({
          accountId,
          teamId,
          reason,
          temporary,
          reply,
        })),
        [
          {
            ...{ accountId: sender.accountId, teamId: sender.team.id, reason: "sender_refused", temporary: false },
            reply: "553 5.7.1 [address] is not allowed",
          },
        ],
      );
      const paused = await untilLogged("sends", (line) => ofSend(line) && line["status"] === "PAUSED");
      assert.deepEqual(
        paused.map(({ from, reason }) => [from, reason]),
        [["SENDING", "sender_refused"]],
      );
      await untilDetails(data.id, 'sender_refused, "553 5.7.1 [address] is not allowed".');
    } finally {
      await setFaults([]);
    }
  });
});
