import assert from "node:assert/strict";
import { consoleClient, refusalCodeOf, signIn } from "../support/console.ts";
import { makeMember, makeTeam } from "../support/factories.ts";

describe("A session of the console", () => {
  it("has the member's role in the team that a request names, and no team else", async () => {
    const own = await makeTeam();
    const other = await makeTeam();
    const editor = await makeMember(own.em, own.team.id, "EDITOR");
    const cookies = await signIn(editor.id);
    const client = await consoleClient(cookies, own.team.id);
    const { data } = await client.api.lists.create.mutate({ body: { name: "Readers" } });
    const page = await client.api.lists.page.query({ query: {} });
    assert.deepEqual(
      (page.data as { id: string }[]).map(({ id }) => id),
      [(data as { id: string }).id],
    );
    const foreign = await consoleClient(cookies, other.team.id);
    assert.equal(await refusalCodeOf(foreign.api.lists.page.query({ query: {} })), "api_key_invalid");
    const send = client.api.newsletters.sends.sendPreview.mutate(
      { params: { newsletterId: "nl_x" } },
      { context: { idempotencyKey: "k" } },
    );
    assert.equal(await refusalCodeOf(send), "role_insufficient");
  });
});
