import assert from "node:assert/strict";
import { transaction } from "../../db/transaction.ts";
import { rotateKey } from "../../domain/access/keys.ts";
import { deleteList } from "../../domain/audience/lists.ts";
import { ApiError } from "../../domain/errors.ts";
import { api, type Json } from "../support/api.ts";
import { makeTeam } from "../support/factories.ts";
import { makeSender, preview, type Sender, untilBlocked } from "../support/sending.ts";

describe("A key that is made for a list", () => {
  const draft = async ({ fromEmail }: Sender, key: string): Promise<Json> => {
    const fields = { name: "Issue", subject: "Hello", from_email: fromEmail, body: "<p>Hello</p>" };
    const { status, body, text } = await api(key).post("/newsletters", fields);
    assert.equal(status, 201, text);
    return body.data;
  };
  const keyFor = (sender: Sender, listId = sender.listId) => sender.mint({ forListId: listId });
  const deleted = (sender: Sender) =>
    transaction(sender.em, (em) => deleteList(em, { teamId: sender.team.id, environment: "LIVE" }, sender.listId));

  it("has that list attached to each newsletter that it makes; the preview shows the list and counts its people", async () => {
    const sender = await makeSender({ recipients: 2 });
    const { key } = await keyFor(sender);
    for (let i = 0; i < 2; i++) {
      const { id, status, lists } = await draft(sender, key);
      assert.deepEqual([status, lists], ["DRAFT", [sender.listId]]);
      const { body } = await preview({ client: api(key), newsletterId: id });
      assert.deepEqual([body.data?.lists, body.data?.recipients.eligible], [[sender.listId], 2], JSON.stringify(body));
    }
    const dry = await api(key).post("/newsletters", { name: "Dry" }, { query: { dry_run: true } });
    assert.deepEqual([dry.status, dry.body.meta.impact.would_create], [200, 1]);
  });

  it("changes no newsletter of another key", async () => {
    const sender = await makeSender();
    await keyFor(sender);
    assert.deepEqual((await draft(sender, sender.keys.live)).lists, []);
  });

  it("keeps the list when it is rotated, and attaches none once the list is deleted", async () => {
    const sender = await makeSender({ detached: true });
    const first = await keyFor(sender);
    const rotate = (key: string) => rotateKey(sender.em, sender.vault, { teamId: sender.team.id, key }, 100);
    const second = await rotate(first.record.id);
    assert.deepEqual((await draft(sender, second.key)).lists, [sender.listId]);
    await deleted(sender);
    assert.deepEqual((await draft(sender, second.key)).lists, []);
    const third = await rotate(second.record.id);
    assert.deepEqual([third.record.forListId, (await draft(sender, third.key)).lists], [sender.listId, []]);
  });

  it("waits for a deletion of the list that is under way, and then attaches none", async () => {
    const sender = await makeSender({ detached: true });
    const { key } = await keyFor(sender);
    let made: Promise<Json> | undefined;
    await transaction(sender.em, async (em) => {
      await deleteList(em, { teamId: sender.team.id, environment: "LIVE" }, sender.listId);
      made = draft(sender, key);
      await untilBlocked(sender, "%insert into newsletter_lists%");
    });
    assert.deepEqual((await made)?.lists, []);
  });

  it("is refused for a list of another team, of the other environment, or none", async () => {
    const [sender, other] = [await makeSender(), await makeTeam()];
    const isUnknown = (error: unknown) =>
      error instanceof ApiError && error.code === "not_found" && error.param === "for_list_id";
    const theirs = (await api(other.keys.live).post("/lists", { name: "Theirs" })).body.data.id;
    for (const grant of [
      { forListId: theirs },
      { forListId: sender.listId, environment: "TEST" as const },
      { forListId: "list_none" },
      // A script whose variable is empty.
      { forListId: "" },
    ])
      await assert.rejects(sender.mint(grant), isUnknown);
    const useless = sender.mint({ forListId: sender.listId, scopes: ["lists:read"] });
    await assert.rejects(useless, /needs the scope newsletters:write/);
  });
});
