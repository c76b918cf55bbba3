import type { QuotedReply, ReplyStage } from "./reply-rules.ts";

/**
 * The command that a reply answers, as Postfix ("in reply to"), Exim ("after"), Sendmail and Courier (">>>"), Gmail (numbered
 * states) and others name it. The last phrase counts: transcripts list the commands in order.
 */
const STAGES: Readonly<Record<ReplyStage, RegExp>> = {
  rcpt: /in reply to rcpt to|after (?:pipelined )?rcpt (?:to|command)|>>> ?rcpt to|our rcpt to|\[rcpt_?to\]|smtp:rcpt|does not like recipient|in rcpt to|sent <<< rcpt to|rcpt to (?:command|response)|smtp command:? rcpt|(?:-->|=>|c:) ?rcpt|rcpt to(?: generated| command| failed|:? ?<[^<>]{1,320}>)|recipient address:? rejected|rejected (?:the )?recipient|\(state 1[34]\)/g,
  data: /in reply to (?:end of )?data|after (?:end of data|transfer of mail|pipelined (?:end of )?data|sending data|data\b)|>>> ?data|smtp command:? data|(?:-->|=>|c:) ?data|<crlf>\.<crlf>|our (?:final )?data|\[data\]|smtp:data|failed (?:after i sent the message|on data command)|\(state 1[78]\)|after i sent the message/g,
  other:
    /(?:in reply to|after(?: pipelined)?|our|>>>) ?(?:initial (?:connection|server greeting)|mail from|[el]hlo|helo|starttls|auth)\b|(?:my name|sender) was rejected|greeting failed|while talking to \S{1,255} <<<|\[mail_?from\]|smtp:(?:mail|conn|helo|ehlo)|refused to talk to me|does not like (?:my )?sender|i was refused/g,
};

/** RFC 2920: DATA was sent along, and RCPT was refused before it. */
const NO_RECIPIENT = /no valid recipients|need rcpt/;

function stageOf(text: string): ReplyStage | undefined {
  let last: { stage: ReplyStage; at: number } | undefined;
  for (const stage of ["rcpt", "data", "other"] as const) {
    for (const { index } of text.matchAll(STAGES[stage])) {
      if (last === undefined || index > last.at) last = { stage, at: index };
    }
  }
  return last?.stage === "data" && NO_RECIPIENT.test(text) ? "rcpt" : last?.stage;
}

/** Cisco's gateways put it before the reply that they quote. "One or more recipients" says nothing of any. */
const NO_REASON =
  /\d\.\d\.\d - (?:unknown address error|bad destination host|other network problem)(?= ?\d{3}-?')|one or more (?:of (?:its|the|your) )?recipients/g;

const ENHANCED = /(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.])/g;
const CODE = /(?<![\d.#-])([45]\d{2})(?=[ -]|:|$)/;
/** Of further lines: once joined, they interrupt the reply's sentences. */
const FURTHER_CODES = /(?<=\S) [245]\d{2}[- ](?:[245]\.\d{1,3}\.\d{1,3} )?/g;

/** Their words tell nothing about the failure: spam@example.net. */
const ANY_ADDRESS = /[^\s<>"()[\],;:|{}]{1,64}@[\p{L}\p{N}.-]{1,253}/gu;
const DOMAIN = /(?<![\w.@-])[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?![\w@-])/g;

/** Servers give the reason at its beginning. */
const MAX_REPLY_CHARS = 4_000;

/** X.0.0 says the class alone, X.Y.0 the subject, any other the detail. */
export const specificityOf = (status: string): number =>
  status === "" ? 0 : /\.0\.\d+$/.test(status) ? 1 : status.endsWith(".0") ? 2 : 3;

const squeeze = (text: string): string => text.toLowerCase().replace(/\s+/g, " ").trim();

/**
 * @param around text that may name the command that the reply answers
 * @param status code that the report gives
 * @param senders addresses and domains of the mail's sender, in lower case: what names one of them is about the sender
 */
export function readReply(text: string, around = "", status = "", senders: readonly string[] = []): QuotedReply {
  const words = squeeze(text.slice(0, MAX_REPLY_CHARS))
    .replace(ANY_ADDRESS, (address) => (senders.includes(address) ? "sender@b.example" : "a@b.example"))
    .replace(DOMAIN, (domain) => (senders.includes(domain) ? "sender.example" : domain))
    .replace(NO_REASON, "");
  const codes = [...words.matchAll(ENHANCED)].map(([, found = ""]) => found);
  // Of several that are as specific, the reply's come before the report's.
  const [specific = ""] = [...codes, status].toSorted((a, b) => specificityOf(b) - specificityOf(a));
  const code = CODE.exec(words)?.[1];
  return {
    status: specific,
    code: code === undefined ? undefined : Number(code),
    text: words.replace(FURTHER_CODES, " "),
    // Relays that name no command quote what a server said to RCPT.
    stage:
      stageOf(words) ??
      stageOf(squeeze(around)) ??
      (/\bsa(?:id|ys):\s{0,9}5/.test(`${words} ${around}`) ? "rcpt" : undefined),
  };
}
