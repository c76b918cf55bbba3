import { SWITCH_OFF_FAILURES, SWITCH_OFF_HOURS } from "../../domain/webhooks/endpoint-health.ts";
import { claimNotices, type DueNotice, settleNotice } from "../../domain/webhooks/notices.ts";
import type { ActivityDeps } from "../deps.ts";
import { sendDue } from "../system-mail.ts";

/** Mails the owners of endpoints that were switched off. */
export const sendDueNotices = (deps: Pick<ActivityDeps, "env" | "orm" | "log" | "stopping">): Promise<number> =>
  sendDue<DueNotice>(deps, {
    claim: claimNotices,
    settle: (em, { webhookId }) => settleNotice(em, webhookId),
    groupOf: ({ teamId }) => teamId,
    compose,
    aboutOf: ({ webhookId }) => ({ webhookId }),
  });

function compose({ webhookId, name, url, teamName, emails: to }: DueNotice) {
  return {
    to,
    subject: `Webhook switched off: ${name}`,
    text: [
      `The webhook endpoint "${name}" of ${teamName} (${webhookId}, ${new URL(url).host}) has been switched off: for ${SWITCH_OFF_HOURS} hours nothing could be delivered to it, and at least ${SWITCH_OFF_FAILURES} attempts in a row failed.`,
      "Its events are kept for 30 days. Once the endpoint works, switch it on again (PATCH it with active: true) and replay what it missed.",
    ].join("\n\n"),
  };
}
