/** Reports by mail over many connections, from a process of their own, so that its CPU is not the intake's. */
import { connect, type Socket } from "node:net";
import { answerEach, startModule } from "./own-process.ts";
import { quantile } from "./report.ts";

/** The mails that a run sends. */
export interface ReportLoad {
  port: number;
  /** The recipient of each mail. */
  recipients: string[];
  /** Whole mails that are sent in turns, with lines that end in CRLF. */
  mails: string[];
  connections: number;
}

/** The measurements of a run. */
export interface ReportLoadResult {
  seconds: number;
  /** Milliseconds from a mail's last byte to its answer. */
  p50: number;
  p99: number;
  /** Mails by the code of their answer. */
  answers: Record<string, number>;
}

/** Starts the process that makes load. */
export function startReportLoad(): { run(load: ReportLoad): Promise<ReportLoadResult>; close(): void } {
  const { ask, close } = startModule(import.meta.filename);
  return { run: ask, close };
}

/** Reads the codes of a server's answers, one after the other. */
async function* codesOf(socket: Socket): AsyncGenerator<number> {
  let rest = "";
  for await (const text of socket.setEncoding("latin1")) {
    const lines = `${rest}${text}`.split("\r\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line[3] === " ") yield Number(line.slice(0, 3));
  }
}

async function run({ port, recipients, mails, connections }: ReportLoad): Promise<ReportLoadResult> {
  const latencies: number[] = [];
  const answers: Record<string, number> = {};
  const startedAt = performance.now();
  let next = 0;
  const lane = async () => {
    const socket = connect({ port, host: "127.0.0.1", noDelay: true });
    const codes = codesOf(socket);
    const answered = async () => (await codes.next()).value ?? 0;
    await answered();
    socket.write("EHLO load.example\r\n");
    await answered();
    for (let turn = next++; turn < recipients.length; turn = next++) {
      socket.write(`MAIL FROM:<>\r\nRCPT TO:<${recipients[turn]}>\r\nDATA\r\n`);
      const before = [await answered(), await answered(), await answered()];
      let code = before.find((each) => each >= 400) ?? 0;
      if (before[2] === 354) {
        const sentAt = performance.now();
        socket.write(`${mails[turn % mails.length]}\r\n.\r\n`);
        code = await answered();
        latencies.push(performance.now() - sentAt);
      }
      answers[code] = (answers[code] ?? 0) + 1;
    }
    socket.end("QUIT\r\n");
  };
  await Promise.all(Array.from({ length: connections }, lane));
  const seconds = (performance.now() - startedAt) / 1_000;
  latencies.sort((a, b) => a - b);
  return { seconds, p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99), answers };
}

if (import.meta.main) answerEach(run);
