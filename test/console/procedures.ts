import assert from "node:assert/strict";
import { z } from "zod";
import { consoleRouter } from "../../api/console/router.ts";
import type { RouteDefinition } from "../../api/rest/definition.ts";
import { newId } from "../../domain/ids.ts";
import { makeEstate } from "../every-endpoint/endpoints.ts";
import { type Cookies, consoleClient, consoleFetch, signIn } from "../support/console.ts";
import { makeMember, unique, uniqueEmail } from "../support/factories.ts";
import { uploadImage } from "../support/images.ts";
import { SAMPLES as IMAGES } from "../support/pictures.ts";
import { addSegment } from "../support/sending.ts";

/*
 * Every procedure that the console alone has. One that takes the id of a record needs a sample of its input here, and a new
 * kind of record a line in `KINDS` and in `makeIds`.
 */

const KINDS = [
  ...(["list", "segment", "newsletter", "campaign", "account", "member", "apiKey"] as const),
  ...(["image", "draftVersion", "template", "import", "dkimKey", "reportSource", "webhook", "delivery"] as const),
  ...(["form", "personRequest", "subscriber"] as const),
];
/** Ids of the records that one team has; a sequence is a campaign, and a form is in the bin. */
export type Ids = Record<(typeof KINDS)[number] | "sequence" | "binned", string>;

export const ABSENT = Object.fromEntries([
  ...KINDS.map((kind) => [kind, newId(kind)]),
  ["sequence", newId("campaign")],
  ["binned", newId("form")],
]) as Ids;

export async function makeIds() {
  const estate = await makeEstate();
  const { values, owner, liveKey, em, team } = estate;
  const value = (name: string) => values[name] ?? assert.fail(`no ${name}`);
  const cookies = await signIn(owner.id);
  const { app } = await consoleClient(cookies, team.id);
  const list = value("listId");
  const { email } = (await app.accounts.show.query({ params: { accountId: value("accountId") } })).data;
  const draft = { type: "newsletter", id: value("newsletterId") } as const;
  for (const content of [[], [{ type: "divider" }]])
    await app.content.saveBlocks.mutate({ body: { ...draft, preheader: null, blocks: { type: "doc", content } } });
  const [version] = (await app.content.versions.query({ query: draft })).data;
  const template = (await app.templates.save.mutate({ body: { ...draft, name: "Template" } })).data.id;
  const sequence = { name: "Sequence", list_id: list, from_email: email };
  const domain = `${unique("news")}.example`;
  const binned = (await app.forms.create.mutate({ body: formOf({ list }) })).data.id;
  await app.forms.remove.mutate({ params: { formId: binned } });
  const ids: Ids = {
    list,
    binned,
    segment: await addSegment(estate),
    newsletter: value("newsletterId"),
    campaign: value("campaignId"),
    account: value("accountId"),
    member: (await makeMember(em, team.id, "EDITOR")).id,
    apiKey: liveKey.record.id,
    image: await uploadImage(cookies, team.id, IMAGES.png).then(({ id }) => id),
    draftVersion: version?.id ?? assert.fail("no version"),
    template,
    import: (await app.imports.begin.mutate({ body: { name: "people.csv", size: 10 } })).data.id,
    sequence: (await app.sequences.create.mutate({ body: sequence })).data.id,
    dkimKey: (await app.accounts.domains.addKey.mutate({ body: { domain, is_first: true } })).data.id,
    reportSource: (await app.accounts.providers.add.mutate({ body: { provider: "POSTMARK" } })).data.id,
    webhook: value("webhookId"),
    delivery: value("deliveryId"),
    form: value("formId"),
    subscriber: value("subscriberId"),
    personRequest: (await app.people.exportPerson.mutate({ body: { email: uniqueEmail() } })).data.id,
  };
  return { ...estate, ids, cookies };
}

export type Sample = (ids: Ids) => unknown;

const ofSegment: Sample = ({ segment }) => ({ params: { segmentId: segment } });
const ofImport: Sample = (ids) => ({ params: { importId: ids.import } });
const ofSequence: Sample = ({ sequence }) => ({ params: { sequenceId: sequence } });
const ofAccount: Sample = ({ account }) => ({ params: { accountId: account } });
const ofTemplate: Sample = ({ template }) => ({ params: { templateId: template } });
const ofDkimKey: Sample = ({ dkimKey }) => ({ params: { keyId: dkimKey }, body: {} });
const ofListOfNewsletter: Sample = ({ newsletter, list }) => ({ body: { newsletter_id: newsletter, list_id: list } });
const withBody =
  (sample: Sample, body: object): Sample =>
  (ids) => ({ ...(sample(ids) as object), body });
const formOf = ({ list }: Pick<Ids, "list">) => ({
  ...{ name: "Form", list_id: list, fields: [], consent_text: "Yes", tracking_text: null, thank_you_url: null },
  ...{ sites: [], is_open: true },
});
const EVERYONE = { field: "email", op: "exists", value: true };

/** An input for each procedure that takes an id, in which each id is of the caller's team. */
export const SAMPLES: Record<string, Sample> = {
  "content.settings": ({ newsletter }) => ({ query: { type: "newsletter", id: newsletter } }),
  "content.change": ({ campaign, segment }) => ({ body: { type: "campaign", id: campaign, segment_id: segment } }),
  "content.reschedule": ({ newsletter }) => ({
    body: {
      ...{ type: "newsletter", id: newsletter },
      send_time: { date: new Date(Date.now() + 86_400_000).toISOString().slice(0, 10), time: "23:59", zone: "UTC" },
    },
  }),
  "content.document": ({ newsletter }) => ({ query: { type: "newsletter", id: newsletter } }),
  "content.saveBlocks": ({ newsletter }) => ({
    body: { type: "newsletter", id: newsletter, preheader: null, blocks: { type: "doc", content: [] } },
  }),
  "content.check": ({ newsletter }) => ({ query: { type: "newsletter", id: newsletter } }),
  "content.links": ({ newsletter }) => ({ query: { type: "newsletter", id: newsletter } }),
  "content.editCopy": ({ newsletter }) => ({ body: { type: "newsletter", id: newsletter } }),
  "content.duplicate": ({ newsletter }) => ({ body: { type: "newsletter", id: newsletter } }),
  "content.versions": ({ newsletter }) => ({ query: { type: "newsletter", id: newsletter } }),
  "content.version": ({ newsletter, draftVersion }) => ({
    query: { type: "newsletter", id: newsletter, version_id: draftVersion },
  }),
  "content.restoreVersion": ({ newsletter, draftVersion }) => ({
    body: { type: "newsletter", id: newsletter, version_id: draftVersion },
  }),
  "content.preview": ({ newsletter }) => ({ query: { type: "newsletter", id: newsletter } }),
  "content.recipients": ({ newsletter }) => ({ query: { type: "newsletter", id: newsletter, text: "a" } }),
  "content.exportRecipients": ({ newsletter }) => ({ query: { type: "newsletter", id: newsletter } }),
  "content.sendTest": ({ newsletter, member }) => ({
    body: { type: "newsletter", id: newsletter, member_ids: [member] },
  }),
  "content.publish": ({ newsletter }) => ({ body: { newsletter_id: newsletter, is_public: true } }),
  "content.attachList": ofListOfNewsletter,
  "content.detachList": ofListOfNewsletter,
  "content.attachAccounts": ({ campaign, account }) => ({ body: { campaign_id: campaign, account_ids: [account] } }),
  "templates.save": ({ newsletter, template }) => ({
    body: { type: "newsletter", id: newsletter, name: "Saved", template_id: template },
  }),
  "templates.rename": withBody(ofTemplate, { name: "Renamed" }),
  "templates.remove": ofTemplate,
  "templates.makeDraft": ({ template }) => ({ body: { type: "newsletter", name: "Made", template_id: template } }),
  "audience.search": ({ list }) => ({ query: { in: "subscribers", text: "a", list_id: list } }),
  "audience.people": ({ list, segment }) => ({ query: { list_id: list, segment_id: segment } }),
  "audience.lists": ({ list }) => ({ query: { list_id: list } }),
  "audience.archive": ({ list }) => ({ body: { list_id: list, is_on: true } }),
  "audience.unsubscribe": ({ list, subscriber }) => ({ params: { listId: list, subscriberId: subscriber } }),
  "audience.segment": ofSegment,
  "audience.updateSegment": withBody(ofSegment, { name: "Changed", conditions: EVERYONE }),
  "audience.deleteSegment": ofSegment,
  "forms.create": (ids) => ({ body: formOf(ids) }),
  "forms.update": ({ form, list }) => ({ params: { formId: form }, body: formOf({ list }) }),
  "forms.remove": ({ form }) => ({ params: { formId: form } }),
  "bin.restore": ({ binned }) => ({ params: { recordId: binned } }),
  "forms.embed": ({ form }) => ({ params: { formId: form } }),
  "images.remove": (ids) => ({ params: { imageId: ids.image }, body: {} }),
  "imports.retrieve": ofImport,
  "imports.part": withBody(ofImport, { n: 0, base64: "YQ==" }),
  "imports.columns": (ids) => ({ params: { importId: ids.import }, query: { kind: "contacts" } }),
  "imports.check": withBody(ofImport, { kind: "contacts", uses: ["email"] }),
  "imports.run": ofImport,
  "imports.undo": ofImport,
  "imports.refused": ofImport,
  "imports.remove": ofImport,
  "imports.export": ({ list }) => ({ query: { of: "list", list_id: list } }),
  "people.file": ({ personRequest }) => ({ params: { requestId: personRequest }, query: { as: "json" } }),
  "sequences.show": ofSequence,
  "sequences.countMembers": ofSequence,
  "sequences.people": ({ sequence }) => ({ params: { sequenceId: sequence }, query: {} }),
  "sequences.create": ({ list }) => ({
    body: { name: "Welcome", list_id: list, from_email: `ada@${unique("news")}.example` },
  }),
  "sequences.rename": withBody(ofSequence, { name: "Renamed" }),
  "sequences.changeTracking": withBody(ofSequence, { tracking: true }),
  "sequences.remove": ofSequence,
  "sequences.step": ({ sequence }) => ({ params: { sequenceId: sequence }, query: { step_id: "a" } }),
  "sequences.saveStep": withBody(ofSequence, { step_id: "a", step: null }),
  "sequences.start": withBody(ofSequence, { include_members: false }),
  "sequences.pause": ofSequence,
  "sequences.resume": withBody(ofSequence, {}),
  "sequences.stop": ofSequence,
  "accounts.show": ofAccount,
  "accounts.update": withBody(ofAccount, { max_connections: 2, hourly_limit: null, daily_limit: null }),
  "accounts.setCredentials": withBody(ofAccount, {
    ...{ host: "smtp.example.com", port: 587, security: "starttls", username: "ada", password: "secret" },
  }),
  "accounts.suspend": ofAccount,
  "accounts.resume": ofAccount,
  "accounts.health": ofAccount,
  "accounts.uses": ofAccount,
  "accounts.disconnect": ofAccount,
  "accounts.domains.activate": ofDkimKey,
  "accounts.domains.remove": ofDkimKey,
  "accounts.providers.change": ({ reportSource }) => ({ params: { sourceId: reportSource }, body: {} }),
  "accounts.providers.remove": ({ reportSource }) => ({ params: { sourceId: reportSource } }),
  "accounts.webhooks.retry": ({ webhook }) => ({ params: { webhookId: webhook } }),
  "accounts.webhooks.body": ({ webhook, delivery }) => ({ params: { webhookId: webhook, deliveryId: delivery } }),
  "team.changeRole": ({ member }) => ({ body: { member_id: member, role: "VIEWER" } }),
  "team.removeMember": ({ member }) => ({ body: { member_id: member } }),
  "team.mintKey": ({ list }) => ({ body: { name: "Key", scopes: ["newsletters:write"], for_list_id: list } }),
  "team.rotateKey": ({ apiKey }) => ({ body: { key_id: apiKey, grace_hours: 0 } }),
  "team.changeCap": ({ apiKey }) => ({ body: { key_id: apiKey, daily_send_cap: 1 } }),
  "team.revokeKey": ({ apiKey }) => ({ body: { key_id: apiKey } }),
  "audit.page": ({ member }) => ({ query: { member_id: member } }),
  "audit.export": ({ member }) => ({ query: { member_id: member } }),
  "overview.gates": ({ newsletter }) => ({ body: { kind: "newsletter", id: newsletter } }),
  "overview.hours": ({ newsletter }) => ({ body: { resource_id: newsletter } }),
  "overview.domains": ({ newsletter }) => ({ body: { resource_id: newsletter } }),
  "overview.earlier": ({ newsletter }) => ({ body: { resource_id: newsletter } }),
  "overview.progress": ({ newsletter }) => ({ body: { resource_id: newsletter } }),
};
/** Inputs of those that take no id, where they need one. */
export const LISTS: Record<string, object> = {
  "content.page": { query: { type: "newsletter" } },
  "audience.subscriptionProofs": { query: { email: "ada@example.com" } },
  "audience.history": { query: { email: "ada@example.com" } },
  "audience.enrolments": { query: { email: "ada@example.com" } },
  "audience.fieldUse": { query: { name: "city" } },
  "images.list": { query: {} },
  "bin.page": { query: {} },
  "people.requests": { query: { email: "ada@example.com" } },
  "sequences.page": { query: {} },
  "team.keys": { query: { state: "working" } },
};
/** Mutations that change nothing: their input is long, or they ask other servers. */
export const HARMLESS = ["audience.countSegment", "accounts.domains.check"];

export interface Procedure {
  name: string;
  isQuery: boolean;
  meta: RouteDefinition;
}

export const PROCEDURES: Procedure[] = Object.entries(consoleRouter._def.procedures as object).flatMap(
  ([path, { _def }]) =>
    path.startsWith("app.")
      ? [{ name: path.slice("app.".length), isQuery: _def.type === "query", meta: _def.meta }]
      : [],
);

/** Names of the fields in a schema that hold ids. */
export const idsIn = ({ meta }: Procedure): string[] => {
  const text = JSON.stringify(z.toJSONSchema(meta.input, { io: "input", unrepresentable: "any" }));
  const names = [...text.matchAll(/"(\w*(?:_|\b)ids?|\w+Ids?)":\{/g)].map(([, name = ""]) => name);
  // The name of an OAuth client at its provider is no id of a record.
  return names.filter((name) => name !== "client_id");
};

export async function call({ name, isQuery }: Procedure, input: unknown, teamId: string, cookies: Cookies) {
  const text = isQuery ? `?input=${encodeURIComponent(JSON.stringify(input))}` : "";
  const [method, body] = isQuery ? (["GET", undefined] as const) : (["POST", input] as const);
  const answer = await consoleFetch({ ...cookies }, method, `/trpc/app.${name}${text}`, body, {
    "mailkeel-team": teamId,
  });
  const { error, result } = (await answer.json()) as {
    error?: { message: string; data: { code: string; param?: string } };
    result?: { data: { data: unknown } };
  };
  return error
    ? { code: error.data.code, param: error.data.param, message: error.message }
    : { code: "answered", data: result?.data.data };
}
