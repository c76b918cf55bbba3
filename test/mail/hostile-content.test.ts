import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { kysely } from "../../db/orm.ts";
import { type ApiAnswer, type ApiClient, api } from "../support/api.ts";
import { makeTeam } from "../support/factories.ts";
import {
  addSubscribers,
  ledgerStates,
  makeSender,
  preview,
  type Sender,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const file = (name: string) => readFileSync(new URL(`../data/newsletters/${name}`, import.meta.url), "utf8");

/** Longer than a request may be delayed by anything, shorter than each of the defects that are looked for. */
const PATIENCE_MS = 4_000;

/** Runs `work`, and asks the API something else all the time. @returns the longest wait for such an answer, in ms */
async function longestWait<T>(work: () => Promise<T>): Promise<{ result: T; waitedMs: number }> {
  const url = new URL("/healthz", (await stack()).origin);
  let waitedMs = 0;
  let isDone = false;
  const ask = async () => {
    while (!isDone) {
      const since = performance.now();
      assert.equal((await fetch(url)).status, 200);
      waitedMs = Math.max(waitedMs, performance.now() - since);
    }
  };
  const [result] = await Promise.all([
    work().finally(() => {
      isDone = true;
    }),
    ask(),
  ]);
  return { result, waitedMs };
}

const create = (client: ApiClient, body: string, subject = "News"): Promise<ApiAnswer> =>
  client.post("/newsletters", { name: "n", subject, body });

describe("The API, while a template is read", () => {
  let client: ApiClient;
  before(async () => {
    client = api((await makeTeam()).keys.live);
  });

  const text = "<p>Some words of a newsletter.</p>\n".repeat(27_000);

  it("refuses more than 2,000 tags at once", async () => {
    for (const body of [
      "{{ email | upcase }}".repeat(50_000),
      "{% if email %}{% endif %}".repeat(1_001),
      "{".repeat(80_000),
      `{% liquid\n${"echo email\n".repeat(2_001)}%}`,
    ]) {
      const since = performance.now();
      const answer = await create(client, body);
      assert.equal(answer.status, 400, answer.text);
      assert.equal(answer.body.error.param, "body");
      assert.match(answer.body.error.message, /more than 2000 tags/);
      assert.ok(performance.now() - since < PATIENCE_MS);
    }
  });

  it("takes 2,000 tags", async () => {
    assert.equal((await create(client, "{{ email | upcase }}".repeat(2_000))).status, 201);
  });

  const CONTENTS: Record<string, string> = {
    "2,000 tags behind a long text": text + "{{ email | upcase }}".repeat(2_000),
    "conditions of thousands of words": `${text}{% if ${"email or ".repeat(10_000)}email %}x{% endif %}`,
    "names of thousands of names": `${text}{{ email${".first".repeat(10_000)} }}`,
    "lists that are compared with lists": `{% assign a = '${"a,".repeat(1_600)}' | split: ',' %}{% assign b = '${"a,".repeat(1_600)}' | split: ',' %}{% case a %}{% when ${"b,".repeat(20_000)}b %}{% endcase %}`,
    "texts that are searched for texts": `{% assign a = '${"a".repeat(4_999)}' %}{% assign b = '${"a".repeat(2_500)}b' %}${"{{ a | replace: b, 'x' }}".repeat(1_900)}`,
    "a list that holds itself": `{% assign a = 'x,y' | split: ',' %}${"{% assign a = a | push: a %}".repeat(100)}{{ a }}`,
  };
  for (const [what, body] of Object.entries(CONTENTS)) {
    it(`serves others meanwhile: ${what}`, async () => {
      const { result, waitedMs } = await longestWait(() =>
        Promise.all(Array.from({ length: 4 }, () => create(client, body))),
      );
      for (const answer of result) assert.ok([201, 400].includes(answer.status), answer.text);
      assert.ok(waitedMs < PATIENCE_MS, `others waited ${waitedMs} ms`);
    });
  }

  it("names line and column of an error, and quotes nothing of the template", async () => {
    for (const [body, message] of [
      ["<p>\n  {{ secretword </p>", /line 2, column 3: this tag is not closed/],
      ["{% secretword %}", /line 1, column 1: there is no such tag/],
      ["ab{{ email | secretword }}", /line 1, column 3: there is no such filter/],
      ["{% if email %}\nsecretword", /line 1, column 1: this tag is not closed/],
      ["{{ 'secretword }}", /line 1, column 1: this tag is not closed/],
      ["{{ | secretword }}", /line 1, column \d+: this cannot be read/],
    ] as const) {
      const { status, body: answer, text: raw } = await create(client, body);
      assert.equal(status, 400, body);
      assert.match(answer.error.message, message, body);
      assert.doesNotMatch(raw, /secretword/);
    }
  });
});

describe("A preview", () => {
  let sender: Sender;
  before(async () => {
    sender = await makeSender();
  });

  const previewOf = async (body: string): Promise<ApiAnswer> => {
    const changed = await sender.client.patch(`/newsletters/${sender.newsletterId}`, { body });
    assert.equal(changed.status, 200, changed.text);
    return preview(sender);
  };
  const refused = (answer: ApiAnswer, message: RegExp) => {
    assert.equal(answer.status, 409, answer.text);
    assert.equal(answer.body.error.code, "campaign_not_ready");
    assert.match(answer.body.error.message, message);
  };

  const BODIES: Record<string, [string, RegExp]> = {
    "elements inside each other by the thousand": ["<b>".repeat(100_000), /nested more than 200 deep/],
    "elements that never end, and ends without a beginning": [
      "<i>".repeat(100_000) + "</b>".repeat(100_000),
      /nested more than 200 deep/,
    ],
    "a hundred thousand elements": ["<b>x</b>".repeat(100_000), /more than 20000 elements/],
    "lists inside each other around many lines": [
      `${"<ul><li>".repeat(90)}<pre>${"x\n".repeat(480_000)}</pre>`,
      /lists, quotations and links hold too much text inside each other/,
    ],
  };
  for (const [what, [body, message]] of Object.entries(BODIES)) {
    it(`refuses ${what}, and serves others meanwhile`, async () => {
      const { result, waitedMs } = await longestWait(() => previewOf(body));
      refused(result, message);
      assert.ok(waitedMs < PATIENCE_MS, `others waited ${waitedMs} ms`);
    });
  }

  it("composes a text of 80,000 braces, and serves others meanwhile", async () => {
    for (const body of ["{ ".repeat(80_000), `{{ email | upcase }}${"&#123;&#123; ".repeat(70_000)}`]) {
      const { result, waitedMs } = await longestWait(() => previewOf(`<p>${body}</p>`));
      assert.equal(result.status, 200, result.text);
      assert.ok(waitedMs < PATIENCE_MS, `others waited ${waitedMs} ms`);
    }
  });

  it("takes real newsletters", async () => {
    const known = file("welcome-merge-tags.html").replace(/\{\{[^}]*\}\}/g, "{{ email }}");
    for (const body of [file("responsive-plain.html"), known, known.replace("{{ email }}", "{{ email | upcase }}")]) {
      assert.equal((await previewOf(body)).status, 200);
    }
  });
});

describe("A recipient whose message is too large", () => {
  const body = `<p>${"{{ first_name }}".repeat(1_990)}</p>`;
  const large = "é".repeat(200);
  const people = (names: readonly string[], audience: string) =>
    names.map((firstName, i) => ({ email: `p${i}@${audience}`, firstName }));

  it("is rejected as unsendable, and the others get their mail", async () => {
    const sender = await makeSender({ recipients: 0, body });
    await addSubscribers(sender, sender.listId, people(["Ann", large, "Bob", large, "Cid"], sender.audience));
    const { data } = await startSend(sender);
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { SENT: 3, REJECTED: 2 });
    const rejected = await kysely(sender.em)
      .selectFrom("send_recipients")
      .where("send_id", "=", data.id)
      .where("state", "=", "REJECTED")
      .select("reason")
      .execute();
    assert.deepEqual(rejected, [{ reason: "unsendable" }, { reason: "unsendable" }]);
  });

  it("pauses the send when there are twenty in a row", async () => {
    const sender = await makeSender({ recipients: 0, body });
    await addSubscribers(sender, sender.listId, people(Array(400).fill(large), sender.audience));
    const { data } = await startSend(sender);
    await untilStatus(sender, ["PAUSED"]);
    const { pause_reason } = await kysely(sender.em)
      .selectFrom("sends")
      .select("pause_reason")
      .where("id", "=", data.id)
      .executeTakeFirstOrThrow();
    assert.equal(pause_reason, "policy_refusals");
    const { REJECTED = 0, QUEUED = 0, ...others } = await ledgerStates(sender);
    assert.deepEqual(others, {});
    // Those that were being composed when the twentieth was refused are refused too.
    assert.ok(REJECTED >= 20 && REJECTED <= 200, `${REJECTED} were refused`);
    assert.equal(REJECTED + QUEUED, 400);
  });
});
