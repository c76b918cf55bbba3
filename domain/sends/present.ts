import type { SendCap } from "./gates.ts";

const capBody = ({ limit, usedToday, remaining }: SendCap) => ({ limit, used_today: usedToday, remaining });

interface SendFacts {
  sendId: string;
  newsletterId: string;
  recipients: number;
  sendAt: Date;
  cap: SendCap;
}

/** The whole answer to a confirm, as it is stored with the effect and replayed. */
export function sendAnswer(requestId: string, facts: SendFacts) {
  return {
    data: {
      object: "newsletter_send",
      id: facts.sendId,
      newsletter_id: facts.newsletterId,
      status: "SCHEDULED",
      recipients: facts.recipients,
      credits_reserved: facts.recipients,
      send_at: facts.sendAt.toISOString(),
      send_cap: capBody(facts.cap),
    },
    meta: { request_id: requestId, dry_run: false },
  };
}
