import assert from "node:assert/strict";
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { ExaminationThread } from "../../domain/mail/examination.ts";
import type { ExaminationTask } from "../../domain/mail/examination-thread.ts";
import { checkTemplates } from "../../domain/sends/drafts/drafts.ts";

const compose = (html: string): ExaminationTask => ({
  task: "compose",
  content: { subject: "News", html, fromEmail: "news@example.com" },
});
/** Takes more than a tenth of a second for 8,000 sentences, within all limits. */
const slow = (sentences: number) =>
  compose(
    `<p>${"Some words of a letter &amp; <b>more</b> &lt; &gt; &amp; &quot; &amp; &amp; &amp; ".repeat(sentences)}</p>`,
  );
const QUICK = compose("<p>News</p>");

describe("The thread that reads contents", () => {
  it("is ended when a content takes too long, and a new one reads the next", async () => {
    const busy = new Worker("for (;;);", { eval: true });
    const ended = once(busy, "exit");
    /** Its first thread never comes to an end, on the fastest machine. */
    class Thread extends ExaminationThread {
      readonly #threads = [busy];
      override start = () => this.#threads.pop() ?? super.start();
    }
    const thread = new Thread({ limitMs: 3_000 });
    const answer = await thread.run("team", slow(19_000));
    assert.ok(!answer.ok && "problem" in answer);
    assert.equal(answer.problem.kind, "limits");
    await ended;
    // A busy machine may take longer than the limit to load the code of the new thread.
    assert.ok((await thread.run("team", QUICK)).ok);
  });

  it("lets teams take turns", async () => {
    const thread = new ExaminationThread({ limitMs: 60_000 });
    const order: string[] = [];
    const run = async (team: string, task: ExaminationTask) => {
      assert.ok((await thread.run(team, task)).ok);
      order.push(team);
    };
    await Promise.all([
      ...Array.from({ length: 4 }, () => run("many", slow(8_000))),
      run("one", QUICK),
      run("other", QUICK),
    ]);
    assert.ok(order.indexOf("one") <= 2 && order.indexOf("other") <= 3, order.join());
  });

  it("takes no more contents of a team while too many of them wait, and those of other teams as before", async () => {
    const check = (teamId: string, chars: number) =>
      checkTemplates({ teamId, environment: "LIVE" }, { subject: "News", body: "x".repeat(chars) });
    // From then on the first content of a row is being read, and does not wait.
    await check("many", 1);
    const results = await Promise.allSettled([
      ...Array.from({ length: 40 }, () => check("many", 1_000_000)),
      check("other", 1_000),
    ]);
    const reasons = results.flatMap((result) => (result.status === "rejected" ? [result.reason.code] : []));
    assert.deepEqual(reasons, Array(6).fill("rate_limit_exceeded"));
    assert.equal(results.at(-1)?.status, "fulfilled");
    await check("many", 1_000_000);
  });
});
