import { sql } from "kysely";
import type { FieldValues } from "../../db/entities/contact.ts";
import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import { shownAddress } from "../address.ts";
import type { MailedRow } from "../audience/unsubscribes.ts";
import { showInThread } from "../mail/examination.ts";
import { trackingUrl, unsubscribeUrl, webUrl } from "../mail/links.ts";
import { mergeValuesOf, type ShownMessage } from "../mail/message.ts";
import type { Vault } from "../secrets/crypto.ts";
import { readInThread } from "./drafts/drafts.ts";
import { readResourceContent } from "./ledger/content.ts";

/**
 * The mail of a recipient as it was sent, but untracked; undefined when the names in the ledger are kept no longer.
 * @throws {ApiError} as `readInThread`
 */
export async function showSentMail(
  em: EntityManager,
  vault: Vault,
  publicUrl: string,
  mail: MailedRow,
): Promise<ShownMessage | undefined> {
  const { sendId, seq, teamId, resourceType, resourceId, listId } = mail;
  const { rows } = await sql<{ firstName: string | null; lastName: string | null; fields: FieldValues | null }>`
    select r.first_name as "firstName", r.last_name as "lastName", r.fields
    from send_recipients r join sends s on s.id = r.send_id and ${ofTenant(mail, "s")}
    where r.send_id = ${sendId} and r.seq = ${seq} and s.ledger_state = 'COMPLETE'`.execute(kysely(em));
  const [person] = rows;
  if (!person) return undefined;
  const resource = { type: resourceType, id: resourceId };
  const { subject, body, footer, listNames } = await readResourceContent(em, mail, resource, sendId);
  const values = mergeValuesOf({
    ...person,
    fields: person.fields ?? undefined,
    email: shownAddress(mail),
    listName: listId === null ? undefined : listNames.get(listId),
    unsubscribeUrl: unsubscribeUrl(vault, publicUrl, mail),
    trackingUrl: trackingUrl(vault, publicUrl, mail),
    webUrl: webUrl(vault, publicUrl, mail),
  });
  // A link of the footer would lead from the page to itself.
  const content = { subject, html: body, footer: { ...footer, isOnWeb: false } };
  return readInThread(teamId, () => showInThread(teamId, "show", content, values));
}
