import type { EntityManager, Tenant } from "../../../db/orm.ts";
import type { ProbeUrl } from "../../../lib/fetch-text.ts";
import { prepareInThread } from "../../mail/examination.ts";
import { type CheckedLink, checkLinks, MAX_CHECKED_LINKS } from "../../mail/link-check.ts";
import type { MailResource } from "../resource.ts";
import { readDraft } from "./draft.ts";
import { readInThread } from "./drafts.ts";

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
  const content = { subject: "", html: body ?? "", fromEmail: "", tracking: { ownUrl } };
  const { links = [] } = await readInThread(tenant.teamId, () => prepareInThread(tenant.teamId, content));
  const urls = [...new Set(links.map(({ url }) => url))];
  return { links: await checkLinks(probe, urls, signal), left: Math.max(0, urls.length - MAX_CHECKED_LINKS) };
}
