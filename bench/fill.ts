import { composeMessage, type MessageContent, type MessageRecipient } from "../domain/mail/message.ts";
import { BODY, SUBJECT } from "./audience.ts";
import { type BenchReport, median, round } from "./report.ts";

export interface FillOptions {
  messages: number;
  repeat: number;
}

const FROM = { fromEmail: "news@sender.example", fromName: "The Gardener" };

/** Templates that are filled in different ways: by joining strings, with encoding, by a whole template engine. */
const CONTENTS: Record<string, MessageContent> = {
  "plain tags": { ...FROM, subject: SUBJECT, html: BODY },
  "non-ASCII": {
    ...FROM,
    subject: "Grüße für {{ first_name }}",
    html: BODY.replaceAll("garden in late summer", "Gärten im Spätsommer, fünf an der Zahl"),
  },
  filters: {
    ...FROM,
    subject: "News for {{ first_name | upcase }}",
    html: BODY.replace("{{ first_name }}", '{{ first_name | default: "reader" | capitalize }}'),
  },
};

export const recipient = (i: number): MessageRecipient => ({
  email: `person${i}@audience.example`,
  firstName: `First${i}`,
  lastName: `Last${i}`,
  listName: "Readers",
  unsubscribeUrl: `https://mail.example.com/u/01h455vb4pex5vsknk084sn02q.${i.toString(36)}.AbCdEfGhIjKlMnOpQrStUv`,
  messageId: `${i}.send_01h455vb4pex5vsknk084sn02q@sender.example`,
  date: new Date(),
});

/** How many messages one process fills in a second. */
export async function benchFill({ messages, repeat }: FillOptions): Promise<BenchReport> {
  const rates: Record<string, number[]> = {};
  const bytes: Record<string, number> = {};
  for (let run = 0; run <= repeat; run++) {
    for (const [name, content] of Object.entries(CONTENTS)) {
      const composed = composeMessage(content);
      const startedAt = performance.now();
      for (let i = 0; i < messages; i++) bytes[name] = composed.fill(recipient(i)).message.length;
      const seconds = (performance.now() - startedAt) / 1_000;
      // The first run is the compiler's.
      if (run > 0) rates[name] = [...(rates[name] ?? []), messages / seconds];
    }
  }
  return {
    bench: "fill",
    options: { messages, repeat },
    tables: {
      "Messages filled": Object.entries(rates).map(([content, values]) => ({
        content,
        "per second, median": round(median(values)),
        "us each": round(1e6 / median(values), 1),
        bytes: bytes[content] ?? 0,
      })),
    },
    problems: [],
  };
}
