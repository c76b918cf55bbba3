import { LockMode } from "@mikro-orm/postgresql";
import { sql } from "kysely";
import { EmailAccount } from "../../../db/entities/account.ts";
import { Segment } from "../../../db/entities/contact.ts";
import { type Campaign, Newsletter } from "../../../db/entities/send.ts";
import type { EntityManager, Tenant } from "../../../db/orm.ts";
import { MAX_NAME_LENGTH } from "../../audience/rules.ts";
import type { SendResource } from "../resource.ts";
import { attachLists, BROADCASTS, type Broadcast, createDraft, readBroadcast, sequenceRefusal } from "./drafts.ts";

/**
 * Makes a draft with the content, the sender and the targets of another one, or of one that was sent. What was deleted
 * meanwhile is left out.
 * @throws {ApiError} `not_found`; `resource_state_invalid` for a sequence; as `createDraft`
 */
export async function duplicateDraft(
  em: EntityManager,
  tenant: Tenant,
  { type, id }: SendResource,
  limit: number,
): Promise<Broadcast> {
  const source = await readBroadcast(em, BROADCASTS[type], id);
  if ("isDrip" in source && source.isDrip) throw sequenceRefusal();
  const { subject = null, body = null, fromName = null, preheader, blocks, sendDays, tracking } = source;
  const name = [...`Copy of ${source.name}`].slice(0, MAX_NAME_LENGTH).join("");
  const own = source instanceof Newsletter ? { fromEmail: source.fromEmail } : await targetsOf(em, source);
  const fields = { name, subject, preheader, body, blocks, fromName, sendDays, tracking, ...own };
  const copy = await createDraft(em, tenant, type, fields, limit);
  if (source instanceof Newsletter) {
    const targeted = sql`l.id in (select list_id from newsletter_lists where newsletter_id = ${id})`;
    await attachLists(em, tenant, copy.id, targeted);
  }
  return copy;
}

async function targetsOf(em: EntityManager, { segmentId, accountIds }: Campaign) {
  const lock = { lockMode: LockMode.PESSIMISTIC_READ };
  const segment = segmentId ? await em.findOne(Segment, { id: segmentId, deletedAt: null }, lock) : null;
  const accounts = await em.find(EmailAccount, { id: { $in: accountIds } }, { fields: ["id"] });
  const known = new Set(accounts.map((account) => account.id));
  return { segmentId: segment?.id ?? null, accountIds: accountIds.filter((account) => known.has(account)) };
}
