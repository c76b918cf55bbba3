import { LockMode } from "@mikro-orm/postgresql";
import { type ResourceType, Template } from "../../../db/entities/send.ts";
import { Team } from "../../../db/entities/team.ts";
import type { EntityManager, Tenant } from "../../../db/orm.ts";
import { transaction } from "../../../db/transaction.ts";
import { moveToBin } from "../../bin/bin.ts";
import { orNotFound } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { withLogo } from "../../mail/blocks/logo.ts";
import type { BlockDocument } from "../../mail/blocks/schema.ts";
import { showInThread } from "../../mail/examination.ts";
import { SAMPLE } from "../../mail/template.ts";
import { BLANK, OWN_TEMPLATES } from "../../mail/templates/own.ts";
import { brandOf } from "../../teams/brand.ts";
import { holdPlace } from "../../teams/record-limit.ts";
import type { SendResource } from "../resource.ts";
import { compileDocument } from "./documents.ts";
import {
  BROADCASTS,
  type Broadcast,
  checkTemplates,
  createDraft,
  readBroadcast,
  readInThread,
  sequenceRefusal,
} from "./drafts.ts";

/** Of a team in an environment. */
export const MAX_TEMPLATES = 500;

/** Those of the team, without their content, by name. */
export const listTemplates = (em: EntityManager) =>
  em.find(Template, {}, { fields: ["name", "subject", "updatedAt"], orderBy: { name: "asc", id: "asc" } });

type Content = Pick<Template, "name" | "subject" | "preheader" | "body" | "blocks">;

/** In the caller's transaction. @throws {ApiError} `resource_limit_reached` */
export async function addTemplate(em: EntityManager, tenant: Tenant, content: Content): Promise<Template> {
  await holdPlace(em, tenant, { table: "templates", name: "templates" }, MAX_TEMPLATES);
  const template = em.create(Template, { id: newId("template"), ...tenant, ...content });
  await em.flush();
  return template;
}

/** Of the team alone. @throws {ApiError} `not_found` */
export const readTemplate = async (em: EntityManager, id: string): Promise<Template> =>
  orNotFound(await em.findOne(Template, { id }, { lockMode: LockMode.PESSIMISTIC_WRITE }));

/**
 * Saves the content of a newsletter or campaign, in the caller's transaction.
 * @param replaces the template whose place it takes
 * @throws {ApiError} `not_found` for either; `resource_state_invalid` for a sequence; `resource_limit_reached`
 */
export async function saveAsTemplate(
  em: EntityManager,
  tenant: Tenant,
  { type, id }: SendResource,
  { name, replaces }: { name: string; replaces?: string | undefined },
): Promise<Template> {
  const source = await readBroadcast(em, BROADCASTS[type], id);
  if ("isDrip" in source && source.isDrip) throw sequenceRefusal();
  const { subject = null, preheader = null, body = null, blocks = null } = source;
  const content = { name, subject, preheader, blocks, body: blocks === null ? body : null };
  if (replaces === undefined) return addTemplate(em, tenant, content);
  const template = Object.assign(await readTemplate(em, replaces), content);
  await em.flush();
  return template;
}

/** In the caller's transaction. @throws {ApiError} `not_found` */
export async function renameTemplate(em: EntityManager, id: string, name: string): Promise<void> {
  (await readTemplate(em, id)).name = name;
  await em.flush();
}

/** It waits in the bin; drafts that were made of it stay. @throws {ApiError} `not_found` */
export async function deleteTemplate(em: EntityManager, tenant: Tenant, id: string): Promise<void> {
  await moveToBin(em, tenant, { kind: "template", id, name: (await readTemplate(em, id)).name });
}

/**
 * The content of a template, compiled as the team's mails are now. The service's begin with the brand's logo.
 * @param id one of the team's, of `OWN_TEMPLATES`, or "blank" @throws {ApiError} `not_found`; as `compileDocument`
 */
async function composeTemplate(em: EntityManager, tenant: Tenant, id: string, { isShown = false } = {}) {
  const own = id === "blank" ? BLANK : OWN_TEMPLATES.get(id);
  const found: Partial<Content> = own ?? orNotFound(await em.findOne(Template, { id }));
  const { subject = null, preheader = null, body = null } = found;
  const blocks = own
    ? withLogo(own.blocks, await brandOf(em, tenant.teamId))
    : ((found.blocks ?? null) as BlockDocument | null);
  const shown = blocks && isShown ? withPlaceholders(blocks) : blocks;
  return {
    subject,
    preheader,
    blocks,
    body: shown ? await compileDocument(em, tenant, { blocks: shown, preheader }) : body,
  };
}

/**
 * Makes a draft with the content of a template.
 * @param em in no transaction @throws {ApiError} as `composeTemplate`, `checkTemplates` and `createDraft`
 */
export async function draftFromTemplate(
  em: EntityManager,
  tenant: Tenant,
  { type, name, template }: { type: ResourceType; name: string; template: string },
  limit: number,
): Promise<Broadcast> {
  const content = await composeTemplate(em, tenant, template);
  await checkTemplates(tenant, content);
  const { senderName: fromName = null, senderEmail: fromEmail = null } = await em.findOneOrFail(Team, {
    id: tenant.teamId,
  });
  const sender = { fromName, ...(type === "newsletter" && { fromEmail }) };
  return transaction(em, (tx) => createDraft(tx, tenant, type, { name, ...sender, ...content }, limit));
}

const NO_IMAGE = `<p style="margin:0;padding:64px 0;text-align:center;background:#e7e9ed;color:#57606a">Your image</p>`;

/** Shows where an image is to be chosen: a mail has nothing there. */
const withPlaceholders = (blocks: BlockDocument): BlockDocument =>
  JSON.parse(JSON.stringify(blocks), (_, node) =>
    node?.type === "image" && node.attrs.src === "" ? { type: "html", attrs: { html: NO_IMAGE } } : node,
  );

/** The HTML of a template, with made-up values. @throws {ApiError} as `composeTemplate` and `readInThread` */
export async function showTemplate(em: EntityManager, tenant: Tenant, id: string): Promise<string> {
  const { subject, body } = await composeTemplate(em, tenant, id, { isShown: true });
  const content = { subject: subject ?? "", html: body ?? "", footer: await brandOf(em, tenant.teamId) };
  return (await readInThread(tenant.teamId, () => showInThread(tenant.teamId, "show", content, SAMPLE))).html;
}
