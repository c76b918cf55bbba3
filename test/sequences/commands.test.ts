import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Json } from "../support/api.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { makeSender, type Sender } from "../support/sending.ts";
import { enrolmentsOf, step } from "../support/sequences.ts";
import { emitted, listen } from "../webhooks/outbox.ts";

describe("the commands of a sequence", () => {
  let sender: Sender;
  let folder: string;
  before(async () => {
    sender = await makeSender({ recipients: 1 });
    folder = await mkdtemp(join(tmpdir(), "mailkeel-steps-"));
  });
  after(() => rm(folder, { recursive: true }));

  const sequence = async (...args: string[]): Promise<Json> => {
    const { code, json, stderr } = await app(...args, "--json");
    assert.equal(code, 0, stderr);
    return json.sequence;
  };
  const stepsFile = async (steps: unknown) => {
    const file = join(folder, "steps.json");
    await writeFile(file, JSON.stringify(steps));
    return file;
  };
  const make = async () => {
    const target = ["--list", sender.listId, "--from", sender.fromEmail, "--team", sender.team.id];
    const { id } = await sequence("sequence:create", "Welcome", ...target);
    await sequence("sequence:steps", id, "--file", await stepsFile([step("a"), step("b")]));
    return id;
  };

  it("make it, run it and show it, and the API reads it", async () => {
    const id = await make();
    const { client } = sender;
    const read = async () => (await client.get(`/campaigns/${id}`)).body.data;
    const draft = await read();
    assert.deepEqual([draft.is_drip, draft.status, draft.recipients], [true, "DRAFT", null]);
    await listen(sender);
    const since = emitted(sender);
    const key = ["--key", sender.liveKey.record.id];
    assert.equal((await sequence("sequence:start", id, ...key, "--include-members")).status, "ACTIVE");
    const person = (await client.post("/subscribers", { email: `late@${sender.audience}` })).body.data;
    await client.post(`/lists/${sender.listId}/subscribers`, { subscriber_ids: [person.id] });
    const entered = (await since()).filter(({ object }) => object.subscriber_id === person.id && object.campaign_id);
    const expected = { object: "sequence_enrolment", campaign_id: id, subscriber_id: person.id, contact_id: null };
    const { entered_at, ...record } = entered[0]?.object ?? {};
    assert.deepEqual([entered.length, entered[0]?.type], [1, "sequence.entered"]);
    assert.deepEqual(record, { ...expected, email: person.email, state: "ACTIVE", reason: null });
    assert.ok(entered_at);

    // The member of the start is noted by the workflow.
    await eventually(async () => (await sequence("sequence:show", id)).people.ACTIVE === 2, { what: "both people" });
    const paused = await sequence("sequence:pause", id);
    assert.deepEqual([paused.status, paused.status_reason], ["PAUSED", null]);
    const resumed = await sequence("sequence:resume", id);
    assert.deepEqual([resumed.status, resumed.due, resumed.spread], ["ACTIVE", 0, 0]);
    const shown = await sequence("sequence:show", id);
    const { json: list } = await app("sequence:list", "--status", "ACTIVE", "--team", sender.team.id, "--json");
    const { status: state, waiting } = list.sequences.find((each: Json) => each.id === id);
    assert.deepEqual([state, waiting], ["ACTIVE", shown.people.ACTIVE]);
    assert.deepEqual([shown.status, shown.mailed_today], ["ACTIVE", 0]);
    const { drip_steps: steps, status } = await read();
    assert.equal(status, "ACTIVE");
    assert.partialDeepStrictEqual(shown.steps, steps);
    const counts = { sent: 0, opened: 0, clicked: 0, left: 0 };
    const times = { wait_minutes: 1_440, time_of_day: null, send_days: [] };
    assert.deepEqual(steps.at(-1), { id: "b", ...times, subject: "Hello from b", waiting: 0, ...counts });
    assert.ok(steps[0].waiting >= 1);
    assert.equal((await client.get("/campaigns", { query: { status: "ACTIVE" } })).body.data[0].id, id);
    assert.equal((await sequence("sequence:stop", id)).status, "STOPPED");
    const ended = new Set((await enrolmentsOf(sender.em, id)).map(({ state, reason }) => `${state}: ${reason}`));
    assert.deepEqual([...ended], ["LEFT: stopped"]);
  });

  it("are the only way to change it: the API refuses every write", async () => {
    const id = await make();
    const { client } = sender;
    const path = `/campaigns/${id}`;
    const refusals = [
      await client.patch(path, { name: "Other" }),
      await client.delete(path),
      await client.post(`${path}/send-preview`, undefined, { headers: { "idempotency-key": id } }),
      ...(await Promise.all(["pause", "resume", "cancel"].map((command) => client.post(`${path}/${command}`)))),
    ];
    for (const answer of refusals) {
      assert.deepEqual([answer.status, answer.body.error?.code], [409, "resource_state_invalid"], answer.text);
      assert.match(answer.body.error.message, /in the app/);
    }
  });

  it("refuse a file that is no JSON, and name the kind of record that does not exist", async () => {
    const id = await make();
    const refusal = async (...args: string[]) => (await app(...args)).stderr;
    assert.match(await refusal("sequence:steps", id, "--file", folder), /It is a folder/);
    const wrong = await stepsFile([step("a", { wait_minutes: "1" })]);
    assert.match(
      await refusal("sequence:steps", id, "--file", wrong),
      /^(.*: )?steps\[0\]\.wait_minutes: expected [^(]*$/m,
    );
    const target = ["--from", sender.fromEmail, "--team", sender.team.id];
    assert.match(
      await refusal("sequence:create", "A", "--list", "lst_none", ...target),
      /The team has no list lst_none/,
    );
    assert.match(await refusal("sequence:pause", "cmp_none"), /No sequence has this id/);
    assert.match(await refusal("sequence:start", id, "--key", "key_none"), /No key has this id/);
    await writeFile(wrong, "{");
    assert.match(await refusal("sequence:steps", id, "--file", wrong), /not valid JSON/);
    await sequence("sequence:delete", id);
    assert.match(await refusal("sequence:show", id), /There is no campaign/);
  });
});
