import assert from "node:assert/strict";
import { actOf } from "../../api/rest/audit.ts";
import { wordsOf } from "../../console/parts/audit-words.ts";
import { transaction } from "../../db/transaction.ts";
import type { Caller } from "../../domain/access/access.ts";
import { type AuditFilter, readEntries } from "../../domain/audit/read.ts";
import { actorOf, OPERATOR, recordAct } from "../../domain/audit/record.ts";
import { newId } from "../../domain/ids.ts";
import { callRoute, ENDPOINTS, type Estate, keyFor, makeEstate, nameOf } from "../every-endpoint/endpoints.ts";
import { api } from "../support/api.ts";
import { run } from "../support/command.ts";
import { clientAs, clientNamed, consoleClient, signIn } from "../support/console.ts";
import { makeTeam, type TestTeam, tenantOf, unique, uniqueEmail } from "../support/factories.ts";
import { tryUpload } from "../support/images.ts";
import { SAMPLES as IMAGES } from "../support/pictures.ts";
import { PUBLIC_URL, QUIET_EVENT } from "../support/webhooks.ts";
import { call, HARMLESS, type Ids, makeIds, PROCEDURES, SAMPLES } from "./procedures.ts";

const entriesOf = ({ em, team }: Pick<TestTeam, "em" | "team">, filter: AuditFilter = {}) =>
  readEntries(em.fork(), tenantOf({ team }), filter, { after: "", limit: 1_000 });

/** Mutations that end records come last, so that all others find these. */
const isEnd = (name: string) => /DELETE|remove|delete|disconnect|revoke|rotateKey/.test(name);
const inOrder = <T>(all: readonly T[], nameOf: (one: T) => string): T[] => [
  ...all.filter((one) => !isEnd(nameOf(one))),
  ...all.filter((one) => isEnd(nameOf(one))).sort((a, b) => nameOf(b).length - nameOf(a).length),
];

/** Its effect is a workflow's: of a preview there is none, and a confirm writes the entry (test/sends/confirm.test.ts). */
const BY_WORKFLOWS = ["previewNewsletterSend", "sendNewsletter", "previewCampaignSend", "sendCampaign"];
/** They change nothing of the team. */
const NOT_RECORDED = [...HARMLESS, "imports.check", "imports.part"];
/** The first of a day stands for all, as it does for writes of people by a key. */
const DAILY = ["content.saveBlocks", "imports.undo", "sequences.saveStep", "updateCampaign", "updateNewsletter"];

/** Inputs of procedures without an id, and of those whose sample is refused. */
const INPUTS: Record<string, (ids: Ids) => object> = {
  "sequences.saveStep": ({ sequence }) => ({
    params: { sequenceId: sequence },
    body: { step_id: "a", step: { wait_minutes: 0, subject: "Hi", body: "<p>Hi</p>" } },
  }),
  "imports.part": (ids) => ({ params: { importId: ids.import }, body: { n: 0, base64: btoa("email\nada@") } }),
  "audience.createSegment": () => ({ body: { name: "S", conditions: { field: "email", op: "exists", value: true } } }),
  "audience.countSegment": () => ({ body: { conditions: { field: "email", op: "exists", value: true } } }),
  "audience.createField": () => ({ body: { name: "town", type: "text" } }),
  "audience.deleteField": () => ({ body: { name: "town" } }),
  "audience.noteConsent": () => ({ body: { email: uniqueEmail(), tracking_consent: { status: "granted" } } }),
  "people.exportPerson": () => ({ body: { email: uniqueEmail() } }),
  "people.erasePerson": () => ({ body: { email: "ada@example.com", typed: " Ada@Example.com" } }),
  "imports.begin": () => ({ body: { name: "people.csv", size: 1 } }),
  "accounts.domains.addKey": () => ({ body: { domain: `${unique("other")}.example`, is_first: true } }),
  "accounts.providers.add": () => ({ body: { provider: "POSTMARK" } }),
  "team.invite": () => ({ body: { name: "Ada", email: uniqueEmail(), role: "VIEWER" } }),
  "team.renewConsoleKey": () => ({}),
  "team.changeSettings": () => ({ body: { name: "Other" } }),
  "team.changeBrand": () => ({ body: { font: "serif" } }),
};
/** Refused with these samples: for servers and states that a walk does not have. Each shares its step with those that are answered. */
const REFUSED = [
  ...["accounts.connect", "accounts.resume", "accounts.setCredentials", "accounts.domains.activate"],
  ...[
    "accounts.domains.check",
    "accounts.webhooks.retry",
    "content.publish",
    "content.editCopy",
    "content.reschedule",
    "content.sendTest",
  ],
  ...["sequences.create", "imports.check", "imports.run", "imports.undo", "accounts.disconnect"],
];

describe("The audit log", () => {
  it("says each act in words", () => {
    const said = [...ENDPOINTS, ...PROCEDURES.filter(({ isQuery }) => !isQuery)]
      .filter(({ meta }) => meta.kind === "write")
      .map(({ meta }) => wordsOf(actOf(meta)));
    assert.equal(new Set(said).size, said.length, "two acts in the same words");
    for (const words of said) assert.match(words, /^([a-z]+ed|sent|ran|undid)\b.* [a-z]+$|^[a-z]+ed$/);
    for (const [act, kind, words] of [
      ["deleteNewsletter", "newsletter", "deleted the newsletter"],
      ["content.attachList", "newsletter", "attached a list to the newsletter"],
      ["content.attachList", "", "attached a list"],
      ["rotateWebhookSecret", "webhook", "rotated the secret of the webhook"],
      ["imports.undo", "", "undid an import"],
      ["imports.export.list", "list", "exported people as CSV from the list"],
      ["imports.export.contacts", "", "exported all contacts as CSV"],
      ["people.file", "personal data", "downloaded the personal data"],
      ["team:tracking", "team", "ran the command team:tracking for the team"],
    ] as const)
      assert.equal(wordsOf(act, kind), words);
  });

  it("names for each mutation what it writes", () => {
    const mutations = [
      ...ENDPOINTS.filter(({ type }) => type === "mutation").map(({ meta }) => meta),
      ...PROCEDURES.filter(({ isQuery }) => !isQuery).map(({ meta }) => meta),
    ];
    const acts = mutations.map(actOf);
    assert.deepEqual(
      acts.filter((act, at) => acts.indexOf(act) !== at),
      [],
      "two acts with one word",
    );
    const those = (isIt: (meta: (typeof mutations)[number]) => boolean) => mutations.filter(isIt).map(actOf).sort();
    assert.deepEqual(
      those(({ kind }) => kind === "workflow"),
      BY_WORKFLOWS.toSorted(),
    );
    assert.deepEqual(
      those(({ audit, role }) => audit === "none" || role === "VIEWER"),
      NOT_RECORDED.toSorted(),
    );
    assert.deepEqual(
      those(({ audit }) => audit === "daily"),
      DAILY.toSorted(),
    );
  });

  describe("by a key, of each route", () => {
    let estate: Estate;
    before(async () => {
      estate = await makeEstate();
    });
    const writes = ENDPOINTS.filter(({ type, meta }) => type === "mutation" && meta.kind === "write");

    for (const endpoint of inOrder(writes, nameOf)) {
      const act = actOf(endpoint.meta);
      it(`${act} has one entry once it has changed something, and none on a dry run or when refused`, async () => {
        const [key, query] = [keyFor(estate, endpoint), { dry_run: "true" }];
        const count = async () => (await entriesOf(estate)).filter((entry) => entry.act === act).length;
        const before = await count();
        const { values, newcomerId: subscriberId } = estate;
        // Another one has opted out, and stays as the record of it.
        const place = act === "removeListSubscriber" ? { ...values, subscriberId } : values;
        const give = (more = {}) => callRoute(endpoint, key, place, { subscriberId, ...more });
        const { impact = {} } = endpoint.meta.dryRun ? ((await give({ query })).body.meta ?? {}) : {};
        assert.equal(await count(), before);
        const answer = await give();
        // Those of the making of the estate stand for the day.
        const isThere = before > 0 && /\/(subscribers|contacts|suppressions)\b/.test(endpoint.meta.path);
        const isRefused = answer.status >= 400;
        if (isRefused) assert.match(act, /^(pause|resume|cancel)/, answer.text);
        assert.equal(
          await count(),
          before + (isRefused || isThere || impact.affected_count === 0 ? 0 : 1),
          answer.text,
        );
      });
    }

    it("names the key, the request, the record and how many it touched, and no text", async () => {
      const [entry] = await entriesOf(estate, { way: "API_KEY", kind: "list" });
      assert.ok(entry);
      assert.deepEqual([entry.credential, entry.by, entry.act], [estate.liveKey.record.id, "test", "deleteList"]);
      assert.match(entry.request_id ?? "", /^req_/);
      assert.deepEqual([entry.object_id, entry.object_name], [estate.values["listId"], "Changed"]);
      assert.ok((entry.count ?? 0) >= 1);
    });
  });

  describe("in the console, of each procedure", () => {
    let own: Awaited<ReturnType<typeof makeIds>>;
    before(async () => {
      own = await makeIds();
    });
    const writes = PROCEDURES.filter(({ isQuery }) => !isQuery);

    for (const procedure of inOrder(writes, ({ name }) => name)) {
      const { name, meta } = procedure;
      it(`${name} has one entry if it was carried out`, async () => {
        const find = async () => (await entriesOf(own)).filter(({ act }) => act === name);
        const before = meta.audit === "daily" ? 0 : (await find()).length;
        const sample = (INPUTS[name] ?? SAMPLES[name])?.(own.ids) ?? {};
        const { code, ...answer } = await call(procedure, sample, own.team.id, own.cookies);
        if (code !== "answered") assert.ok(REFUSED.includes(name), `${code} ${JSON.stringify(answer)}`);
        const entries = (await find()).slice(0, (await find()).length - before);
        const isRecorded = code === "answered" && !NOT_RECORDED.includes(name);
        assert.equal(entries.length, isRecorded || (meta.audit === "daily" && !REFUSED.includes(name)) ? 1 : 0);
        for (const { way, by, object_id: id } of entries) {
          assert.deepEqual([way, by], ["CONSOLE", "Member"]);
          assert.ok(id !== null || /Field|noteConsent/.test(name), "an object");
        }
      });
    }

    it("images.upload has one, and none for an image that is there", async () => {
      const uploads = async () => (await entriesOf(own, { kind: "img" })).filter(({ act }) => act === "images.upload");
      const before = (await uploads()).length;
      for (let i = 0; i < 2; i++) await tryUpload(own.cookies, own.team.id, IMAGES.jpg);
      assert.equal((await uploads()).length, before + 1);
    });
  });

  it("has one entry a day for what a key writes of people, and one for each such act of a member", async () => {
    const own = await makeTeam();
    const { keys, mint } = own;
    const create = (key: string) => api(key).post("/subscribers", { email: uniqueEmail() });
    const { key } = await mint();
    await Promise.all([...Array.from({ length: 8 }, () => create(keys.live)), create(key)]);
    assert.deepEqual(
      (await entriesOf(own)).map(({ act, object_id }) => [act, object_id]),
      [
        ["createSubscriber", null],
        ["createSubscriber", null],
      ],
    );
    const editor = await clientAs(own, "EDITOR");
    for (let i = 0; i < 2; i++) await editor.api.subscribers.create.mutate({ body: { email: uniqueEmail() } });
    const acts = await entriesOf(own, { way: "CONSOLE", kind: "sub" });
    assert.equal(new Set(acts.map(({ object_id }) => object_id)).size, 2);
  });

  it("has one entry a day of each read that takes people out, and none of any other", async () => {
    const reads = PROCEDURES.filter(({ isQuery, meta }) => isQuery && meta.audit !== undefined);
    assert.deepEqual(reads.map(({ name }) => name).sort(), ["imports.export", "imports.refused", "people.file"]);
    const own = await makeTeam();
    const editor = await clientAs(own, "EDITOR");
    for (let i = 0; i < 2; i++) await editor.app.imports.export.query({ query: { of: "contacts" } });
    await editor.app.imports.list.query({});
    assert.deepEqual(
      (await entriesOf(own)).map(({ act, by }) => [act, by]),
      [["imports.export.contacts", "Member"]],
    );
    const { data: list } = await editor.api.lists.create.mutate({ body: { name: "Readers", optin: "SINGLE" } });
    const { id: list_id } = list as { id: string };
    for (const kind of ["list", "people"] as const)
      await editor.app.imports.export.query({ query: { of: kind, list_id } });
    const exports = (await entriesOf(own)).filter(({ act }) => act.startsWith("imports.export"));
    assert.deepEqual(
      exports.map(({ act, object_id }) => [act, object_id]),
      [
        ["imports.export.people", list_id],
        ["imports.export.list", list_id],
        ["imports.export.contacts", null],
      ],
    );
  });

  it("has no entry of a change that is taken back, and knows none of its day", async () => {
    const own = await makeTeam();
    const act = { ...OPERATOR, act: "list:attach", objectId: newId("newsletter"), count: null, requestId: null };
    const record = (fails: boolean) =>
      transaction(own.em, async (tx) => {
        await recordAct(tx, tenantOf(own), act, true);
        if (fails) throw new Error("taken back");
      });
    await assert.rejects(record(true), /taken back/);
    assert.deepEqual(await entriesOf(own), []);
    for (let i = 0; i < 2; i++) await record(false);
    assert.equal((await entriesOf(own)).length, 1);
  });

  it("has none of an answer that is repeated", async () => {
    const own = await makeTeam();
    const idempotencyKey = unique("key");
    for (let i = 0; i < 2; i++) await api(own.keys.live).post("/lists", { name: "List" }, { idempotencyKey });
    assert.equal((await entriesOf(own)).length, 1);
  });

  it("names the member who sends by the key of their sessions, and for whom an OAuth client acts", () => {
    const caller = { id: "key_x", keyId: "oauth_x", memberId: "mbr_x" };
    const actor = (more: object) => Object.values(actorOf({ ...caller, ...more } as unknown as Caller));
    assert.deepEqual(actor({ kind: "api_key", isOfSessions: true }), ["CONSOLE", "mbr_x", null]);
    assert.deepEqual(actor({ kind: "api_key", isOfSessions: false }), ["API_KEY", null, "key_x"]);
    assert.deepEqual(actor({ kind: "oauth_token" }), ["OAUTH_CLIENT", "mbr_x", "oauth_x"]);
  });

  it("has the commands that change a team, by their names", async () => {
    const own = await makeTeam();
    await run("team:tracking", "OFF", "--team", own.team.id);
    await run("member:role", "--member", own.owner.id, "--role", "OWNER");
    await run("plan:show", "--team", own.team.id);
    await run("person:erase", uniqueEmail(), "--team", own.team.id);
    assert.deepEqual(
      (await entriesOf(own)).map(({ way, act, object_id }) => [way, act, object_id]),
      [
        ["COMMAND", "member:role", own.owner.id],
        ["COMMAND", "team:tracking", null],
      ],
    );
  });

  it("is read by every member, page by page and filtered, with the names of today, and by no other team", async () => {
    const own = await makeTeam();
    const ada = await clientNamed(own, "=Ada", "EDITOR");
    const { data } = await ada.api.lists.create.mutate({ body: { name: "Letters" } });
    const { id = "" } = JSON.parse(JSON.stringify(data));
    for (let i = 0; i < 50; i++) await ada.api.lists.create.mutate({ body: { name: "Other" } });
    await api(own.keys.live).post("/subscribers", { email: uniqueEmail() });

    const { page, export: csv, members } = (await clientAs(own, "VIEWER")).app.audit;
    const first = (await page.query({ query: { kind: "list" } })).data;
    const second = (await page.query({ query: { kind: "list", after: first.next_cursor ?? "" } })).data;
    assert.deepEqual([first.entries.length, second.entries.length, second.next_cursor], [50, 1, null]);
    const [entry] = second.entries;
    assert.deepEqual(
      [entry?.act, entry?.by, entry?.object_id, entry?.object_name],
      ["createList", "=Ada", id, "Letters"],
    );
    await ada.api.lists.remove.mutate({ params: { listId: id } });
    const [removed] = (await page.query({ query: { days: 1 } })).data.entries;
    assert.deepEqual([removed?.act, removed?.object_id, removed?.object_name], ["deleteList", id, "Letters"]);

    const admin = await clientAs(own, "ADMIN");
    const body = { url: PUBLIC_URL, name: "Shop", events: [QUIET_EVENT] };
    await admin.api.webhooks.create.mutate({ body });
    await admin.app.accounts.domains.addKey.mutate({ body: { domain: "news.example", is_first: true } });
    await admin.app.accounts.providers.add.mutate({ body: { provider: "POSTMARK" } });
    const namesOf = async (kind: "whk" | "dkim" | "rps") =>
      (await page.query({ query: { kind } })).data.entries.map(({ object_name }) => object_name);
    assert.deepEqual(await namesOf("whk"), ["Shop"]);
    assert.deepEqual(await namesOf("dkim"), ["news.example"]);
    assert.deepEqual(await namesOf("rps"), ["POSTMARK"]);

    const member = (await members.query({})).data.find(({ name }) => name === "=Ada");
    const byAda = (await csv.query({ query: { member_id: member?.id } })).data;
    const lines = byAda.csv.split("\r\n");
    assert.deepEqual([byAda.rows, byAda.after, lines.length], [52, null, 54]);
    assert.match(lines[0] ?? "", /^at,by,way,/);
    assert.match(lines[1] ?? "", /^[\d\-:.TZ]+,'=Ada,CONSOLE,,deleteList,list_\w+,Letters,1,req_\w+$/);
    const byKey = (await page.query({ query: { way: "API_KEY" } })).data.entries;
    assert.deepEqual(
      byKey.map(({ act, by }) => [act, by]),
      [["createSubscriber", "test"]],
    );

    const foreign = (await clientAs(await makeTeam(), "OWNER")).app.audit;
    const seen = [(await foreign.page.query({ query: {} })).data, (await foreign.members.query({})).data];
    assert.ok(!JSON.stringify(seen).includes("Ada"));
    const test = (await consoleClient(await signIn(own.owner.id), own.team.id, "TEST")).app.audit;
    assert.deepEqual((await test.page.query({ query: {} })).data.entries, []);
  });
});
