import { kysely } from "../../db/orm.ts";
import type { MailRef } from "../../domain/mail/links.ts";
import { api, type Json } from "../support/api.ts";
import { recordSend, type TestTeam, uniqueEmail } from "../support/factories.ts";

export interface MailedLetter extends MailRef {
  newsletterId: string;
  listIds: string[];
  subscriberId: string;
  email: string;
}

/** Records that a newsletter was sent, to recipients that the caller adds to the ledger. @returns the send's id */
export async function recordSentNewsletter(
  { em, team }: Pick<TestTeam, "em" | "team">,
  newsletterId: string,
  recipients = 1,
): Promise<string> {
  const sendId = await recordSend(em, { teamId: team.id, environment: "LIVE" }, newsletterId, recipients);
  await kysely(em)
    .updateTable("newsletters")
    .set({ send_id: sendId, status: "SENT" })
    .where("id", "=", newsletterId)
    .execute();
  return sendId;
}

/** Records a newsletter to two lists that was mailed to a subscriber of both. */
export async function mailLetter({ em, team, keys }: TestTeam): Promise<MailedLetter> {
  const client = api(keys.live);
  const made = async (path: string, body: Json): Promise<string> => (await client.post(path, body)).body.data.id;
  const email = uniqueEmail("reader");
  const subscriberId = await made("/subscribers", { email });
  const newsletterId = await made("/newsletters", { name: "Letter" });
  const listIds = [await made("/lists", { name: "One" }), await made("/lists", { name: "Two" })];
  for (const id of listIds) await client.post(`/lists/${id}/subscribers`, { subscriber_ids: [subscriberId] });
  const db = kysely(em);
  await db
    .insertInto("newsletter_lists")
    .values(listIds.map((list_id) => ({ newsletter_id: newsletterId, list_id })))
    .execute();
  const sendId = await recordSentNewsletter({ em, team }, newsletterId);
  await db
    .insertInto("send_recipients")
    .values({
      send_id: sendId,
      seq: 7,
      member_id: subscriberId,
      email,
      list_id: listIds[0] ?? "",
      state: "SENT",
    })
    .execute();
  return { sendId, seq: 7, newsletterId, listIds, subscriberId, email };
}
