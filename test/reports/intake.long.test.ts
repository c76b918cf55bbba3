import assert from "node:assert/strict";
import { claimPort } from "../../config/ports.ts";
import { returnPath } from "../../domain/mail/links.ts";
import { openVault } from "../../domain/secrets/crypto.ts";
import { makeTeam, unique } from "../support/factories.ts";
import { startWorker, type TestWorker } from "../support/processes.ts";
import { COMPLAINT, HARD, RETURN_PATH_DOMAIN } from "../support/reports.ts";
import { stack } from "../support/stack.ts";
import { giveMail, mailed, recordedKinds } from "./mails.ts";

const REPORTS = 3_000;
const CONNECTIONS = 30;
const KILLS = 3;

describe("The intake under a flood of reports", () => {
  let worker: TestWorker;
  after(() => worker.stop());

  it("loses none that it answered with 250, killed three times", async () => {
    const team = await makeTeam();
    const vault = openVault((await stack()).env);
    const port = await claimPort();
    const settings = { RETURN_PATH_DOMAIN, INTAKE_SMTP_PORT: String(port), HEALTH_PORT: "0" };
    worker = await startWorker("intake", settings);
    const emails = Array.from({ length: REPORTS }, (_, i) => `${unique("flood")}${i}@to.example`);
    const { sendId } = await mailed(team, emails);
    const left = emails.map((_, i) => i + 1);
    const answered: string[] = [];
    const killAt = Array.from({ length: KILLS }, (_, i) => Math.floor((i + 1 - Math.random() / 2) * (REPORTS / 4)));
    let restarting: Promise<unknown> = Promise.resolve();
    const lane = async () => {
      for (let seq = left.shift(); seq !== undefined; seq = left.shift()) {
        const [raw, kind] = seq % 2 ? [HARD, "bounce:hard"] : [COMPLAINT, "complaint:unknown"];
        if ((await giveMail(port, returnPath(vault, RETURN_PATH_DOMAIN, { sendId, seq }), raw)) !== 250) {
          // Its client sends the mail again.
          left.push(seq);
          await restarting;
          continue;
        }
        answered.push(`${seq} ${kind}`);
        if (killAt[0] === undefined || answered.length < killAt[0]) continue;
        killAt.shift();
        worker.signal("SIGKILL");
        restarting = (async () => {
          const recorded = new Set(await recordedKinds(team, sendId));
          const missing = answered.filter((report) => !recorded.has(report));
          worker = await startWorker("intake", settings);
          assert.deepEqual(missing, [], "answered and not recorded");
        })();
        await restarting;
      }
    };
    await Promise.all(Array.from({ length: CONNECTIONS }, lane));
    assert.deepEqual(killAt, []);
    assert.equal((await recordedKinds(team, sendId)).length, REPORTS);
  });
});
