import { classOfStatus } from "../mail/enhanced-status.ts";
import { readReply, specificityOf } from "./quoted-reply.ts";
import type { ReportFinding } from "./record.ts";
import { classifyReply, type QuotedReply } from "./reply-rules.ts";
import type { ReportedRecipient } from "./report.ts";

/** A bounce as a provider reports it. A text that is null counts as absent. */
export interface ProviderBounce {
  /** Of the recipient's server. */
  reply?: string | null | undefined;
  /** Its enhanced code, where the provider gives it by itself. */
  status?: string | null | undefined;
  /** The provider's own word. */
  isPermanent: boolean;
  /** The provider's own word: the bounce is about the mail or its sender. */
  isSendersFault?: boolean;
}

type ClassifiedBounce = Pick<ReportedRecipient, "kind" | "isSendersFault">;

/** Its subject is another than the address: "mailbox disabled", "routing loop". */
const namesOtherSubject = ({ status }: QuotedReply): boolean =>
  specificityOf(status) > 1 && ![undefined, "unknown"].includes(classOfStatus(status));

/** A reply for good, of a server, whose words are hard without its codes. */
const hasHardWords = (reply: QuotedReply): boolean =>
  (reply.status.startsWith("5.") || (reply.code ?? 0) >= 500) &&
  classifyReply({ ...reply, status: "", code: undefined }).kind === "hard";

/**
 * Classifies a bounce by the server's reply, as the same reply in a bounce by mail. The provider's own word decides only where
 * the reply says nothing that a rule knows: providers call each 5xx permanent, also a block list's.
 */
export function classifyBounce({ isPermanent, isSendersFault = false, ...given }: ProviderBounce): ClassifiedBounce {
  const reply = readReply(given.reply ?? "", "", given.status ?? "");
  const found = classifyReply(reply);
  // The code alone does not outweigh "for now".
  if (found.kind === "hard") {
    return { kind: isPermanent || hasHardWords(reply) ? "hard" : "soft", isSendersFault: false };
  }
  if (found.hasRule || found.isSendersFault) return { kind: "soft", isSendersFault: found.isSendersFault };
  const isHard = isPermanent && !isSendersFault && !namesOtherSubject(reply);
  return { kind: isHard ? "hard" : "soft", isSendersFault };
}

export const findingOf = ({ kind, isSendersFault }: ClassifiedBounce): ReportFinding =>
  kind === "hard" ? { kind: "bounce:hard" } : { kind: "bounce:soft", isSendersFault };

/** As `classifyBounce`, for a provider's webhook. */
export const bounceFinding = (bounce: ProviderBounce): ReportFinding => findingOf(classifyBounce(bounce));
