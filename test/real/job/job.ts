/** The whole job with a client that openapi-fetch makes of the document; see generators.test.ts. */
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const { API: baseUrl = "", KEY = "", ADDRESSES = "", FROM = "", LIST, TODAY = "", HOOK = "", EVENT = "" } = process.env;
const api = createClient<paths>({ baseUrl, headers: { "x-api-key": KEY } });

interface Answer<Data> {
  data?: { data: Data };
  error?: components["schemas"]["ErrorAnswer"];
}

/** The data of an answer; a refusal's code ends the program. */
function dataOf<Data>({ data, error }: Answer<Data>) {
  if (!data?.data) throw new Error(error?.error.code ?? "a dry run");
  return data.data;
}

async function makeAudience() {
  const { id: listId } = dataOf(await api.POST("/lists", { body: { name: "Readers", optin: "SINGLE" } }));
  const ids: string[] = [];
  for (const email of ADDRESSES.split(",")) ids.push(dataOf(await api.POST("/subscribers", { body: { email } })).id);
  const params = { path: { listId } };
  dataOf(await api.POST("/lists/{listId}/subscribers", { params, body: { subscriber_ids: ids } }));
  return listId;
}

async function sendNewsletter() {
  const text = { name: "Issue", subject: "Hello", from_email: FROM, body: "<p>Hello</p>" };
  const { id: newsletterId } = dataOf(await api.POST("/newsletters", { body: text }));
  const path = { newsletterId };
  const under = (key: string) => ({ path, header: { "Idempotency-Key": `${key} ${newsletterId}` } });
  const previewed = await api.POST("/newsletters/{newsletterId}/send-preview", { params: under("preview") });
  const preview = dataOf(previewed);
  const body = { confirmation_token: preview.confirmation.token };
  dataOf(await api.POST("/newsletters/{newsletterId}/send", { params: under("send"), body }));
  const isSent = async () =>
    dataOf(await api.GET("/newsletters/{newsletterId}", { params: { path } })).status === "SENT";
  while (!(await isSent())) await new Promise((resolve) => setTimeout(resolve, 200));
  const query = { from: TODAY, resource_id: newsletterId };
  const { totals } = dataOf(await api.GET("/analytics/overview", { params: { query } }));
  const webhook = dataOf(await api.POST("/webhooks", { body: { url: HOOK, events: [EVENT] } }));
  const of = { params: { path: { webhookId: webhook.id } } };
  const deliveries = dataOf(await api.GET("/webhooks/{webhookId}/deliveries", of));
  return {
    eligible: preview.recipients.eligible,
    sent: totals.sent,
    events: webhook.events,
    hasSecret: webhook.secret.length > 0,
    deliveries: deliveries.length,
  };
}

async function refusal() {
  const { error } = await api.POST("/lists", { body: { name: "" } });
  return error?.error.code;
}

console.log(JSON.stringify(LIST ? { ...(await sendNewsletter()), refusal: await refusal() } : await makeAudience()));
