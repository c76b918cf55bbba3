import assert from "node:assert/strict";
import type { Json } from "./api.ts";
import { eventually } from "./eventually.ts";
import { unique } from "./factories.ts";
import { freshKey, people } from "./sending.ts";

/** Calls a tool of the MCP server. @returns the API's body */
export type CallTool = (name: string, args: Record<string, unknown>) => Promise<Json>;

/**
 * Brings a newsletter to five new people on a list without others, by tools alone.
 * @param call with a key that is made for the list
 */
export async function bringNewsletter(call: CallTool, listId: string, from_email: string): Promise<void> {
  const subscribers = people(5, `${unique("to")}.example`).map(({ email, firstName }) => ({
    email,
    first_name: firstName,
  }));
  const { data: made } = await call("createSubscribers", { subscribers, idempotency_key: freshKey() });
  const ids = made.map(({ data }: Json) => data.id);
  const { data: batch } = await call("addListSubscribers", { listId, subscriber_ids: ids });
  assert.deepEqual(batch.added, ids);
  const { data: draft } = await call("createNewsletter", {
    ...{ name: unique("News"), subject: "For {{ first_name }}", body: "<p>Hello {{ first_name }}</p>" },
    ...{ from_email, idempotency_key: freshKey() },
  });
  const newsletterId = draft.id;
  assert.deepEqual(draft.lists, [listId]);
  const preview = await call("previewNewsletterSend", { newsletterId, idempotency_key: freshKey() });
  assert.equal(preview.data.recipients.eligible, 5);
  const confirmation_token = preview.data.confirmation.token;
  await call("sendNewsletter", { newsletterId, confirmation_token, idempotency_key: freshKey() });
  const isSent = async () => (await call("retrieveNewsletter", { newsletterId })).data.status === "SENT";
  await eventually(isSent, { what: "the newsletter to be sent" });
  const { data: report } = await call("retrieveAnalyticsOverview", { resource_id: newsletterId });
  assert.deepEqual([report.totals.sent, report.days.length, report.days[0].sent], [5, 1, 5]);
}
