import type { EntityManager, Tenant } from "../../../db/orm.ts";
import { transaction } from "../../../db/transaction.ts";
import { type Edit, noteEdit } from "../../edits.ts";
import { ApiError } from "../../errors.ts";
import type { BlockSource } from "../../mail/blocks/compile.ts";
import { compileInThread } from "../../mail/examination.ts";
import { describeProblem, TemplateError } from "../../mail/template-problem.ts";
import { brandOf } from "../../teams/brand.ts";
import type { SendResource } from "../resource.ts";
import { BROADCASTS, type Broadcast, checkTemplates, MAX_BODY_BYTES, refuseCrowd, updateDraft } from "./drafts.ts";
import { readVersion } from "./versions.ts";

/** A mail as its writer sees it; without a subject the draft's stays. */
export type WrittenDocument = Omit<BlockSource, "brand"> & { subject?: string | null | undefined };

/**
 * The HTML of a draft, a step or a template in the team's brand.
 * @throws {ApiError} `validation_failed`; `rate_limit_exceeded` while too many others wait
 */
export async function compileDocument(
  em: EntityManager,
  { teamId }: Tenant,
  written: WrittenDocument,
): Promise<string> {
  refuseCrowd(teamId);
  const { blocks, preheader } = written;
  const source = { blocks, preheader, brand: await brandOf(em, teamId) };
  const html = await compileInThread(teamId, source).catch((error: unknown) => {
    if (!(error instanceof TemplateError)) throw error;
    const param = error.problem.kind === "limits" ? "blocks" : "preheader";
    throw new ApiError("validation_failed", `${param}: ${describeProblem(error.problem)}.`, { param });
  });
  if (Buffer.byteLength(html) <= MAX_BODY_BYTES) return html;
  const message = `The HTML of these blocks has more than ${MAX_BODY_BYTES} bytes.`;
  throw new ApiError("validation_failed", message, { param: "blocks" });
}

/**
 * Saves a document with the HTML that it compiles to.
 * @param em in no transaction @throws {ApiError} as `compileDocument`, `checkTemplates`, `noteEdit` and `updateDraft`
 */
export async function saveDocument(
  em: EntityManager,
  tenant: Tenant,
  { type, id }: SendResource,
  written: WrittenDocument,
  edit: Edit | null,
): Promise<Broadcast> {
  const { subject, preheader, blocks } = written;
  const body = await compileDocument(em, tenant, written);
  await checkTemplates(tenant, { subject, body });
  return transaction(em, async (tx) => {
    await noteEdit(tx, edit);
    const patch = { subject, preheader, blocks, body };
    return (await updateDraft(tx, BROADCASTS[type], id, patch, edit)).record;
  });
}

/** Puts a version in the place of the content, which becomes a version. @throws {ApiError} `not_found`; as `updateDraft` */
export async function restoreVersion(
  em: EntityManager,
  { type, id }: SendResource,
  versionId: string,
  edit: Edit | null,
): Promise<Broadcast> {
  const { subject, preheader, blocks, body } = await readVersion(em, id, versionId);
  const content = { subject, preheader, blocks, body };
  return (await updateDraft(em, BROADCASTS[type], id, content, edit, { isLasting: true })).record;
}
