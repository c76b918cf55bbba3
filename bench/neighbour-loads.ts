import { createServer } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { kysely } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import { trackingUrl, unsubscribeUrl, webUrl } from "../domain/mail/links.ts";
import { mailId } from "../domain/mail/message-id.ts";
import { addSource, passwordOf, pathOfSource, SOURCE_USER } from "../domain/reports/source.ts";
import { attachAccounts, attachSegment } from "../domain/sends/drafts/drafts.ts";
import { archiveUrl, newsletterUrl } from "../domain/sends/web-pages.ts";
import { mailToken, trackedUrls } from "../domain/tracking/links.ts";
import { document, paragraph } from "../test/support/blocks.ts";
import { type Cookies, consoleClient, consoleFetch, refusalCodeOf, signIn } from "../test/support/console.ts";
import { execute, makeMember, openStackDatabase, unique } from "../test/support/factories.ts";
import { makeForm } from "../test/support/forms.ts";
import { tryUpload, uniquePng } from "../test/support/images.ts";
import { insert, pngChunk } from "../test/support/pictures.ts";
import { addSegment, freshKey } from "../test/support/sending.ts";
import { stack } from "../test/support/stack.ts";
import { insertFailed, makeEndpoint } from "../test/support/webhooks.ts";
import { makeAudience } from "./audience.ts";
import { writeLedger } from "./ledger.ts";

/** Answers by their status or code. */
export type Answers = Record<string, number>;

/** One request of a lane. @returns the status or code of its answer */
type Ask = (lane: number, n: number) => Promise<string>;

/** One kind of load. */
export interface NeighbourLoad {
  /** Requests at once. */
  lanes: number;
  ask: Ask;
  /** Runs before the lanes. @returns runs after them */
  begin?: () => Promise<(() => Promise<void>) | undefined>;
}

const KEYS = 10;
const OWNERS = 2;
const VIEWERS = 4;
const UPLOADS = 4;
const HANGING = 10;
const BULK = 1_000;
/** Made once: the process of the load measures, too. */
const LARGE_CHUNK = pngChunk("iCCP", Buffer.alloc(5_000_000));
/** Conditions that Postgres evaluates for seconds. */
const SLOW = {
  any: Array.from({ length: 1_500 }, (_, i) => ({ field: "first_name", op: "contains", value: `zz${i}` })),
};
/** Values of one condition that are refused before they are compiled. */
const MANY_DAYS = Array.from({ length: 45_000 }, (_, i) =>
  new Date(Date.UTC(1900, 0, 1 + i)).toISOString().slice(0, 10),
);
const BODIES = ["{{ first_name }} ".repeat(20_000), "<div>".repeat(60_000), `<table>${"<tr><td>x".repeat(40_000)}`];
/** Nearly as many bytes and nodes as a document may have. */
const BLOCKS = document(...Array.from({ length: 2_000 }, (_, i) => paragraph(`${i} ${"x".repeat(150)}`)));
const STEP = { wait_minutes: 1_440, subject: "x", body: "<p>x</p>" };
const FORM = { "content-type": "application/x-www-form-urlencoded" };

const statusOf = async (asked: Promise<Response>): Promise<string> => {
  const answer = await asked;
  await answer.arrayBuffer();
  return String(answer.status);
};

/** A team with so many people, and all that its loads need. @returns the loads by name */
export async function makeLoads(
  people: number,
  hangingPort: number,
): Promise<{ loads: Record<string, NeighbourLoad>; close: () => void }> {
  const { api, origin, mail } = await stack();
  const smtp = new URL(mail.smtp);
  const hostile = await makeAudience({
    ...{ recipients: people, connections: 1 },
    smtp: { host: smtp.hostname, port: Number(smtp.port) },
  });
  const { em, vault, team, client, audience, listId, accountIds, fromEmail, mint } = hostile;
  const db = kysely(em);
  await sql`
    insert into contacts (id, team_id, environment, email, first_name, last_name, email_status, fields)
    select ${`con_${unique("n")}`} || i, ${team.id}, 'LIVE', 'person' || i || '@' || ${audience}::text, 'First' || i, 'Last' || i,
      'ACTIVE', '{}' from generate_series(1, ${people}::int) i`.execute(db);
  await sql`vacuum analyze contacts`.execute(db);

  const keys: string[] = [];
  for (let i = 0; i < KEYS; i++) keys.push((await mint()).key);
  const sendKey = (await mint({ scopes: ["campaigns:send", "campaigns:read"], sendDomains: [hostile.domain] })).key;
  const cookies: Cookies[] = [];
  for (let i = 0; i < OWNERS + VIEWERS; i++) {
    cookies.push(await signIn((await makeMember(em, team.id, i < OWNERS ? "OWNER" : "VIEWER")).id));
  }
  const owner = await consoleClient(cookies[0] ?? {}, team.id);
  const viewers = await Promise.all(cookies.slice(OWNERS).map((of) => consoleClient(of, team.id)));
  const viewer = (lane: number) => viewers[lane % viewers.length] ?? owner;

  const idOf = async (path: string, body: object): Promise<string> => (await client.post(path, body)).body.data.id;
  const drafts: string[] = [];
  for (const body of BODIES) {
    // One that is refused is for lanes that make drafts.
    const { data } = (await client.post("/newsletters", { name: "Long", subject: "x", body })).body;
    if (data) drafts.push(data.id);
  }
  const campaign = async (segmentId: string): Promise<string> => {
    const id = await idOf("/campaigns", { name: "C", subject: "x", body: "<p>{{ first_name }}</p>" });
    await transaction(em, async (tx) => {
      await attachAccounts(tx, id, accountIds);
      await attachSegment(tx, id, segmentId);
    });
    return id;
  };
  const everyone = await addSegment(hostile);
  const slowCampaign = await campaign(await addSegment(hostile, SLOW));
  const newsletterId = await idOf("/newsletters", { name: "N", subject: "x", body: "<p>x</p>" });
  const sendId = await writeLedger(hostile, people, newsletterId);
  const { rows: known } = await sql<{ id: string; email: string; first: string; last: string }>`
    select id, email, first_name as first, last_name as last from subscribers where team_id = ${team.id} order by id`.execute(
    db,
  );
  const csv = `email,first_name,last_name\n${known.map(({ email, first, last }) => `${email},${first},${last}`).join("\n")}`;
  const uploads: string[] = [];
  for (let i = 0; i < UPLOADS; i++) uploads.push(await upload(csv));

  async function upload(text: string): Promise<string> {
    const bytes = Buffer.from(text);
    const { data } = await owner.app.imports.begin.mutate({ body: { name: "people.csv", size: bytes.length } });
    for (let n = 0; n * data.part_bytes < bytes.length; n++) {
      const base64 = bytes.subarray(n * data.part_bytes, (n + 1) * data.part_bytes).toString("base64");
      await owner.app.imports.part.mutate({ params: { importId: data.id }, body: { n, base64 } });
    }
    return data.id;
  }
  const check = async (n: number): Promise<undefined> => {
    const params = { importId: uploads[n] ?? "" };
    const uses = ["email", "first_name", "last_name"];
    await owner.app.imports.check.mutate({
      params,
      body: { kind: "subscribers", list_id: listId, confirmed: true, uses },
    });
  };
  /** Checks the last upload, and imports it. */
  async function runImport(): Promise<undefined> {
    const params = { importId: uploads.at(-1) ?? "" };
    const state = async () => (await owner.app.imports.retrieve.query({ params })).data.state;
    await check(uploads.length - 1);
    while ((await state()) === "CHECKING") await delay(200);
    await owner.app.imports.run.mutate({ params });
  }

  const rest = (lane: number, method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
    statusOf(
      fetch(`${api}${path}`, {
        method,
        headers: { "x-api-key": keys[lane % KEYS] ?? "", "content-type": "application/json", ...headers },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      }),
    );
  const tool = (lane: number, name: string, args: object) =>
    rest(
      lane,
      "POST",
      "/mcp",
      { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: args } },
      { accept: "application/json, text/event-stream" },
    );
  const page = (lane: number, path: string) =>
    statusOf(consoleFetch({ ...cookies[lane % cookies.length] }, "GET", path));
  const bulk = (lane: number, contacts: object[]) =>
    rest(lane, "POST", "/contacts/bulk", { contacts }, { "idempotency-key": freshKey() });
  const link = (seq: number) => unsubscribeUrl(vault, origin, { sendId, seq: 1 + (seq % people) });
  const pressed = (url: string, body: string) => statusOf(fetch(url, { method: "POST", headers: FORM, body }));
  const post = (seq: number) => pressed(link(seq), "List-Unsubscribe=One-Click");
  const source = await addSource(em, vault, { teamId: team.id, environment: "LIVE" }, "POSTMARK", {});
  const password = Buffer.from(`${SOURCE_USER}:${passwordOf(vault, source)}`).toString("base64");
  const bounce: Ask = (lane, n) => {
    const mail = mailId({ sendId, seq: 1 + ((lane * 331 + n * 7) % people) });
    const reply = { RecordType: "Bounce", Type: "HardBounce", Details: "smtp;550 5.1.1 No such user" };
    return statusOf(
      fetch(`${origin}${pathOfSource(vault, source)}`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Basic ${password}` },
        body: JSON.stringify({ ...reply, Metadata: { mailkeel_mail: mail } }),
      }),
    );
  };
  const patch: Ask = (lane, n) =>
    rest(lane, "PATCH", `/subscribers/${known[(lane * 7 + n) % 200]?.id}`, { first_name: `x${n}` });
  const hanging = createServer(() => {})
    .listen(hangingPort, "127.0.0.1")
    .unref();

  const links = Array.from({ length: 50 }, (_, i) => `<a href="http://127.0.0.1:${hangingPort}/${i}">x</a>`).join("");
  const linked = await idOf("/newsletters", { name: "Links", subject: "x", body: links });

  const replayed = await makeEndpoint(hostile, { url: `http://127.0.0.1:${hangingPort}/replays`, events: [] });
  await insertFailed(hostile, replayed.id, people);

  async function startSequence(): Promise<string> {
    const body = { name: "S", segment_id: everyone, from_email: fromEmail };
    const { id } = (await owner.app.sequences.create.mutate({ body })).data;
    const params = { sequenceId: id };
    await owner.app.sequences.saveStep.mutate({ params, body: { step_id: "a", step: STEP } });
    await owner.app.sequences.start.mutate({ params, body: { include_members: true } });
    await owner.app.sequences.stop.mutate({ params });
    return id;
  }

  await owner.app.audience.archive.mutate({ body: { list_id: listId, is_on: true } });
  await execute("insert into newsletter_lists (newsletter_id, list_id) values (?, ?)", newsletterId, listId);
  await execute("update newsletters set status = 'SENT' where id = ?", newsletterId);
  const archive = archiveUrl(vault, origin, listId);
  const webPage = newsletterUrl(vault, origin, newsletterId);
  const form = `${origin}${(await makeForm(hostile)).path}`;

  let sequenceId = "";
  const makeSequence = async () => {
    const body = { name: "Steps", segment_id: everyone, from_email: fromEmail };
    return (await owner.app.sequences.create.mutate({ body })).data.id;
  };
  const enrolled = await makeSequence();
  await execute(
    `insert into sequence_enrolments (campaign_id, address_hash, member_id, state, step_id, due_at)
      select ?, md5(id), id, 'ACTIVE', 'a', now() + interval '1 day' from contacts where team_id = ?`,
    enrolled,
    team.id,
  );

  const loads: Record<string, NeighbourLoad> = {
    "console reads": {
      lanes: 30,
      ask: (lane, n) =>
        refusalCodeOf(
          [
            () => viewer(lane).app.overview.gates.query({ body: { kind: "campaign", id: slowCampaign } }),
            () => viewer(lane).app.overview.attention.query({}),
            () => viewer(lane).app.audience.search.query({ query: { in: "subscribers", text: "example" } }),
            () => viewer(lane).app.audience.people.query({ query: { list_id: listId, segment_id: everyone } }),
            () =>
              viewer(lane).app.content.recipients.query({
                query: { type: "newsletter", id: newsletterId, text: "example" },
              }),
            () => viewer(lane).app.audit.page.query({ query: {} }),
            () => viewer(lane).app.bin.page.query({ query: {} }),
            () => viewer(lane).app.sequences.page.query({ query: {} }),
            // It walks as many people as a page may, and finds none.
            () =>
              viewer(lane).app.sequences.people.query({ params: { sequenceId: enrolled }, query: { state: "LEFT" } }),
            () => viewer(lane).app.audience.suppressed.query({ query: {} }),
          ][(lane + n) % 10]?.() ?? Promise.resolve(),
        ),
    },
    "exports of people": {
      lanes: 16,
      ask: (lane, n) => {
        const email = known[(lane * 7 + n) % known.length]?.email ?? "";
        return refusalCodeOf(owner.app.people.exportPerson.mutate({ body: { email } }));
      },
    },
    exports: {
      lanes: 16,
      ask: (_, n) =>
        refusalCodeOf(
          n % 3 === 2
            ? owner.app.content.exportRecipients.query({ query: { type: "newsletter", id: newsletterId, after: "" } })
            : owner.app.imports.export.query({ query: { of: n % 3 ? "people" : "list", list_id: listId } }),
        ),
    },
    "uploads of images": {
      lanes: 16,
      ask: (lane) => statusOf(tryUpload(cookies[lane % OWNERS] ?? {}, team.id, insert(uniquePng(), 33, LARGE_CHUNK))),
    },
    "saves of blocks": {
      lanes: 16,
      ask: (lane) => {
        const body = { type: "newsletter", id: drafts[lane % drafts.length] ?? "", preheader: null, blocks: BLOCKS };
        return refusalCodeOf(owner.app.content.saveBlocks.mutate({ body } as never));
      },
    },
    "checks of links that do not answer": {
      lanes: 16,
      ask: (lane) => refusalCodeOf(viewer(lane).app.content.links.query({ query: { type: "newsletter", id: linked } })),
    },
    "drafts of templates": {
      lanes: 16,
      ask: (_, n) => {
        const body = { type: "newsletter", name: `T${n}`, template_id: "articles" } as const;
        return refusalCodeOf(owner.app.templates.makeDraft.mutate({ body }));
      },
    },
    "saves of steps": {
      lanes: 16,
      begin: async () => {
        sequenceId = await makeSequence();
        return undefined;
      },
      ask: (lane, n) => {
        const body = {
          step_id: `s${lane}`,
          step: { ...STEP, wait_minutes: n },
          document: { preheader: null, blocks: BLOCKS },
        };
        return refusalCodeOf(owner.app.sequences.saveStep.mutate({ params: { sequenceId }, body } as never));
      },
    },
    "checks of the mail of a slow campaign": {
      lanes: 16,
      ask: (lane) =>
        refusalCodeOf(viewer(lane).app.content.check.query({ query: { type: "campaign", id: slowCampaign } })),
    },
    "recipients by what they did, and links": {
      lanes: 20,
      ask: (lane, n) =>
        rest(
          lane,
          "GET",
          `/newsletters/${newsletterId}/${n % 2 ? "links" : "recipients?activity=not_opened&limit=100"}`,
        ),
    },
    "answers about tracking": {
      lanes: 100,
      ask: (lane, n) => {
        const mail = { sendId, seq: 1 + ((lane * 331 + n * 7) % people) };
        return pressed(trackingUrl(vault, origin, mail), `scope=${n % 2 ? "allow" : "deny"}`);
      },
    },
    "views of a form, challenges and posts": {
      lanes: 200,
      ask: (_, n) => {
        const post = () => pressed(form, `email=${unique("p")}%40${audience}`);
        return [() => statusOf(fetch(form)), () => statusOf(fetch(`${form}/challenge`)), post][n % 3]?.() ?? post();
      },
    },
    "views of an archive, a newsletter and a mail": {
      lanes: 200,
      ask: (lane, n) => {
        const mail = webUrl(vault, origin, { sendId, seq: 1 + ((lane * 331 + n * 7) % people) });
        return statusOf(fetch([archive, `${archive}/feed`, webPage, mail][n % 4] ?? archive));
      },
    },
    "recipients by status": {
      lanes: 20,
      ask: (lane) => rest(lane, "GET", `/lists/${listId}/subscribers?status=UNSUBSCRIBED&limit=100`),
    },
    "50 MCP clients with long answers": {
      lanes: 50,
      ask: (lane, n) =>
        n % 2 === 0
          ? tool(lane, "listContacts", { limit: 100 })
          : tool(lane, "createNewsletter", { name: "x", body: BODIES[1] }),
    },
    "people that assistants create": {
      lanes: 16,
      ask: (lane) => {
        const subscribers = Array.from({ length: 100 }, () => ({ email: `${unique("made")}@${audience}` }));
        return tool(lane, "createSubscribers", { subscribers });
      },
    },
    "locked writes": {
      lanes: 16,
      ask: (lane) => rest(lane, "PATCH", `/subscribers/${known[0]?.id}`, { first_name: unique("x") }),
      begin: async () => {
        const own = await openStackDatabase("application");
        const holder = own.em.fork();
        await holder.begin();
        await sql`select from subscribers where id = ${known[0]?.id} for update`.execute(kysely(holder));
        return async () => {
          await holder.rollback();
          await own.close();
        };
      },
    },
    "checks of imports": { lanes: 0, ask: patch, begin: () => Promise.all([0, 1, 2].map(check)).then(() => undefined) },
    "a check, and writes of its people": { lanes: 16, ask: patch, begin: () => check(0) },
    "a check, and links of its people": { lanes: 3, ask: (lane, n) => post(lane + 3 * n), begin: () => check(1) },
    "an import, and writes of its people": { lanes: 16, ask: patch, begin: runImport },
    "sequences that start and stop": { lanes: 16, ask: () => refusalCodeOf(startSequence()) },
    "previews of a slow segment": {
      lanes: 32,
      ask: (lane) =>
        rest(lane, "POST", `/campaigns/${slowCampaign}/send-preview`, undefined, {
          "x-api-key": sendKey,
          "idempotency-key": freshKey(),
        }),
    },
    "bulk calls of the same contacts": {
      lanes: 16,
      ask: (lane, n) =>
        bulk(
          lane,
          Array.from({ length: BULK }, (_, i) => ({
            email: `person${i + 1}@${audience}`,
            first_name: `x${lane}.${n}`,
          })),
        ),
    },
    "bulk calls of new contacts": {
      lanes: 16,
      ask: (lane, n) =>
        bulk(
          lane,
          Array.from({ length: BULK }, (_, i) => ({ email: `n${lane}.${n}.${i}@${audience}` })),
        ),
    },
    "preview pages": {
      lanes: 40,
      ask: (lane, n) => page(lane, `/preview/newsletters/${drafts[n % drafts.length]}?team=${team.id}`),
    },
    "preview pages of a slow campaign": {
      lanes: 40,
      ask: (lane) => page(lane, `/preview/campaigns/${slowCampaign}?team=${team.id}`),
    },
    "reads of a session": { lanes: 100, ask: (lane) => page(lane, "/session") },
    "sign-ins": {
      lanes: 50,
      ask: () => statusOf(consoleFetch({}, "POST", "/sign-in", { email: `${unique("nobody")}@${audience}` })),
    },
    "opens of the team's mails": {
      lanes: 50,
      ask: (lane, n) => {
        const mail = mailToken(vault, { sendId, seq: 1 + ((lane * 331 + n * 7) % people) });
        return statusOf(fetch(trackedUrls(vault, origin, sendId, mail).openUrl));
      },
    },
    "the team's own links": { lanes: 300, ask: (lane, n) => statusOf(fetch(link(lane * 331 + n * 7))) },
    "events of a provider": { lanes: 50, ask: bounce },
    "hanging webhooks": {
      lanes: 8,
      ask: (lane, n) =>
        bulk(
          lane,
          Array.from({ length: 200 }, (_, i) => ({ email: `w${lane}.${n}.${i}@${audience}` })),
        ),
      begin: async () => {
        for (let i = 0; i < HANGING; i++) {
          await makeEndpoint(hostile, {
            url: `http://127.0.0.1:${hangingPort}/${i}`,
            events: ["contact.created", "contact.updated"],
          });
        }
        return undefined;
      },
    },
    "bulk replays": {
      lanes: 8,
      ask: (lane) => rest(lane, "POST", `/webhooks/${replayed.id}/replays`, { since: "2026-01-01T00:00:00Z" }),
    },
    "counts of a slow segment": {
      lanes: 16,
      ask: (lane) => refusalCodeOf(viewer(lane).app.audience.countSegment.mutate({ body: { conditions: SLOW } })),
    },
    "conditions that are too long": {
      lanes: 8,
      ask: (lane) => {
        const conditions = { field: "created_at", op: "in", value: MANY_DAYS };
        return refusalCodeOf(viewer(lane).app.audience.countSegment.mutate({ body: { conditions } }));
      },
    },
  };
  return { loads, close: () => void hanging.close().closeAllConnections() };
}
