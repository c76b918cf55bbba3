import assert from "node:assert/strict";
import { transaction } from "../../db/transaction.ts";
import { addMember } from "../../domain/teams/teams.ts";
import { api, codeOf } from "../support/api.ts";
import { clientAs, consoleClient, refusalCodeOf, signIn } from "../support/console.ts";
import { eventually } from "../support/eventually.ts";
import { makeMember, makeTeam, unique } from "../support/factories.ts";
import { caughtMails, readMail } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

describe("Members in the console", () => {
  it("are invited by an ADMIN with a mail, get another role, and leave with their keys", async () => {
    const own = await makeTeam();
    const admin = await makeMember(own.em, own.team.id, "ADMIN");
    const { members, invite, changeRole, removeMember } = (await consoleClient(await signIn(admin.id), own.team.id)).app
      .team;
    const audience = `${unique("members")}.example`;
    const person = { email: `Ada@${audience}`, name: "Ada", role: "ADMIN" as const };
    const { data } = await invite.mutate({ body: person });
    assert.equal(await refusalCodeOf(invite.mutate({ body: person })), "resource_already_exists");
    const mail = await eventually(async () => (await caughtMails({ audience }))[0], { what: "the invite" });
    assert.ok(mail);
    const { text = "" } = await readMail(mail.id);
    assert.ok(text.includes(`${(await stack()).origin}/console`) && text.includes(" as an admin."), text);

    const { key } = await own.mint({ memberId: data.id });
    const rows = (await members.query({})).data;
    assert.deepEqual(
      rows.map(({ id, role, is_you, working_keys }) => [id, role, is_you, working_keys]).sort(),
      [
        [own.owner.id, "OWNER", false, 3],
        [admin.id, "ADMIN", true, 0],
        [data.id, "ADMIN", false, 1],
      ].sort(),
    );
    await changeRole.mutate({ body: { member_id: data.id, role: "VIEWER" } });
    assert.equal(codeOf(await api(key).post("/lists", { name: "List" })), "role_insufficient");
    await removeMember.mutate({ body: { member_id: data.id } });
    assert.equal(codeOf(await api(key).get("/lists")), "role_insufficient");
    assert.equal((await members.query({})).data.length, 2);
    assert.equal(await refusalCodeOf(removeMember.mutate({ body: { member_id: data.id } })), "not_found");
  });

  it("become, change and stop being an OWNER by an OWNER alone; the last one stays", async () => {
    const { em, team, owner } = await makeTeam();
    const admin = await makeMember(em, team.id, "ADMIN");
    const { invite, changeRole, removeMember } = (await consoleClient(await signIn(admin.id), team.id)).app.team;
    const body = { email: "owner@example.com", name: "Owner", role: "OWNER" as const };
    const refused: Promise<unknown>[] = [
      invite.mutate({ body }),
      changeRole.mutate({ body: { member_id: admin.id, role: "OWNER" } }),
      changeRole.mutate({ body: { member_id: owner.id, role: "ADMIN" } }),
      removeMember.mutate({ body: { member_id: owner.id } }),
    ];
    for (const code of await Promise.all(refused.map(refusalCodeOf))) assert.equal(code, "role_insufficient");
    const byOwner = (await consoleClient(await signIn(owner.id), team.id)).app.team;
    const leave = () => refusalCodeOf(byOwner.removeMember.mutate({ body: { member_id: owner.id } }));
    assert.equal(await leave(), "resource_state_invalid");
    await byOwner.changeRole.mutate({ body: { member_id: admin.id, role: "OWNER" } });
    assert.equal(await leave(), "answered");
  });

  it("are at most 50 new ones a day", async () => {
    const { em, team, owner } = await makeTeam();
    await transaction(em, async (tx) => {
      for (let i = 0; i < 49; i++)
        await addMember(tx, team.id, { email: `m${i}@example.com`, name: "M", role: "VIEWER" });
    });
    const { invite } = (await consoleClient(await signIn(owner.id), team.id)).app.team;
    const body = { email: "more@example.com", name: "More", role: "VIEWER" as const };
    assert.equal(await refusalCodeOf(invite.mutate({ body })), "resource_limit_reached");
  });
});

describe("Keys in the console", () => {
  it("are minted for the ADMIN who asks, shown once, rotated with a grace, and revoked by any ADMIN", async () => {
    const { em, team, owner } = await makeTeam();
    const admin = await makeMember(em, team.id, "ADMIN");
    const client = await consoleClient(await signIn(admin.id), team.id, "TEST");
    const list = async (state: "working" | "ended") =>
      (await client.app.team.keys.query({ query: { state } })).data.keys;
    const body = { name: "Website", scopes: ["lists:read" as const], send_domains: [], daily_send_cap: 10 };
    const minted = (await client.app.team.mintKey.mutate({ body })).data;
    assert.match(minted.secret, /^mk_test_/);
    assert.equal(codeOf(await api(minted.secret).get("/lists")), "200");
    const [shown] = (await list("working")).filter(({ id }) => id === minted.id);
    assert.deepEqual(
      [shown?.member, shown?.is_yours, shown?.scopes, shown?.daily_send_cap, shown?.is_of_console],
      [{ name: "Member", has_left: false }, true, ["lists:read"], 10, false],
    );
    assert.ok(!JSON.stringify(await list("working")).includes(minted.secret));
    const limit = (mails: number) =>
      client.app.team.changeCap.mutate({ body: { key_id: minted.id, daily_send_cap: mails } });
    assert.equal((await limit(20)).data.daily_send_cap, 20);
    assert.equal(await refusalCodeOf(limit(-1)), "validation_failed");
    const rotated = (await client.app.team.rotateKey.mutate({ body: { key_id: minted.id, grace_hours: 1 } })).data;
    for (const key of [minted.secret, rotated.secret]) assert.equal(codeOf(await api(key).get("/lists")), "200");

    const byOwner = await consoleClient(await signIn(owner.id), team.id, "TEST");
    const rotation = byOwner.app.team.rotateKey.mutate({ body: { key_id: rotated.id, grace_hours: 0 } });
    assert.equal(await refusalCodeOf(rotation), "role_insufficient");
    await byOwner.app.team.revokeKey.mutate({ body: { key_id: rotated.id } });
    assert.equal(codeOf(await api(rotated.secret).get("/lists")), "api_key_revoked");
    assert.ok((await list("ended")).some(({ id, state }) => id === rotated.id && state === "revoked"));
    const live = await consoleClient(await signIn(owner.id), team.id, "LIVE");
    const there = live.app.team.revokeKey.mutate({ body: { key_id: minted.id } });
    assert.equal(await refusalCodeOf(there), "not_found", "the other environment's");
  });

  it("are refused with a forbidden pair, an unknown scope, or an end in the past", async () => {
    const { team, owner } = await makeTeam();
    const { mintKey } = (await consoleClient(await signIn(owner.id), team.id)).app.team;
    const mint = (fields: object) =>
      refusalCodeOf(mintKey.mutate({ body: { name: "Key", scopes: ["lists:read"], ...fields } }));
    assert.equal(await mint({ scopes: ["suppressions:delete", "newsletters:send"] }), "forbidden_scope_pair");
    assert.equal(await mint({ scopes: ["everything"] }), "validation_failed");
    assert.equal(await mint({ expires_at: "2020-01-01T00:00:00Z" }), "validation_failed");
  });
});

describe("A key for a list in the console", () => {
  it("is made by an ADMIN for a list of the environment, and shown with it", async () => {
    const { em, team, owner, keys } = await makeTeam();
    const list = (await api(keys.live).post("/lists", { name: "Readers" })).body.data.id;
    const ofTeam = async (memberId: string, environment: "LIVE" | "TEST") =>
      (await consoleClient(await signIn(memberId), team.id, environment)).app.team;
    const live = await ofTeam(owner.id, "LIVE");
    const body = { name: "Weekly", scopes: ["newsletters:write" as const], for_list_id: list };
    const { id, secret } = (await live.mintKey.mutate({ body })).data;
    const shown = (await live.keys.query({ query: { state: "working" } })).data.keys;
    assert.equal(shown.find((key) => key.id === id)?.for_list_id, list);
    assert.deepEqual((await api(secret).post("/newsletters", { name: "Issue" })).body.data.lists, [list]);
    const test = await ofTeam(owner.id, "TEST");
    assert.equal(await refusalCodeOf(test.mintKey.mutate({ body })), "not_found");
    const editor = await makeMember(em, team.id, "EDITOR");
    const byEditor = await ofTeam(editor.id, "LIVE");
    assert.equal(await refusalCodeOf(byEditor.mintKey.mutate({ body })), "role_insufficient");
  });
});

describe("Settings in the console", () => {
  it("are read by every member and changed by an ADMIN", async () => {
    const { team, owner } = await makeTeam();
    const { settings, changeSettings } = (await consoleClient(await signIn(owner.id), team.id)).app.team;
    await changeSettings.mutate({ body: { name: "News", time_zone: "Europe/Berlin", tracking: "AGREED" } });
    const shown = { name: "News", time_zone: "Europe/Berlin", tracking: "AGREED", plan: "BUSINESS" };
    const { updated_at: _, ...read } = (await settings.query({})).data;
    assert.deepEqual(read, shown);
    assert.equal(await refusalCodeOf(changeSettings.mutate({ body: { time_zone: "Berlin" } })), "validation_failed");
  });
});

describe("The brand in the console", () => {
  it("is read by every member and changed by an ADMIN, within its bounds", async () => {
    const own = await makeTeam();
    const [admin, viewer] = [await clientAs(own, "ADMIN"), await clientAs(own, "VIEWER")];
    const read = async () => (await viewer.app.team.brand.query({})).data;
    const { updated_at: _, ...before } = await read();
    const none = { logo_url: null, sender_name: null, sender_email: null, mail_footer: null, postal_address: null };
    const colors = { accent_color: "#0b57d0", background_color: "#ffffff" };
    assert.deepEqual(before, { language: "en", font: "sans", ...colors, ...none });
    const given = {
      ...{ language: "de" as const, font: "serif" as const, accent_color: "#123abc", background_color: "#fafafa" },
      ...{ logo_url: "https://example.com/logo.png", sender_name: "Ada", sender_email: "ada@example.com" },
      ...{ mail_footer: "Yours", postal_address: "1 High Street\nLondon" },
    };
    const change = (body: object) => refusalCodeOf(admin.app.team.changeBrand.mutate({ body }));
    assert.equal(await refusalCodeOf(viewer.app.team.changeBrand.mutate({ body: given })), "role_insufficient");
    assert.equal(await change(given), "answered");
    for (const body of [
      ...[{ language: "xx" }, { font: "comic" }, { accent_color: "red" }, { background_color: "#fff" }],
      ...["http://example.com/a.png", "https://", "https://a b", `https://example.com/${"x".repeat(2_000)}`].map(
        (logo_url) => ({ logo_url }),
      ),
      ...[
        { sender_name: "a\nb" },
        { sender_email: "ada" },
        { mail_footer: "x".repeat(1_001) },
        { postal_address: "—" },
      ],
    ]) {
      assert.equal(await change(body), "validation_failed", JSON.stringify(body));
    }
    const { updated_at: __, ...shown } = await read();
    assert.deepEqual(shown, given);
    assert.equal(await change(none), "answered");
    const { updated_at: ___, ...after } = await read();
    assert.deepEqual(after, { ...given, ...none });
  });
});
