import { generateKeyPairSync } from "node:crypto";
import { type DkimSigner, dkimSigner } from "../domain/mail/dkim.ts";
import { composeMessage } from "../domain/mail/message.ts";
import { BODY, SUBJECT } from "./audience.ts";
import { type BenchReport, median, type Row, round } from "./report.ts";
import { recipient, sendPooled } from "./senders.ts";
import { startSink } from "./smtp-sink.ts";

export interface DkimOptions {
  messages: number;
  repeat: number;
  connections: number;
}

const KEY = { domain: "sender.example", selector: "bench" } as const;

const SIGNERS: Record<string, DkimSigner | undefined> = {
  unsigned: undefined,
  ed25519: dkimSigner([{ ...KEY, algorithm: "ed25519", privateKey: generateKeyPairSync("ed25519").privateKey }]),
  "rsa, 2048 bits": dkimSigner([
    { ...KEY, algorithm: "rsa", privateKey: generateKeyPairSync("rsa", { modulusLength: 2_048 }).privateKey },
  ]),
};

/**
 * Measures the cost of a signature: mails are filled, signed and sent to a sink, with all kinds of signatures in turns.
 */
export async function benchDkim({ messages, repeat, connections }: DkimOptions): Promise<BenchReport> {
  const composed = composeMessage({ subject: SUBJECT, html: BODY, fromEmail: "news@sender.example" });
  const sink = await startSink();
  const problems: string[] = [];
  const run = async (sign: DkimSigner | undefined) => {
    await sink.clear(0);
    const [all, thread] = [process.cpuUsage(), process.threadCpuUsage()];
    let filled = 0;
    const fill = () => {
      const mail = composed.fill(recipient(filled++));
      return sign ? { ...mail, signature: sign(mail.message) } : mail;
    };
    await sendPooled(sink, fill, messages, connections);
    const [allAfter, threadAfter] = [process.cpuUsage(all), process.threadCpuUsage(thread)];
    const { received, firstAt, lastAt } = await sink.stats();
    if (received !== messages) problems.push(`${messages} mails were sent, ${received} arrived`);
    const per10k = ({ user, system }: NodeJS.CpuUsage) => ((user + system) / 1e6 / messages) * 10_000;
    return {
      rate: messages / (((lastAt ?? 0) - (firstAt ?? 0)) / 1_000),
      all: per10k(allAfter),
      thread: per10k(threadAfter),
    };
  };
  try {
    const kinds = Object.entries(SIGNERS).map(([kind, sign]) => ({
      kind,
      sign,
      runs: [] as Awaited<ReturnType<typeof run>>[],
    }));
    for (let i = 0; i <= repeat; i++) {
      // The first run of each warms up.
      for (const { sign, runs } of kinds) {
        const measured = await run(sign);
        if (i > 0) runs.push(measured);
      }
    }
    const rates = kinds.map(({ runs }) => median(runs.map(({ rate }) => rate)));
    const rows = kinds.map(
      ({ kind, runs }, i): Row => ({
        kind,
        "mails/s": round(rates[i] ?? 0),
        "of unsigned": round((rates[i] ?? 0) / (rates[0] ?? 0), 2),
        "CPU s / 10,000": round(median(runs.map(({ all }) => all)), 2),
        "of the main thread": round(median(runs.map(({ thread }) => thread)), 2),
      }),
    );
    return {
      bench: "dkim",
      options: { messages, repeat, connections },
      tables: { "Mails filled, signed and sent over the pool": rows },
      problems,
    };
  } finally {
    sink.close();
  }
}
