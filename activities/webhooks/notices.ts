import { transaction } from "../../db/transaction.ts";
import { SWITCH_OFF_FAILURES, SWITCH_OFF_HOURS } from "../../domain/webhooks/endpoint-health.ts";
import { claimNotices, type DueNotice, settleNotice } from "../../domain/webhooks/notices.ts";
import type { ActivityDeps } from "../deps.ts";
import { openTransport, PERMANENT, replyCode } from "../system-mail.ts";

const BATCH = 20;

type Deps = Pick<ActivityDeps, "env" | "orm" | "log">;

/** Mails the owners of endpoints that were switched off. A crash repeats a notice; one that the server refuses for good is given up. */
export async function sendDueNotices({ env, orm, log }: Deps): Promise<void> {
  const due = await transaction(orm.em, (em) => claimNotices(em, BATCH));
  if (due.length === 0) return;
  const transport = openTransport(env);
  try {
    for (const notice of due) {
      try {
        if (notice.emails.length > 0) {
          await transport.sendMail({ from: env.SYSTEM_FROM, to: notice.emails, ...compose(notice) });
        }
      } catch (error) {
        const code = replyCode(error);
        log.warn({ webhookId: notice.webhookId, code }, "notice not accepted");
        if (code === undefined || code < PERMANENT) continue;
      }
      await settleNotice(orm.em.fork(), notice.webhookId);
    }
  } finally {
    transport.close();
  }
}

function compose({ webhookId, name, url, teamName }: DueNotice) {
  return {
    subject: `Webhook switched off: ${name}`,
    text: [
      `The webhook endpoint "${name}" of ${teamName} (${webhookId}, ${new URL(url).host}) has been switched off: for ${SWITCH_OFF_HOURS} hours nothing could be delivered to it, and at least ${SWITCH_OFF_FAILURES} attempts in a row failed.`,
      "Its events are kept for 30 days. Once the endpoint works, switch it on again (PATCH it with active: true) and replay what it missed.",
    ].join("\n\n"),
    headers: { "Auto-Submitted": "auto-generated" },
  };
}
