import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import type { ZodType } from "zod";
import { type Endpoint, endpointsOf, PARAM } from "../../api/rest/endpoints.ts";
import { appRouter } from "../../api/router.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { attachAccounts, attachList, attachSegment } from "../../domain/sends/drafts/drafts.ts";
import { grantCredits } from "../../domain/teams/credits.ts";
import { type ApiAnswer, api, type Json } from "../support/api.ts";
import { declareFields } from "../support/contacts.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { makeForm } from "../support/forms.ts";
import { addAccount, addSegment } from "../support/sending.ts";
import { snapshotTables } from "../support/tables.ts";
import { insertDelivery, QUIET_EVENT, webhookBody } from "../support/webhooks.ts";

/** A new endpoint needs a value for each new path parameter, a body (`BODIES`), and a PATCH an entry in `PATCHES`. */

/** Every route there is. A new one is tested as soon as it is declared. */
export const ENDPOINTS = endpointsOf(appRouter);

export type PathValues = Record<string, string>;

/** A team that owns one record of every kind. */
export interface Estate extends TestTeam {
  values: PathValues;
  /** A subscriber on no list. */
  newcomerId: string;
}

const DOMAIN = "example.com";
const LONG_AGO = "2020-01-01T00:00:00Z";

export const newUnsubscribe = ({ team }: TestTeam) =>
  ({
    id: newId("unsubscribe"),
    team_id: team.id,
    environment: "LIVE",
    email: uniqueEmail(),
    reason: "UNSUBSCRIBED",
    source: "link",
  }) as const;

export async function makeEstate(): Promise<Estate> {
  const team = await makeTeam({ sendDomains: [DOMAIN] });
  const client = api(team.keys.live);
  const make = async (path: string, body: Json): Promise<Json> => {
    const answer = await client.post(path, body);
    assert.ok(answer.status < 300, answer.text);
    return answer.body.data;
  };
  const fromEmail = `${unique("news")}@${DOMAIN}`;
  const accountId = await addAccount({ ...team, em: team.em.fork() }, { email: fromEmail });
  const list = await make("/lists", { name: "List" });
  const subscriber = await make("/subscribers", { email: uniqueEmail() });
  const newcomer = await make("/subscribers", { email: uniqueEmail() });
  await make(`/lists/${list.id}/subscribers`, { subscriber_ids: [subscriber.id] });
  const draft = { name: "Draft", subject: "Hi", from_email: fromEmail, body: "<p>Hi</p>" };
  const newsletter = await make("/newsletters", draft);
  const campaign = await make("/campaigns", { name: "Draft", subject: "Hi", body: "<p>Hi</p>" });
  await declareFields(team, { city: "text" });
  const contact = await make("/contacts", { email: uniqueEmail() });
  const email = uniqueEmail();
  await make("/suppressions", { emails: [email] });
  const webhook = await make("/webhooks", webhookBody());
  const form = await makeForm(team);
  // A replay of many finds it.
  const delivery = await insertDelivery(team, webhook.id, { status: "FAILED" });
  const suppression = (await client.get(`/suppressions/${encodeURIComponent(email)}`)).body.data;
  await transaction(team.em, async (em) => {
    await attachList(em, newsletter.id, list.id);
    await attachAccounts(em, campaign.id, [accountId]);
    await attachSegment(em, campaign.id, await addSegment(team));
    await grantCredits(em, { teamId: team.team.id, environment: "LIVE" }, 100, "estate");
    await kysely(em).insertInto("unsubscribes").values(newUnsubscribe(team)).execute();
  });
  return {
    ...team,
    newcomerId: newcomer.id,
    values: {
      listId: list.id,
      subscriberId: subscriber.id,
      contactId: contact.id,
      newsletterId: newsletter.id,
      campaignId: campaign.id,
      suppressionId: suppression.id,
      accountId,
      email,
      webhookId: webhook.id,
      deliveryId: delivery.id,
      formId: form.id,
    },
  };
}

const KINDS_OF_ID = [
  ...(["list", "subscriber", "contact", "newsletter", "campaign"] as const),
  ...(["suppression", "account", "webhook", "delivery", "form"] as const),
];

/** The tables of a team once all that its making has set off has ended: two looks show the same. */
export async function tablesAtRest({ em, team }: Estate): Promise<Record<string, string>> {
  let latest = await snapshotTables(em, team.id);
  const isAtRest = async () => {
    const before = latest;
    latest = await snapshotTables(em, team.id);
    return isDeepStrictEqual(latest, before);
  };
  await eventually(isAtRest, { everyMs: 200, what: "tables at rest" });
  return latest;
}

/** Ids and an address that do not exist, in the form of existing ones. */
export const absentValues = (): PathValues => ({
  email: uniqueEmail(),
  ...Object.fromEntries(KINDS_OF_ID.map((kind) => [`${kind}Id`, newId(kind)])),
});

/** A body that each route that takes one accepts, by its method and its path. */
const BODIES: Record<string, (subscriberId: string) => Json> = {
  "POST /lists/{listId}/subscribers": (subscriberId) => ({ subscriber_ids: [subscriberId] }),
  "POST /subscribers": () => ({ email: uniqueEmail() }),
  "PATCH /lists/{listId}/subscribers/{subscriberId}": () => ({ status: "UNSUBSCRIBED" }),
  "PATCH /subscribers/{subscriberId}": () => ({ first_name: "Changed" }),
  "POST /contacts": () => ({ email: uniqueEmail() }),
  "POST /contacts/bulk": () => ({ contacts: [{ email: uniqueEmail() }] }),
  "PATCH /contacts/{contactId}": () => ({ first_name: "Changed" }),
  "POST /newsletters/{newsletterId}/send": () => ({ confirmation_token: "none" }),
  "POST /campaigns/{campaignId}/send": () => ({ confirmation_token: "none" }),
  "POST /webhooks": () => webhookBody(),
  "PATCH /webhooks/{webhookId}": () => ({ events: [QUIET_EVENT], name: "Changed" }),
  "POST /webhooks/{webhookId}/replays": () => ({ since: LONG_AGO }),
  "POST /webhooks/{webhookId}/rotate-secret": () => ({ overlap_hours: 1 }),
  "POST /webhooks/{webhookId}/test": () => ({ type: QUIET_EVENT }),
  "POST /suppressions": () => ({ emails: [uniqueEmail()] }),
};
for (const kind of ["list", "newsletter", "campaign"]) {
  BODIES[`POST /${kind}s`] = () => ({ name: "New" });
  BODIES[`PATCH /${kind}s/{${kind}Id}`] = () => ({ name: "Changed" });
}

export const takesEmptyBody = ({ meta }: Endpoint): boolean =>
  (meta.input.shape.body as unknown as ZodType).safeParse({}).success;

export const nameOf = ({ meta }: Endpoint): string => `${meta.method} ${meta.path}`;

export function endpointNamed(name: string): Endpoint {
  return ENDPOINTS.find((endpoint) => nameOf(endpoint) === name) ?? assert.fail(`no endpoint ${name}`);
}

export const keyFor = ({ keys }: TestTeam, { meta }: Endpoint): string =>
  meta.scope === "suppressions:delete" ? keys.cleanup : keys.live;

export const pathOf = ({ meta }: Endpoint, values: PathValues): string =>
  meta.path.replaceAll(PARAM, (_, name: string) => {
    const value = values[name];
    assert.ok(value, `test/every-endpoint/endpoints.ts must know a value for {${name}}`);
    return encodeURIComponent(value);
  });

/** A body that the route accepts; undefined where it takes none. */
export function bodyOf(endpoint: Endpoint, subscriberId = newId("subscriber")): Json {
  const body = BODIES[nameOf(endpoint)]?.(subscriberId);
  assert.ok(
    body || !endpoint.meta.input.shape.body,
    `test/every-endpoint/endpoints.ts must know a body for ${nameOf(endpoint)}`,
  );
  return body;
}

export function callRoute(
  endpoint: Endpoint,
  key: string,
  values: PathValues,
  { subscriberId = newId("subscriber"), query }: { subscriberId?: string; query?: Record<string, string> } = {},
): Promise<ApiAnswer> {
  const path = pathOf(endpoint, values);
  const body = bodyOf(endpoint, subscriberId);
  const idempotencyKey = endpoint.meta.idempotency === "required" ? unique("key") : undefined;
  return api(key).call(endpoint.meta.method, path, body, { query, idempotencyKey });
}
