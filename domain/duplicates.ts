import { LockMode } from "@mikro-orm/postgresql";
import { sql } from "kysely";
import type { Env } from "../config/env.ts";
import { EmailAccount } from "../db/entities/account.ts";
import { Segment } from "../db/entities/contact.ts";
import { type Campaign, Newsletter, RESOURCE_TYPES } from "../db/entities/send.ts";
import type { EntityManager, Tenant } from "../db/orm.ts";
import { MAX_NAME_LENGTH } from "./audience/rules.ts";
import { createSegment, lockSegment } from "./audience/segments/segments.ts";
import {
  attachLists,
  BROADCASTS,
  type Broadcast,
  createDraft,
  readBroadcast,
  sequenceRefusal,
} from "./sends/drafts/drafts.ts";
import { addTemplate, readTemplate } from "./sends/drafts/templates.ts";
import type { SendResource } from "./sends/resource.ts";
import { createSequence } from "./sequences/sequences.ts";
import { readSequence } from "./sequences/state.ts";
import { copySteps } from "./sequences/steps.ts";

/** Kinds of records that members write. */
export const WRITTEN = [...RESOURCE_TYPES, "sequence", "segment", "template"] as const;

interface Original {
  type: (typeof WRITTEN)[number];
  id: string;
}

type Limits = Pick<Env, "MAX_NEWSLETTERS" | "MAX_CAMPAIGNS">;

/**
 * Makes another record of what a member has written, in the caller's transaction. Of a newsletter, campaign or sequence it is a
 * draft, without people or figures.
 * @throws {ApiError} `not_found`; `resource_state_invalid` for a sequence that is named as a campaign; as `createDraft`,
 *   `createSequence`, `createSegment` and `addTemplate`
 */
export async function duplicate(
  em: EntityManager,
  tenant: Tenant,
  { type, id }: Original,
  limits: Limits,
): Promise<{ id: string; name: string }> {
  switch (type) {
    case "sequence": {
      const source = await readSequence(em, id, { tenant });
      const copy = { ...source, name: nameOfCopy(source) };
      const copyId = await createSequence(em, tenant, copy, limits.MAX_CAMPAIGNS);
      await copySteps(em, id, copyId);
      return { id: copyId, name: copy.name };
    }
    case "segment": {
      const source = await lockSegment(em, id, LockMode.PESSIMISTIC_READ);
      return createSegment(em, tenant, { name: nameOfCopy(source), conditions: source.conditions });
    }
    case "template": {
      const source = await readTemplate(em, id);
      const { subject, preheader, body, blocks } = source;
      return addTemplate(em, tenant, { name: nameOfCopy(source), subject, preheader, body, blocks });
    }
    default:
      return duplicateDraft(em, tenant, { type, id }, limits);
  }
}

const nameOfCopy = ({ name }: { name: string }) => [...`Copy of ${name}`].slice(0, MAX_NAME_LENGTH).join("");

/**
 * With the content, the sender and the targets of one that may be sent already. What was deleted meanwhile is left out, but not the
 * segment of a newsletter: the copy would go to all people of its lists.
 */
async function duplicateDraft(
  em: EntityManager,
  tenant: Tenant,
  { type, id }: SendResource,
  limits: Limits,
): Promise<Broadcast> {
  const source = await readBroadcast(em, BROADCASTS[type], id);
  if ("isDrip" in source && source.isDrip) throw sequenceRefusal();
  const { subject = null, body = null, fromName = null, preheader, blocks, sendDays, tracking } = source;
  const own =
    source instanceof Newsletter
      ? { fromEmail: source.fromEmail, segmentId: source.segmentId ?? null }
      : await targetsOf(em, source);
  const name = nameOfCopy(source);
  const fields = { name, subject, preheader, body, blocks, fromName, sendDays, tracking, ...own };
  const limit = type === "newsletter" ? limits.MAX_NEWSLETTERS : limits.MAX_CAMPAIGNS;
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
