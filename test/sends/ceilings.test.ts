import assert from "node:assert/strict";
import { appRouter } from "../../api/router.ts";
import { api } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { whileInsertsAreHeld } from "../support/held-inserts.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  anotherNewsletter,
  confirm,
  credits,
  freshKey,
  ledgerStates,
  makeSender,
  preview,
  type Sender,
  tokenOf,
  untilStatus,
} from "../support/sending.ts";

describe("A plan that takes longer than the API waits", () => {
  const workflows = useSendWorkflows();
  let impatient: TestApp;

  before(async () => {
    impatient = await serveRoutes(appRouter, { changes: { PREVIEW_WAIT_MS: 500, CONFIRM_WAIT_MS: 500 } });
  });
  after(() => impatient.close());

  const through = (sender: Sender): Sender => ({ ...sender, client: api(sender.keys.live, impatient.base) });
  /** Waits until an activity of one send of the team looks for a place again, which that of another has. */
  const untilOneHasNoPlace = ({ team }: Sender) =>
    eventually(
      async () => {
        let without = 0;
        for await (const { workflowId } of workflows.client.workflow.list({ query: `TeamId = '${team.id}'` })) {
          const { raw } = await workflows.client.workflow.getHandle(workflowId).describe();
          if (raw.pendingActivities?.some(({ lastFailure }) => lastFailure?.message === "no_place")) without++;
        }
        return without === 1;
      },
      { what: "an activity in the place, and one without" },
    );
  const code = ({ body }: Awaited<ReturnType<typeof confirm>>) => body?.error?.code;

  it("arms the send once, and its key answers request_in_flight until then", async () => {
    const sender = await makeSender({ recipients: 3, credits: 10 });
    const token = await tokenOf(sender);
    const key = freshKey();
    await whileInsertsAreHeld("send_recipients", `new.email = 'person0@${sender.audience}'`, async (held) => {
      const late = await confirm(through(sender), token, key);
      assert.equal(late.status, 503, late.text);
      assert.ok(Number(late.headers.get("retry-after")) > 0);
      assert.match(late.body.error.message, /same Idempotency-Key/);
      await eventually(async () => (await held.begun()) === 1, { what: "the copy of the recipients" });

      for (const again of [sender, through(sender)]) {
        const answer = await confirm(again, token, key);
        assert.deepEqual([answer.status, code(answer)], [409, "request_in_flight"], answer.text);
      }

      await held.release();
      const armed = await eventually(
        async () => {
          const answer = await confirm(sender, token, key);
          return code(answer) === "request_in_flight" ? undefined : answer;
        },
        { what: "the answer" },
      );
      assert.equal(armed?.status, 202, armed?.text);
      assert.equal(armed?.headers.get("idempotent-replayed"), "true");
      assert.equal(await held.begun(), 1, "the transaction was not repeated");
    });
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { SENT: 3 });
    assert.deepEqual(await credits(sender), { available: 7, reserved: 0, mismatch: false });
  });

  it("is previewed once by an activity, and then armed, one of a team at a time, and a retry under its key finds the preview", async () => {
    const sender = await makeSender({ recipients: 3 });
    const other = await anotherNewsletter(sender);
    const [key, otherKey] = [freshKey(), freshKey()];
    let tokens: string[] = [];
    await whileInsertsAreHeld("send_previews", `new.team_id = '${sender.team.id}'`, async (held) => {
      const late = await Promise.all([preview(through(sender), key), preview(through(other), otherKey)]);
      assert.deepEqual(
        late.map(({ status }) => status),
        [503, 503],
      );
      // Both have left the tasks of their workflows.
      await untilOneHasNoPlace(sender);
      await eventually(async () => (await held.begun()) >= 3, { what: "the insert of the activity" });
      const begun = await held.begun();
      const again = await preview(through(sender), key);
      assert.equal(again.status, 503, again.text);
      await held.release();
      const made = await eventually(
        async () => {
          const answer = await preview(sender, key);
          return answer.status === 200 ? answer : undefined;
        },
        { what: "the preview" },
      );
      const madeOther = await eventually(
        async () => {
          const answer = await preview(other, otherKey);
          return answer.status === 200 ? answer : undefined;
        },
        { what: "the other preview" },
      );
      assert.ok((await held.begun()) <= begun + 1, "the activity of each was run once");
      tokens = [made, madeOther].map((answer) => answer?.body.data.confirmation.token);
    });

    const ids = tokens.map((token) => token.split(".")[0] ?? "");
    await whileInsertsAreHeld("send_recipients", `new.send_id in ('${ids.join("', '")}')`, async (held) => {
      const answers = [sender, other].map((each, i) => confirm(each, tokens[i] ?? ""));
      await untilOneHasNoPlace(sender);
      await eventually(async () => (await held.begun()) > 0, { what: "the confirm in the place" });
      assert.equal(await held.begun(), 1);
      await held.release();
      await Promise.all(answers);
    });
    for (const each of [sender, other]) await untilStatus(each, ["SENT"]);
  });
});
