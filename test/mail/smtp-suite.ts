import { SmtpPool, type SmtpPoolOptions } from "../../activities/smtp/pool.ts";
import { LOOPBACK_ONLY, within } from "../support/smtp-guard.ts";
import { type Sink, type SinkOptions, startSink } from "./smtp-sink.ts";

/** Makers of servers and pools that close at the end of each test. */
interface SmtpSuite {
  /** Clean-ups that run after the test, the last one first. */
  stops: (() => Promise<unknown>)[];
  sinkWith(options?: SinkOptions): Promise<Sink>;
  /** A pool of connections to a port of 127.0.0.1. */
  poolAt(port: number, options?: Partial<SmtpPoolOptions>): SmtpPool;
}

/**
 * Registers the clean-up in the suite that calls it. @param maxConnections of a pool, unless its test says otherwise
 */
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
      const pool = new SmtpPool({ ...fixed, maxConnections, ...options });
      stops.push(() => pool.close({ graceMs: 0 }));
      return pool;
    },
  };
}
