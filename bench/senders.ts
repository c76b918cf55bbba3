import { setImmediate as nextTurn } from "node:timers/promises";
import SMTPConnection from "nodemailer/lib/smtp-connection";
import { SmtpPool } from "../activities/smtp/pool.ts";
import { composeMessage, type FilledMessage, type MessageRecipient } from "../domain/mail/message.ts";
import { LOOPBACK_ONLY, within } from "../test/support/smtp-guard.ts";
import { BODY, SUBJECT } from "./audience.ts";
import type { Sink } from "./smtp-sink.ts";

const BATCH = 50;

/** The recipient number `i` of a measurement without Postgres. */
export const recipient = (i: number): MessageRecipient => ({
  email: `person${i}@audience.example`,
  firstName: `First${i}`,
  lastName: `Last${i}`,
  listName: "Readers",
  unsubscribeUrl: `https://mail.example.com/u/01h455vb4pex5vsknk084sn02q.${i.toString(36)}.AbCdEfGhIjKlMnOpQrStUv`,
  messageId: `${i}.send_01h455vb4pex5vsknk084sn02q@sender.example`,
  date: new Date(),
});

/** The message of the measured newsletters, filled for one recipient. */
export const benchMessage = (): FilledMessage =>
  composeMessage({ subject: SUBJECT, html: BODY, fromEmail: "news@sender.example" }).fill(recipient(1));

/** Plain nodemailer: so many connections, each sends one message after the other. */
export async function sendPlain(
  sink: Sink,
  { envelope, message }: FilledMessage,
  messages: number,
  connections: number,
): Promise<void> {
  let left = messages;
  const work = async () => {
    const connection = new SMTPConnection({ host: sink.host, port: sink.port, ignoreTLS: true, logger: false });
    await new Promise<void>((resolve, reject) => {
      connection.once("error", reject);
      connection.connect((error) => (error ? reject(error) : resolve()));
    });
    while (left-- > 0) {
      await new Promise<void>((resolve, reject) =>
        connection.send({ from: envelope.from, to: [envelope.to] }, message, (error) =>
          error ? reject(error) : resolve(),
        ),
      );
    }
    connection.quit();
    connection.close();
  };
  await Promise.all(Array.from({ length: connections }, work));
}

/** Sends messages over the pool, each as `fill` makes it. @throws {Error} when one was not sent */
export async function sendPooled(
  sink: Sink,
  fill: () => FilledMessage,
  messages: number,
  connections: number,
): Promise<void> {
  const pool = new SmtpPool({
    host: sink.host,
    port: sink.port,
    guard: LOOPBACK_ONLY,
    secure: "none",
    limits: within(30_000),
    maxConnections: connections,
  });
  const problems = new Set<string>();
  async function* batches() {
    for (let done = 0; done < messages; done += BATCH) {
      yield new Array<undefined>(Math.min(BATCH, messages - done)).fill(undefined);
      await nextTurn();
    }
  }
  for await (const mailed of pool.drain(batches(), { fill })) {
    for (const { outcome } of mailed) if (outcome.outcome !== "sent") problems.add(outcome.reason);
  }
  await pool.close({ graceMs: 5_000 });
  if (problems.size > 0) throw new Error(`messages were not sent: ${[...problems].join(", ")}`);
}
