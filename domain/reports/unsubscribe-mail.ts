import { UNSUBSCRIBE_SUBJECT } from "../mail/links.ts";
import { classifyMail } from "./classify.ts";
import { type IncomingMail, parseIncomingMail, saysAutomatic } from "./incoming-mail.ts";

/** Of programs that say it in no header. */
const ANSWER_SUBJECT =
  /^(?:auto(?:matic|mated|matische)?[ -]?(?:reply|response|answer|antwort)|auto ?: |out of (?:the )?office|away from|on vacation|abwesen|réponse automatique|respuesta automática|risposta automatica|自动回复|自動回覆|不在)/i;

function isAutomatic(mail: IncomingMail): boolean {
  if (/^multipart\/report\b/i.test(mail.header("content-type"))) return true;
  if (/^(?:bulk|junk|list)$/i.test(mail.header("precedence").trim()) || saysAutomatic(mail)) return true;
  const subject = mail.subject.trim();
  if (ANSWER_SUBJECT.test(subject)) return true;
  // RFC 3834, 5. A program that unsubscribes for its reader may call its mail generated, but no answer has this subject.
  const submitted = /^[a-z-]*/i.exec(mail.header("auto-submitted"))?.[0].toLowerCase() ?? "";
  if (submitted === "auto-generated") return subject.toLowerCase() !== UNSUBSCRIBE_SUBJECT;
  return submitted !== "" && submitted !== "no";
}

/**
 * Every mail to an unsubscribe address asks for it, except an automatic answer or a report (RFC 3834). `From` is not read,
 * because people have several addresses.
 * @param sender of the envelope; empty for reports and most answers (RFC 5321, 4.5.5)
 */
export async function isUnsubscribeRequest(raw: Uint8Array, sender: string): Promise<boolean> {
  if (sender === "") return false;
  const mail = await parseIncomingMail(raw);
  if (mail === undefined || isAutomatic(mail)) return false;
  return (await classifyMail(raw)).kind === "none";
}
