import assert from "node:assert/strict";
import { ApiKey } from "../../db/entities/team.ts";
import { kysely } from "../../db/orm.ts";
import { type Cookies, consoleClient, refusalCodeOf, signIn } from "../support/console.ts";
import { makeMember, unique } from "../support/factories.ts";
import { addAccount, makeSender, type Sender } from "../support/sending.ts";

/** A member of the sender's team in a browser. */
async function openAs(sender: Sender, memberId: string) {
  const cookies: Cookies = await signIn(memberId);
  const client = await consoleClient(cookies, sender.team.id);
  const preview = () =>
    client.api.newsletters.sends.sendPreview.mutate(
      { params: { newsletterId: sender.newsletterId } },
      { context: { idempotencyKey: unique("key") } },
    );
  const keys = () =>
    sender.em.fork().find(ApiKey, { teamId: sender.team.id, memberId, forSessions: true }, { orderBy: { id: "asc" } });
  return { client, preview, keys };
}

describe("The key by which a member's sessions send", () => {
  it("is made once by the first previews of an ADMIN, for sending and drafts from the accounts' domains", async () => {
    const sender = await makeSender();
    const admin = await makeMember(sender.em, sender.team.id, "ADMIN");
    const { client, preview, keys } = await openAs(sender, admin.id);
    const previews = await Promise.all([preview(), preview(), preview()]);
    assert.deepEqual([...new Set(previews.map(({ status }) => status))], [200]);
    const [key, ...others] = await keys();
    assert.ok(key);
    assert.deepEqual([others.length, key.sendDomains, key.dailySendCap], [0, [sender.domain], 50_000]);
    assert.deepEqual(
      key.grantedScopes.filter((scope) => !/^(newsletters|campaigns):(read|write|send)$/.test(scope)),
      [],
    );
    const made = await kysely(sender.em.fork())
      .selectFrom("send_previews")
      .select("api_key_id")
      .where("team_id", "=", sender.team.id)
      .execute();
    assert.deepEqual([...new Set(made.map(({ api_key_id }) => api_key_id))], [key.id]);

    await addAccount(sender, { email: "news@second.example" });
    await preview();
    assert.deepEqual((await keys())[0]?.sendDomains, [sender.domain, "second.example"].sort());

    const listed = (await client.app.team.keys.query({ query: { state: "working" } })).data;
    const shown = listed.keys.find(({ id }) => id === key.id);
    assert.deepEqual([shown?.is_of_console, shown?.is_yours, listed.own_console_key], [true, true, "works"]);
    const rotation = client.app.team.rotateKey.mutate({ body: { key_id: key.id, grace_hours: 0 } });
    assert.equal(await refusalCodeOf(rotation), "resource_state_invalid");
  });

  it("once revoked refuses until it is renewed; the new one counts for the same daily cap", async () => {
    const sender = await makeSender();
    const { client, preview, keys } = await openAs(sender, sender.owner.id);
    await preview();
    const [first] = await keys();
    assert.ok(first);
    await client.app.team.revokeKey.mutate({ body: { key_id: first.id } });
    assert.equal((await client.app.team.keys.query({ query: { state: "ended" } })).data.own_console_key, "revoked");
    await assert.rejects(preview(), /renew it under Keys/);
    await openAs(sender, sender.owner.id).then((again) => assert.rejects(again.preview(), /renew it under Keys/));
    await client.app.team.renewConsoleKey.mutate({});
    await preview();
    const [, second, ...more] = await keys();
    assert.deepEqual([second?.lineageId, more.length], [first.lineageId, 0]);
  });

  it("is refused to an EDITOR, and to an ADMIN who became one", async () => {
    const sender = await makeSender();
    const admin = await makeMember(sender.em, sender.team.id, "ADMIN");
    const { preview, keys } = await openAs(sender, admin.id);
    await preview();
    await kysely(sender.em.fork()).updateTable("members").set({ role: "EDITOR" }).where("id", "=", admin.id).execute();
    assert.equal(await refusalCodeOf(preview()), "role_insufficient");
    const editor = await openAs(sender, (await makeMember(sender.em, sender.team.id, "EDITOR")).id);
    assert.equal(await refusalCodeOf(editor.preview()), "role_insufficient");
    assert.deepEqual([(await keys()).length, (await editor.keys()).length], [1, 0]);
  });
});
