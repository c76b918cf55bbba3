import { SmtpPool, type SmtpPoolOptions } from "../../activities/smtp/pool.ts";
import type { FilledMessage } from "../../domain/mail/message.ts";
import { type MailOutcome, NOT_ATTEMPTED } from "../../domain/mail/outcome.ts";
import { LOOPBACK_ONLY, within } from "../support/smtp-guard.ts";
import { type Sink, type SinkOptions, startSink } from "./smtp-sink.ts";

/** Sends one message. Never rejects: every SMTP failure is an outcome. */
export async function sendOne(pool: SmtpPool, filled: FilledMessage): Promise<MailOutcome> {
  let result = NOT_ATTEMPTED;
  const once = (async function* () {
    yield [filled];
  })();
  for await (const mailed of pool.drain(once, { fill: (message) => message })) {
    for (const { outcome } of mailed) result = outcome;
  }
  return result;
}

export class TestPool extends SmtpPool {
  send = (filled: FilledMessage) => sendOne(this, filled);
}

interface SmtpSuite {
  /** Clean-ups that run after the test, the last one first. */
  stops: (() => Promise<unknown>)[];
  sinkWith(options?: SinkOptions): Promise<Sink>;
  poolAt(port: number, options?: Partial<SmtpPoolOptions>): TestPool;
}

/** Cleans up in the suite that calls it. @param maxConnections of a pool, unless its test says otherwise */
export function smtpSuite(maxConnections: number): SmtpSuite {
  const stops: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
  });
  return {
    stops,
    async sinkWith(options = {}) {
      const sink = await startSink(options);
      stops.push(() => sink.close());
      return sink;
    },
    poolAt(port, options = {}) {
      const fixed = { host: "127.0.0.1", port, guard: LOOPBACK_ONLY, secure: "none", limits: within(5_000) } as const;
      const pool = new TestPool({ ...fixed, maxConnections, ...options });
      stops.push(() => pool.close({ graceMs: 0 }));
      return pool;
    },
  };
}
