import type { EntityManager, Tenant } from "../../../db/orm.ts";
import type { ProbeUrl } from "../../../lib/fetch-text.ts";
import { prepareInThread } from "../../mail/examination.ts";
import { type CheckedLink, checkLinks, MAX_CHECKED_LINKS } from "../../mail/link-check.ts";
import { TemplateError } from "../../mail/template-problem.ts";
import type { MailResource } from "../resource.ts";
import { readDraft } from "./draft.ts";
import { refuseCrowd, templateRefusal } from "./drafts.ts";

/**
 * Asks the links of a draft, each once; those with a merge tag and those below `ownUrl` are no part of it.
 * @param signal ends the check
 * @returns `left`: the number of further links @throws {ApiError} as `showDraft`
 */
export async function checkDraftLinks(
  em: EntityManager,
  tenant: Tenant,
  resource: MailResource,
  { probe, ownUrl, signal }: { probe: ProbeUrl; ownUrl: string; signal: AbortSignal },
): Promise<{ links: CheckedLink[]; left: number }> {
  const { body } = await readDraft(em, tenant, resource, { lock: false });
  refuseCrowd(tenant.teamId);
  const content = { subject: "", html: body ?? "", fromEmail: "", tracking: { ownUrl } };
  const { links = [] } = await prepareInThread(tenant.teamId, content).catch((error: unknown) => {
    throw error instanceof TemplateError ? templateRefusal(error.problem, "html") : error;
  });
  const urls = [...new Set(links.map(({ url }) => url))];
  return { links: await checkLinks(probe, urls, signal), left: Math.max(0, urls.length - MAX_CHECKED_LINKS) };
}
