import assert from "node:assert/strict";
import { pino } from "pino";
import { createSendActivities } from "../../activities/sends.ts";
import { Progress } from "../../config/progress.ts";
import { type MikroORM, openDatabase } from "../../db/orm.ts";
import { makeSender, startTomorrow } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

describe("The log of a send", () => {
  let orm: MikroORM;
  after(() => orm.close(true));

  it("has one line for each change of its status, with its id and the reason, and none for a repeated step", async () => {
    const sender = await makeSender({ recipients: 1 });
    const { data } = await startTomorrow(sender);
    const { env } = await stack();
    orm = await openDatabase(env.DATABASE_URL, { poolMax: 2 });
    const lines: Record<string, unknown>[] = [];
    const log = pino({ base: null, timestamp: false }, { write: (line) => lines.push(JSON.parse(line)) });
    const steps = createSendActivities({
      ...{ env, orm, vault: sender.vault, log, workerId: "test", progress: new Progress() },
      ...{ stopping: new AbortController().signal, countMails: () => {} },
      ...{ countAttempts: () => {}, countRelayFailure: () => {} },
    });
    await steps.pauseSend(data.id, "login_refused");
    await steps.pauseSend(data.id, "login_refused");
    await steps.resumeSend(data.id);
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
