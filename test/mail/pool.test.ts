import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { createInterface, type Interface } from "node:readline";
import { mock } from "node:test";
import PostalMime from "postal-mime";
import { type SmtpAccount, type SmtpPool, type SmtpPoolOptions, verifyAccount } from "../../activities/smtp/pool.ts";
import { composeMessage, type FilledMessage } from "../../domain/mail/message.ts";
import type { MailOutcome } from "../../domain/mail/outcome.ts";
import { openSmtpGuard } from "../../domain/mail/smtp-guard.ts";
import { type DnsServer, startDnsServer } from "../support/dns-server.ts";
import { LOOPBACK_ONLY } from "../support/smtp-guard.ts";
import { type SinkOptions, startSink, until } from "./smtp-sink.ts";
import { smtpSuite } from "./smtp-suite.ts";

const composed = composeMessage({
  subject: "Hello {{ first_name }}",
  html: '<p>Dear {{ first_name }},</p>\n<p>.dots\n.\n..</p><a href="{{ unsubscribe_url }}">Unsubscribe</a>',
  fromEmail: "news@example.com",
});

const fill = (email: string, firstName = "Zoë"): FilledMessage =>
  composed.fill({
    email,
    firstName,
    unsubscribeUrl: "https://mail.example.com/u/1",
    messageId: "row-1@mail.example.com",
    date: new Date(),
  });

const TO = "jane.doe@example.org";

interface Expected extends Pick<MailOutcome, "outcome"> {
  reason?: MailOutcome["reason"];
  code?: number;
  enhanced?: string;
  response?: string;
  suppress?: boolean;
  policy?: boolean;
  temporary?: boolean;
}

describe("An SMTP pool", () => {
  const { stops, sinkWith, poolAt } = smtpSuite(10);

  /** The outcome of one message to a server with these faults. */
  const outcomeAt = async (options: SinkOptions, poolOptions: Partial<SmtpPoolOptions> = {}) => {
    const sink = await sinkWith(options);
    const result = await poolAt(sink.port, poolOptions).send(fill(TO));
    return { sink, result };
  };

  const assertResult = (result: MailOutcome, expected: Expected) =>
    assert.deepEqual({ ...result, ...expected }, result);

  /** Sends to these addresses in batches, or to batches of addresses; results by address. */
  const drainAll = async (
    pool: SmtpPool,
    addresses: readonly string[] | AsyncIterable<readonly string[]>,
    options: {
      batch?: number;
      signal?: AbortSignal;
      onResult?: () => void;
      maxPolicyRefusals?: number;
      fill?: (address: string) => FilledMessage;
    } = {},
  ) => {
    const size = options.batch ?? 20;
    const results = new Map<string, MailOutcome[]>();
    async function* batches() {
      if (Symbol.asyncIterator in addresses) yield* addresses;
      else for (let i = 0; i < addresses.length; i += size) yield addresses.slice(i, i + size);
    }
    const { signal, maxPolicyRefusals } = options;
    const drain = pool.drain(batches(), { fill: options.fill ?? fill, signal, maxPolicyRefusals });
    for await (const mailed of drain) {
      for (const { item, outcome } of mailed) {
        results.set(item, [...(results.get(item) ?? []), outcome]);
        options.onResult?.();
      }
    }
    return { end: drain.end, results };
  };

  const people = (count: number) => Array.from({ length: count }, (_, i) => `person${i}@example.org`);
  const tally = (results: Map<string, MailOutcome[]>) => {
    const counts: Record<string, number> = {};
    for (const [result, ...more] of results.values()) {
      assert.equal(more.length, 0, "one result per item");
      const outcome = result?.outcome ?? "none";
      counts[outcome] = (counts[outcome] ?? 0) + 1;
    }
    return counts;
  };

  it("delivers a message as it was composed, dots and all", async () => {
    const { sink, result } = await outcomeAt({});
    assertResult(result, { outcome: "sent", reason: "accepted", code: 250 });
    assert.equal(sink.received.length, 1);
    const [received] = sink.received;
    assert.deepEqual([received?.from, received?.to], ["news@example.com", TO]);
    const parsed = await PostalMime.parse(received?.raw ?? "");
    assert.equal(parsed.subject, "Hello Zoë");
    assert.match(parsed.html ?? "", /<p>Dear Zoë,<\/p>\s+<p>\.dots\s+\.\s+\.\.<\/p>/);
  });

  it("stuffs the dots of a message that has them at the start of a line", async () => {
    const sink = await sinkWith();
    const message = Buffer.from("Subject: x\r\n\r\n.\r\n..two\r\nend");
    const result = await poolAt(sink.port).send({
      envelope: { from: "a@b.example", to: TO, smtpUtf8: false },
      message,
    });
    assert.equal(result.outcome, "sent");
    assert.equal(sink.received[0]?.raw.toString().trimEnd(), message.toString());
  });

  describe("classifies", () => {
    const cases: [string, SinkOptions, Expected][] = [
      [
        "450 to RCPT",
        { rcpt: () => ({ code: 450, text: "4.2.0 Greylisted" }) },
        { outcome: "deferred", code: 450, enhanced: "4.2.0" },
      ],
      [
        "550 5.1.1 to RCPT",
        { rcpt: (to) => ({ code: 550, text: `5.1.1 <${to}>: no jane.doe here` }) },
        {
          outcome: "rejected",
          suppress: true,
          code: 550,
          enhanced: "5.1.1",
          response: "550 5.1.1 [address]: no [address] here",
        },
      ],
      [
        "550 5.7.1 to RCPT",
        { rcpt: () => ({ code: 550, text: "5.7.1 Blocked" }) },
        { outcome: "rejected", suppress: false, policy: true },
      ],
      [
        "452 after the dot",
        { dot: () => ({ code: 452, text: "4.3.1 Full" }) },
        { outcome: "deferred", reason: "temporary_refusal" },
      ],
      [
        "554 after the dot",
        { dot: () => ({ code: 554, text: "5.7.1 Spam" }) },
        { outcome: "rejected", suppress: false, policy: true },
      ],
      [
        "MAIL FROM refused",
        { mail: () => ({ code: 553, text: "5.7.1 Not yours" }) },
        { outcome: "account_failure", reason: "sender_refused" },
      ],
      ["a connection lost at RCPT", { rcpt: () => "drop" }, { outcome: "deferred", reason: "connection_lost" }],
      [
        "421 at RCPT, twice",
        { rcpt: () => ({ code: 421, text: "4.7.0 Closing" }) },
        { outcome: "deferred", reason: "server_closing", code: 421 },
      ],
      ["a connection lost while the body leaves", { dropInBody: true }, { outcome: "unknown", reason: "no_answer" }],
      ["a connection lost after the dot", { dot: () => "drop" }, { outcome: "unknown", reason: "no_answer" }],
    ];
    for (const pipelining of [true, false]) {
      for (const [what, options, expected] of cases) {
        it(`${what}${pipelining ? "" : ", without PIPELINING"}`, async () => {
          const { result } = await outcomeAt({ ...options, hidePIPELINING: !pipelining });
          assertResult(result, expected);
        });
      }
    }

    it("a server that does not answer RCPT", async () => {
      const { result } = await outcomeAt({ rcpt: () => "hang" }, { timeoutMs: 150 });
      assertResult(result, { outcome: "deferred", reason: "connection_timeout" });
    });

    it("a server that does not answer the final dot", async () => {
      const { sink, result } = await outcomeAt({ dot: () => "hang" }, { timeoutMs: 150 });
      assertResult(result, { outcome: "unknown", reason: "no_answer" });
      assert.equal(sink.connections.made, 1, "never sent again");
    });

    it("a server that sends parts of an answer but never all of it", async () => {
      const { port, server } = await talkingServer((line) =>
        line.startsWith("EHLO") ? "250 hello" : line.startsWith("MAIL") ? "trickle" : "250 ok",
      );
      stops.push(async () => server.close());
      const result = await poolAt(port, { timeoutMs: 100 }).send(fill(TO));
      assertResult(result, { outcome: "deferred", reason: "connection_timeout" });
    });

    it("an answer to the final dot that is not SMTP", async () => {
      for (const answer of ["what?", "354 go on"]) {
        const { port, server } = await talkingServer((line) =>
          line === "DATA" ? "354 go" : line === "." ? answer : /^(EHLO|MAIL|RCPT)/.test(line) ? "250 ok" : undefined,
        );
        stops.push(async () => server.close());
        assertResult(await poolAt(port).send(fill(TO)), { outcome: "unknown", reason: "no_answer" });
      }
    });

    it("a refused connection", async () => {
      const sink = await startSink();
      await sink.close();
      assertResult(await poolAt(sink.port).send(fill(TO)), {
        outcome: "account_failure",
        reason: "connection_refused",
        temporary: true,
      });
    });

    it("a refused login", async () => {
      const { result } = await outcomeAt(
        { authOptional: false, allowInsecureAuth: true, onAuth: (_auth, _session, done) => done(new Error("no")) },
        { user: "u", pass: "p" },
      );
      assertResult(result, { outcome: "account_failure", reason: "login_refused", code: 535, temporary: false });
    });

    it("a refused greeting", async () => {
      const { result } = await outcomeAt({
        onConnect: (_session, done) => done(Object.assign(new Error("no service"), { responseCode: 554 })),
      });
      assertResult(result, { outcome: "account_failure", reason: "greeting_refused", code: 554 });
    });

    it("an international address that the server cannot take", async () => {
      const { sink, result } = await outcomeAt({ hideSMTPUTF8: true });
      assert.equal(result.outcome, "sent");
      const refused = await poolAt(sink.port).send(fill("jané@example.org"));
      assertResult(refused, { outcome: "rejected", reason: "smtputf8_unsupported", suppress: false });
      const able = await sinkWith();
      assert.equal((await poolAt(able.port).send(fill("jané@bücher.example"))).outcome, "sent");
      assert.equal(able.received[0]?.to, "jané@bücher.example", "the sink shows domains decoded");
    });
  });

  it("takes a message once more when the connection broke before the dot", async () => {
    let asked = 0;
    const { sink, result } = await outcomeAt({
      rcpt: () => (asked++ === 0 ? { code: 421, text: "4.7.0 Too many messages, come again" } : undefined),
    });
    assert.equal(result.outcome, "sent");
    assert.equal(sink.connections.made, 2);
    assert.equal(sink.received.length, 1);
  });

  it("sends no message whose machine was suspended for longer than its deadline before the body", async () => {
    let suspendedMs = 0;
    const now = Date.now.bind(Date);
    const wallClock = mock.method(Date, "now", () => now() + suspendedMs);
    try {
      const suspend = () => {
        suspendedMs += 60_000;
        return undefined;
      };
      const { sink, result } = await outcomeAt({ rcpt: suspend });
      assertResult(result, { outcome: "deferred", reason: "connection_timeout" });
      assert.equal(sink.received.length, 0);
    } finally {
      wallClock.mock.restore();
    }
  });

  it("continues over the same connection after a refused recipient", async () => {
    const sink = await sinkWith({
      rcpt: (to) => (to.startsWith("person1@") ? { code: 550, text: "5.1.1 unknown" } : undefined),
      dot: ({ to }) => (to.startsWith("person2@") ? { code: 554, text: "5.7.1 no" } : undefined),
    });
    const pool = poolAt(sink.port, { maxConnections: 1 });
    const { results } = await drainAll(pool, people(5));
    assert.deepEqual(tally(results), { sent: 3, rejected: 2 });
    assert.equal(sink.connections.made, 1);
  });

  it("delivers every one of many messages once, over many connections", async () => {
    const sink = await sinkWith({ latencyMs: 2 });
    const everyone = people(3_000);
    const pool = poolAt(sink.port, { maxConnections: 50 });
    const { end, results } = await drainAll(pool, everyone);
    assert.deepEqual(end, { ended: "done" });
    assert.deepEqual(tally(results), { sent: 3_000 });
    assert.deepEqual(sink.received.map(({ to }) => to).sort(), [...everyone].sort());
    assert.ok(sink.connections.made <= 50 && sink.connections.made > 4, String(sink.connections.made));
  });

  it("loses no message and sends none twice when the server misbehaves at random", async () => {
    let n = 0;
    const sink = await sinkWith({
      rcpt: () => {
        n++;
        if (n % 17 === 0) return "drop";
        if (n % 13 === 0) return { code: 421, text: "4.3.2 Closing" };
        if (n % 11 === 0) return { code: 450, text: "4.2.0 Later" };
        return n % 7 === 0 ? { code: 550, text: "5.1.1 Nobody" } : undefined;
      },
      dot: () => (n % 19 === 0 ? "drop" : undefined),
    });
    const everyone = people(600);
    const { end, results } = await drainAll(poolAt(sink.port), everyone);
    assert.deepEqual(end, { ended: "done" });
    assert.equal(results.size, everyone.length);
    const counts = tally(results);
    assert.equal(counts["sent"], sink.received.length);
    assert.equal(new Set(sink.received.map(({ to }) => to)).size, sink.received.length, "no recipient twice");
    for (const { to } of sink.received) assert.equal(results.get(to)?.[0]?.outcome, "sent");
    for (const outcome of ["deferred", "rejected", "unknown"]) assert.ok((counts[outcome] ?? 0) > 0, outcome);
  });

  it("replaces a connection after its share of messages", async () => {
    const sink = await sinkWith();
    await drainAll(poolAt(sink.port, { maxConnections: 1, messagesPerConnection: 10 }), people(35));
    const perConnection = Map.groupBy(sink.received, ({ connection }) => connection);
    assert.deepEqual(
      [...perConnection.values()].map(({ length }) => length),
      [10, 10, 10, 5],
    );
  });

  it("closes connections that idle, and opens new ones when there is mail again", async () => {
    const sink = await sinkWith();
    const pool = poolAt(sink.port, { idleMs: 50 });
    await pool.send(fill(TO));
    assert.equal(sink.connections.open, 1);
    await until(() => sink.connections.open === 0);
    assert.equal((await pool.send(fill(TO))).outcome, "sent");
    assert.equal(sink.connections.made, 2);
  });

  it("survives a server that closes its idle connections", async () => {
    const sink = await sinkWith({ socketTimeout: 300 });
    const pool = poolAt(sink.port);
    await pool.send(fill(TO));
    await until(() => sink.connections.open === 0);
    assert.equal((await pool.send(fill(TO))).outcome, "sent");
  });

  it("keeps to the account's limit, also when that falls", async () => {
    let most = 0;
    const sink = await sinkWith({
      latencyMs: 5,
      rcpt: () => {
        most = Math.max(most, sink.connections.open);
        return undefined;
      },
    });
    const pool = poolAt(sink.port, { maxConnections: 8 });
    await drainAll(pool, people(400));
    assert.equal(most, 8);
    pool.setConnections(2);
    await until(() => sink.connections.open <= 2);
    most = 0;
    await drainAll(pool, people(50));
    assert.ok(most <= 2, String(most));
  });

  it("uses as many connections as the server allows", async () => {
    const sink = await sinkWith({ maxClients: 5, latencyMs: 5 });
    const { end, results } = await drainAll(poolAt(sink.port, { maxConnections: 50 }), people(500));
    assert.deepEqual(end, { ended: "done" });
    assert.deepEqual(tally(results), { sent: 500 });
    assert.ok(sink.connections.made <= 10, `${sink.connections.made} connections to a server that allows 5`);
  });

  it("gives no further message to a connection that it gives up", async () => {
    // The pool begins with 32 connections and tries 64, which are four times slower here: it gives 32 of them up.
    const carriers: string[] = [];
    const answers: (() => void)[] = [];
    const sink = await sinkWith({
      onData: (stream, session, callback) => {
        carriers.push(session.id);
        stream.once("end", () => answers.push(callback)).resume();
      },
    });
    const answering = setInterval(() => {
      for (const answer of answers.splice(0, sink.connections.open > 32 ? 1 : 4)) answer();
    }, 4);
    stops.push(async () => clearInterval(answering));
    const stop = new AbortController();
    let hasTried64 = false;
    const { results } = await drainAll(poolAt(sink.port, { maxConnections: 64 }), people(5_000), {
      batch: 100,
      signal: stop.signal,
      onResult: () => {
        const used = new Set(carriers.slice(-100)).size;
        hasTried64 ||= used > 60;
        if (hasTried64 && used <= 32) stop.abort();
      },
    });
    assert.ok(stop.signal.aborted, "the last 100 messages were always carried by more than 32 connections");
    assert.deepEqual(Object.keys(tally(results)).sort(), ["not_attempted", "sent"]);
  });

  it("asks for the next batch while the last is being sent, and no further ahead", async () => {
    const sink = await sinkWith({ latencyMs: 10 });
    const pool = poolAt(sink.port, { maxConnections: 4 });
    let staged = 0;
    let begun = 0;
    let settled = 0;
    let most = 0;
    async function* batches() {
      for (let i = 0; i < 20; i++) {
        staged += 5;
        most = Math.max(most, staged - begun);
        yield people(5);
      }
    }
    const begin = (address: string) => {
      begun++;
      return fill(address);
    };
    for await (const mailed of pool.drain(batches(), { fill: begin })) settled += mailed.length;
    assert.equal(settled, 100);
    assert.ok(most > 5, "staged ahead");
    assert.ok(most <= 2 * 5, `with one message in flight per connection, at most three times the connections: ${most}`);
  });

  it("begins no message after it is stopped, and reports the messages that were not begun", async () => {
    const stop = new AbortController();
    const sink = await sinkWith({ latencyMs: 5 });
    const pool = poolAt(sink.port, { maxConnections: 4 });
    const { end, results } = await drainAll(pool, people(500), {
      batch: 50,
      signal: stop.signal,
      onResult: () => {
        if (sink.received.length >= 60) stop.abort();
      },
    });
    assert.deepEqual(end, { ended: "stopped" });
    const counts = tally(results);
    assert.equal(counts["sent"], sink.received.length);
    assert.ok((counts["not_attempted"] ?? 0) > 0 && results.size < 500, JSON.stringify(counts));
    assert.equal((await pool.send(fill(TO))).outcome, "sent", "the pool itself continues");
  });

  it("stops at the account's failure and hands back the messages that were not begun", async () => {
    const sink = await sinkWith();
    const pool = poolAt(sink.port, { maxConnections: 1, messagesPerConnection: 5 });
    const { end, results } = await drainAll(pool, people(200), {
      onResult: () => {
        // In the middle of a session: cut off while it logs in, a connection is lost instead of refused.
        if (sink.received.length >= 22) void sink.close();
      },
    });
    assert.equal(end.ended === "account_failure" && end.failure.reason, "connection_refused");
    const counts = tally(results);
    assert.ok(
      results.size < 200 && (counts["sent"] ?? 0) >= 20 && (counts["account_failure"] ?? 0) > 0,
      JSON.stringify(counts),
    );
  });

  it("stops after as many policy refusals in a row as it may take, and hands back the messages that were not begun", async () => {
    let asked = 0;
    const sink = await sinkWith({
      latencyMs: 2,
      // An accepted mail in the middle begins the count anew.
      dot: () => (++asked === 10 ? undefined : { code: 554, text: "5.7.1 Spam" }),
    });
    const pool = poolAt(sink.port, { maxConnections: 2 });
    const { end, results } = await drainAll(pool, people(200), { batch: 5, maxPolicyRefusals: 15 });
    assert.deepEqual(end, { ended: "policy_refusals" });
    const counts = tally(results);
    assert.equal(counts["sent"], 1);
    const refused = counts["rejected"] ?? 0;
    assert.ok(refused >= 24 && refused <= 26 && (counts["not_attempted"] ?? 0) > 0, JSON.stringify(counts));
  });

  it("stops when MAIL FROM is refused", async () => {
    const sink = await sinkWith({ mail: () => ({ code: 550, text: "5.7.1 Not yours" }) });
    const { end, results } = await drainAll(poolAt(sink.port), people(200), { batch: 50 });
    assert.equal(end.ended === "account_failure" && end.failure.reason, "sender_refused");
    const counts = tally(results);
    assert.ok((counts["account_failure"] ?? 0) <= 10 && (counts["not_attempted"] ?? 0) > 0, JSON.stringify(counts));
  });

  it("rejects a recipient whose message cannot be composed, and continues", async () => {
    const sink = await sinkWith();
    const { end, results } = await drainAll(poolAt(sink.port), ["a@x.example", "not an address", "b@x.example"]);
    assert.deepEqual(end, { ended: "done" });
    assert.deepEqual(tally(results), { sent: 2, rejected: 1 });
    assert.equal(results.get("not an address")?.[0]?.reason, "unsendable");
  });

  it("sends the messages of its batch and then throws when the next batch fails", async () => {
    const sink = await sinkWith();
    const results: string[] = [];
    async function* batches() {
      yield people(30);
      throw new Error("database gone");
    }
    const drain = poolAt(sink.port).drain(batches(), { fill });
    const drained = async () => {
      for await (const mailed of drain) results.push(...mailed.map(({ outcome }) => outcome.outcome));
    };
    await assert.rejects(drained, /database gone/);
    assert.deepEqual(results, Array(30).fill("sent"));
  });

  it("stops when its consumer fails", async () => {
    const sink = await sinkWith();
    async function* batches() {
      for (;;) yield people(10);
    }
    const drain = poolAt(sink.port).drain(batches(), { fill });
    const drained = async () => {
      for await (const _ of drain) throw new Error("cannot write");
    };
    await assert.rejects(drained, /cannot write/);
    assert.deepEqual(drain.end, { ended: "stopped" });
  });

  describe("pipelines: while it awaits the reply to a dot, the next envelope is out, so", () => {
    /**
     * A server with PIPELINING that answers by these rules; `log` holds the commands and "body" for each body that came with
     * its dot. `undefined` gives no reply, and `close` ends the connection.
     */
    async function pipeliningServer(
      answer: (
        line: string,
        log: readonly string[],
        say: (reply: string) => void,
        lines: Interface,
      ) => string | undefined,
    ) {
      const log: string[] = [];
      let connections = 0;
      const { port, server } = await rawServer((socket) => {
        connections++;
        let inBody = false;
        let bodyLines = 0;
        const say = (reply: string) => void (socket.writable && socket.write(`${reply}\r\n`));
        say("220 pipelining");
        const lines = createInterface(socket).on("error", () => {});
        lines.on("line", (line) => {
          if (inBody && line !== ".") {
            bodyLines++;
            return;
          }
          const what = inBody ? (bodyLines > 0 ? "body" : "empty body") : line;
          inBody = false;
          bodyLines = 0;
          if (!what.startsWith("EHLO")) log.push(what);
          const reply = what.startsWith("EHLO") ? "250-pipelining\r\n250 PIPELINING" : answer(what, log, say, lines);
          if (reply === "close") socket.end();
          else if (reply !== undefined) say(reply);
          if (reply?.includes("354")) inBody = true;
        });
      });
      stops.push(async () => server.close());
      return { port, log, connections: () => connections };
    }
    const accept = (what: string) => (what === "DATA" ? "354 go" : "250 ok");
    const bodies = (log: readonly string[]) => log.filter((what) => what === "body").length;

    it("a server that answers a dot only when it has seen the next MAIL gets every message", async () => {
      let owed = 0;
      const { port, log } = await pipeliningServer((what, before) => {
        if (what === "body" && bodies(before) < 5) {
          owed++;
          return undefined;
        }
        if (what.startsWith("MAIL") && owed > 0) {
          owed--;
          return "250 taken\r\n250 ok";
        }
        return accept(what);
      });
      const { results } = await drainAll(poolAt(port, { maxConnections: 1 }), people(5));
      assert.deepEqual(tally(results), { sent: 5 });
      assert.equal(bodies(log), 5);
    });

    /** Mails two messages over one connection, the second of which comes while the server takes the first one's body. */
    async function drainSecondLate(afterSecondMail: string) {
      const taking = Promise.withResolvers<void>();
      const { port, log, connections } = await pipeliningServer((what, before) => {
        if (what === "body" && bodies(before) === 1) {
          taking.resolve();
          return undefined;
        }
        return what.startsWith("MAIL") && before.at(-2) === "body" ? afterSecondMail : accept(what);
      });
      async function* batches() {
        yield people(1);
        await taking.promise;
        yield people(2).slice(1);
      }
      const { results } = await drainAll(poolAt(port, { maxConnections: 1 }), batches());
      return { counts: tally(results), bodies: bodies(log), connections: connections() };
    }

    it("a message that comes while the server takes another one is out before that is answered", async () => {
      const mailed = await drainSecondLate("250 taken\r\n250 ok");
      assert.deepEqual(mailed, { counts: { sent: 2 }, bodies: 2, connections: 1 });
    });

    it("a connection that is lost then makes one message unknown, and the one that came late is sent", async () => {
      const mailed = await drainSecondLate("close");
      assert.deepEqual(mailed, { counts: { sent: 1, unknown: 1 }, bodies: 2, connections: 2 });
    });

    it("a message that comes half a second after a body has left takes another connection", async () => {
      const taking = Promise.withResolvers<number>();
      const sink = await sinkWith({
        dot: ({ to }) => {
          if (to !== "person0@example.org") return undefined;
          taking.resolve(performance.now());
          return "hang";
        },
      });
      async function* batches() {
        yield people(1);
        const takenAt = await taking.promise;
        await until(() => performance.now() - takenAt > 500);
        yield people(2).slice(1);
      }
      const { results } = await drainAll(poolAt(sink.port, { maxConnections: 2 }), batches(), {
        onResult: () => void sink.close(),
      });
      assert.deepEqual(
        [...results].map(([address, [result]]) => [address, result?.outcome]),
        [
          ["person1@example.org", "sent"],
          ["person0@example.org", "unknown"],
        ],
      );
    });

    it("the reply to a dot counts although some of the next envelope has not left", async () => {
      let readOn = () => {};
      const { port, log } = await pipeliningServer((what, before, _say, lines) => {
        if (what === "body" && bodies(before) === 1) {
          lines.pause();
          readOn = () => lines.resume();
        }
        return accept(what);
      });
      // No buffer of a connection holds the second envelope, so it waits here until the server reads on.
      const envelope = { from: "a@b.example", smtpUtf8: false };
      const long = `${"x".repeat(32 * 1_024 * 1_024)}@example.org`;
      const { results } = await drainAll(poolAt(port, { maxConnections: 1 }), ["first", "second"], {
        fill: (item) => ({
          envelope: { ...envelope, to: item === "first" ? TO : long },
          message: Buffer.from(`Subject: x\r\n\r\n${"A line of the body\r\n".repeat(2_000)}`),
        }),
        onResult: () => readOn(),
      });
      assert.deepEqual(tally(results), { sent: 2 });
      assert.equal(bodies(log), 2);
    });

    it("a 354 after a refused RCPT is answered with a lone dot, and the same connection continues", async () => {
      const { port, log, connections } = await pipeliningServer((what) => {
        if (what.startsWith("RCPT TO:<person1@") || what.startsWith("RCPT TO:<person3@")) return "550 5.1.1 unknown";
        return what === "empty body" ? "554 no valid recipients" : accept(what);
      });
      const { results } = await drainAll(poolAt(port, { maxConnections: 1 }), people(5));
      assert.deepEqual(tally(results), { sent: 3, rejected: 2 });
      assert.deepEqual([bodies(log), log.filter((what) => what === "empty body").length, connections()], [3, 2, 1]);
      assertResult(results.get("person3@example.org")?.[0] ?? { outcome: "not_attempted", reason: "pool_stopped" }, {
        outcome: "rejected",
        code: 550,
      });
    });

    it("a refused MAIL of a message that follows another one says nothing about it: it is sent alone", async () => {
      let early: string[] | undefined;
      const { port, log, connections } = await pipeliningServer((what, _before, say) => {
        if (what === "body") {
          early = [];
          // As long as a server may take that looks at a message before it answers.
          setTimeout(() => {
            say(["250 ok", ...(early ?? []).map(() => "503 5.5.0 improper pipelining")].join("\r\n"));
            early = undefined;
          }, 5);
          return undefined;
        }
        early?.push(what);
        return early ? undefined : accept(what);
      });
      const { end, results } = await drainAll(poolAt(port, { maxConnections: 1 }), people(12));
      assert.deepEqual(end, { ended: "done" });
      assert.deepEqual(tally(results), { sent: 12 });
      assert.equal(bodies(log), 12);
      assert.ok(connections() <= 12, `${connections()} connections`);
    });

    it("a server that closes after each message gets each of them once", async () => {
      const { port, log } = await pipeliningServer((what) => (what === "body" ? "250 ok\r\n221 bye" : accept(what)));
      const closing = await pipeliningServer((what, before) => (before.at(-2) === "body" ? "close" : accept(what)));
      for (const server of [{ port, log }, closing]) {
        const { results } = await drainAll(poolAt(server.port, { maxConnections: 1 }), people(10));
        assert.deepEqual(tally(results), { sent: 10 });
        assert.equal(bodies(server.log), 10);
      }
    });

    it("a lost connection makes one message unknown, and the one behind it is sent", async () => {
      let bodiesSeen = 0;
      const { port, log } = await pipeliningServer((what, before) => {
        if (what === "body") return ++bodiesSeen === 2 ? undefined : "250 ok";
        // The dot of the second message stays unanswered.
        return what.startsWith("MAIL") && before.at(-2) === "body" && bodiesSeen === 2 ? "close" : accept(what);
      });
      const { results } = await drainAll(poolAt(port, { maxConnections: 1 }), people(6));
      assert.deepEqual(tally(results), { sent: 5, unknown: 1 });
      assert.equal(bodies(log), 6, "none was sent twice");
    });

    it("a stop takes back the message whose envelope is out, and mails no empty one", async () => {
      const stop = new AbortController();
      const { port, log } = await pipeliningServer((what, before) => {
        if (bodies(before) === 0) return accept(what);
        if (what !== "DATA") return undefined;
        stop.abort();
        return "250 taken\r\n250 ok\r\n250 ok\r\n354 go";
      });
      const { end, results } = await drainAll(poolAt(port, { maxConnections: 1 }), people(4), { signal: stop.signal });
      assert.deepEqual(end, { ended: "stopped" });
      assert.deepEqual(tally(results), { sent: 1, not_attempted: 3 });
      assert.deepEqual(
        log.filter((what) => what.endsWith("body")),
        ["body"],
      );
    });

    it("a reply before the end of a body ends the connection, and its message is not taken for sent", async () => {
      const large = Buffer.from(`Subject: x\r\n\r\n${"word ".repeat(13)}\r\n`.repeat(200_000));
      const { port, server } = await rawServer((socket) => {
        socket.write("220 hasty\r\n");
        let isDone = false;
        socket.on("data", (chunk) => {
          if (isDone) return;
          const text = chunk.toString("latin1");
          if (text.startsWith("EHLO")) socket.write("250-hasty\r\n250 PIPELINING\r\n");
          else if (text.startsWith("MAIL")) socket.write("250 ok\r\n250 ok\r\n354 go\r\n");
          else {
            isDone = true;
            socket.pause();
            socket.write("250 taken already\r\n");
          }
        });
      });
      stops.push(async () => server.close());
      const envelope = { from: "a@b.example", to: TO, smtpUtf8: false };
      assertResult(await poolAt(port).send({ envelope, message: large }), { outcome: "unknown", reason: "no_answer" });
    });
  });

  it("serves two drains at once", async () => {
    const sink = await sinkWith({ latencyMs: 1 });
    const pool = poolAt(sink.port, { maxConnections: 4 });
    const [first, second] = await Promise.all([
      drainAll(pool, people(200)),
      drainAll(
        pool,
        people(200).map((address) => `x${address}`),
      ),
    ]);
    assert.deepEqual([tally(first.results), tally(second.results)], [{ sent: 200 }, { sent: 200 }]);
    const half = sink.received.slice(0, 200).filter(({ to }) => to.startsWith("x")).length;
    assert.ok(half > 50 && half < 150, `neither waits for the other: ${half}`);
  });

  describe("that its server refuses", () => {
    const withLogin: SinkOptions = { authOptional: false, allowInsecureAuth: true };
    const LOGIN = { user: "desk", pass: "secret" };
    const refusal = (code: number) => Object.assign(new Error("4.7.0 by this test"), { responseCode: code });

    /** Refuses while `refuses` says so, each one later than the one before. */
    const refusingSink = async (stage: "greeting" | "login", code: number, refuses: () => boolean) => {
      const counts = { refused: 0, loggedIn: 0 };
      const reply = (accept: () => void, refuse: () => void) => {
        if (!refuses()) {
          counts.loggedIn++;
          accept();
          return;
        }
        counts.refused++;
        setTimeout(refuse, 10 * Math.min(counts.refused, 20));
      };
      const sink = await sinkWith({
        ...withLogin,
        latencyMs: 5,
        onConnect: (_session, done) =>
          stage === "greeting"
            ? reply(
                () => done(),
                () => done(refusal(code)),
              )
            : done(),
        onAuth: (_auth, _session, done) =>
          stage === "login"
            ? reply(
                () => done(null, { user: "desk" }),
                () => done(refusal(code)),
              )
            : done(null, { user: "desk" }),
      });
      return { sink, counts };
    };

    const cases = [
      { stage: "login", code: 535, reason: "login_refused", temporary: false },
      { stage: "login", code: 454, reason: "login_refused", temporary: true },
      { stage: "greeting", code: 554, reason: "greeting_refused", temporary: false },
      { stage: "greeting", code: 450, reason: "greeting_refused", temporary: true },
      { stage: "greeting", code: 421, reason: "server_closing", temporary: true },
    ] as const;
    for (const maxConnections of [1, 10, 20, 100]) {
      for (const { stage, code, reason, temporary } of cases) {
        it(`with ${code} at the ${stage}: stops after one of ${maxConnections} connections, and opens none for a while`, async () => {
          const { sink } = await refusingSink(stage, code, () => true);
          const pool = poolAt(sink.port, { ...LOGIN, maxConnections });
          const { end, results } = await drainAll(pool, people(300), { batch: 100 });
          assert.ok(end.ended === "account_failure", end.ended);
          assert.deepEqual([end.failure.reason, end.failure.temporary], [reason, temporary]);
          assert.deepEqual(
            Object.keys(tally(results)).filter((outcome) => !/^(account_failure|not_attempted)$/.test(outcome)),
            [],
          );
          const again = await Promise.all([
            drainAll(pool, people(50)),
            drainAll(pool, people(50)),
            pool.send(fill(TO)),
          ]);
          assert.deepEqual([again[0].end, again[1].end, again[2]], [end, end, end.failure]);
          assert.equal(sink.connections.made, 1);
        });
      }
    }

    it("by closing each connection at once: stops after one", async () => {
      const { port, server } = await rawServer((socket) => socket.destroy());
      stops.push(async () => server.close());
      const { end } = await drainAll(poolAt(port, { maxConnections: 50 }), people(200));
      assert.equal(end.ended === "account_failure" && end.failure.reason, "connection_lost");
      assert.equal(server.connected.size, 1);
    });

    it("by never greeting: waits on one connection only", async () => {
      const { port, server } = await silentServer();
      stops.push(async () => server.close());
      const { end } = await drainAll(poolAt(port, { maxConnections: 50, timeoutMs: 150 }), people(200));
      assert.equal(end.ended === "account_failure" && end.failure.reason, "connection_timeout");
      assert.equal(server.connected.size, 1);
    });

    it("by a greeting that never ends: cuts it off", async () => {
      const { port, server } = await tricklingServer();
      stops.push(async () => server.close());
      const { end } = await drainAll(poolAt(port, { maxConnections: 50, timeoutMs: 100 }), people(200));
      assert.equal(end.ended === "account_failure" && end.failure.temporary, true);
      assert.equal(server.connected.size, 1);
    });

    it("tries one connection once the pause has ended, then opens the rest", async () => {
      let isRepaired = false;
      const { sink, counts } = await refusingSink("login", 535, () => !isRepaired);
      const accesses: (string | undefined)[] = [];
      const pool = poolAt(sink.port, {
        ...LOGIN,
        maxConnections: 20,
        onAccess: (failure) => accesses.push(failure?.reason),
      });
      await drainAll(pool, people(100));
      isRepaired = true;
      pool.tryNow();
      const { end, results } = await drainAll(pool, people(400));
      assert.deepEqual(end, { ended: "done" });
      assert.deepEqual(tally(results), { sent: 400 });
      assert.deepEqual(accesses, ["login_refused", undefined]);
      assert.equal(counts.refused, 1);
      assert.ok(counts.loggedIn > 10, String(counts.loggedIn));
    });

    it("in the middle: its open connections finish their share, and no more are opened than were logged in", async () => {
      let logins = 0;
      const { sink, counts } = await refusingSink("login", 535, () => ++logins > 8);
      const pool = poolAt(sink.port, { ...LOGIN, maxConnections: 8, messagesPerConnection: 20 });
      const { end, results } = await drainAll(pool, people(500));
      assert.equal(end.ended === "account_failure" && end.failure.reason, "login_refused");
      const { sent = 0, ...rest } = tally(results);
      assert.equal(sent, sink.received.length);
      assert.equal(new Set(sink.received.map(({ to }) => to)).size, sent, "no recipient twice");
      assert.ok(sent >= 20, String(sent));
      assert.deepEqual(
        Object.keys(rest).filter((outcome) => !/^(account_failure|not_attempted)$/.test(outcome)),
        [],
      );
      assert.ok(counts.refused >= 1 && counts.refused <= 8, `${counts.refused} refused logins`);
    });

    it("once, while others are logged in: continues with those, and tries no other one meanwhile", async () => {
      let logins = 0;
      const { sink, counts } = await refusingSink("login", 454, () => ++logins > 2);
      const pool = poolAt(sink.port, { ...LOGIN, maxConnections: 20 });
      const { end, results } = await drainAll(pool, people(300));
      assert.deepEqual(end, { ended: "done" });
      assert.deepEqual(tally(results), { sent: 300 });
      // Two were opened at once when two were logged in.
      assert.deepEqual(counts, { loggedIn: 2, refused: 2 });
    });

    it("by failing one connection without a reply, while others are logged in: soon opens as many as it can use", async () => {
      const sink = await sinkWith({ latencyMs: 5, dropAtOnce: (connection) => connection === 2 });
      const { end, results } = await drainAll(poolAt(sink.port, { maxConnections: 20 }), people(4_000));
      assert.deepEqual(end, { ended: "done" });
      assert.deepEqual(tally(results), { sent: 4_000 });
      assert.ok(sink.connections.made > 10, `${sink.connections.made} connections`);
    });

    it("only at the first message of each session: stops after a few sessions", async () => {
      const sink = await sinkWith({ mail: () => ({ code: 421, text: "4.7.0 Come again" }) });
      const pool = poolAt(sink.port, { maxConnections: 20 });
      const { end, results } = await drainAll(pool, people(2_000), { batch: 100 });
      assert.ok(end.ended === "account_failure", end.ended);
      assert.deepEqual([end.failure.reason, end.failure.temporary], ["server_closing", true]);
      assert.ok(sink.connections.made <= 40, `${sink.connections.made} connections`);
      assert.equal(tally(results)["sent"], undefined);
    });
  });

  describe("when it is closed", () => {
    it("finishes the messages in flight and begins no more", async () => {
      const sink = await sinkWith({ latencyMs: 50 });
      const pool = poolAt(sink.port, { maxConnections: 4 });
      const draining = drainAll(pool, people(100));
      await until(() => sink.received.length >= 4);
      await pool.close({ graceMs: 5_000 });
      const { end, results } = await draining;
      assert.deepEqual(end, { ended: "stopped" });
      const counts = tally(results);
      assert.equal(counts["sent"], sink.received.length);
      assert.deepEqual(Object.keys(counts).sort(), ["not_attempted", "sent"]);
      assert.equal((await pool.send(fill(TO))).outcome, "not_attempted");
      await until(() => sink.connections.open === 0);
    });

    it("cuts off messages that do not end in time, as unknown when the dot may have left", async () => {
      const hung = new Set<string>();
      const sink = await sinkWith({
        rcpt: (to) => {
          if (!to.startsWith("person0@")) return undefined;
          hung.add("rcpt");
          return "hang";
        },
        dot: () => {
          hung.add("dot");
          return "hang";
        },
      });
      const pool = poolAt(sink.port, { maxConnections: 2 });
      const draining = drainAll(pool, people(2));
      await until(() => hung.size === 2);
      await pool.close({ graceMs: 100 });
      const { results } = await draining;
      assert.equal(results.get("person0@example.org")?.[0]?.outcome, "deferred");
      assert.equal(results.get("person1@example.org")?.[0]?.outcome, "unknown");
    });

    it("does not wait for a connection that is still being made", async () => {
      const { port, server } = await silentServer();
      stops.push(async () => server.close());
      const pool = poolAt(port, { timeoutMs: 60_000 });
      const sending = pool.send(fill(TO));
      await until(() => server.connected.size === 1);
      await pool.close({ graceMs: 60_000 });
      assert.equal((await sending).outcome, "not_attempted");
    });
  });

  describe("and the address guard", () => {
    let dns: DnsServer;
    before(async () => {
      dns = await startDnsServer({});
    });
    after(() => dns.close());

    const FORBIDDEN: Expected = { outcome: "account_failure", reason: "server_forbidden", temporary: false };
    const guardWith = (allowed: string[] = [], denied: string[] = []) =>
      openSmtpGuard({ SMTP_ALLOWED_HOSTS: allowed, EGRESS_DENIED_NETWORKS: denied }, { dnsServers: [dns.address] });

    for (const host of [
      "127.0.0.1",
      "localhost",
      "::1",
      "169.254.169.254",
      "10.0.0.1",
      "127.1",
      "2130706433",
      "[::1]",
    ]) {
      it(`connects to no server that is not public: ${host}`, async () => {
        assertResult(await poolAt(25, { host, guard: guardWith() }).send(fill(TO)), FORBIDDEN);
      });
    }

    it("connects to public servers at ports of mail only, and to no denied network", async () => {
      dns.names.set("mx.test", { a: ["1.1.1.1"] });
      for (const host of ["1.1.1.1", "mx.test"]) {
        for (const port of [22, 80, 443, 5432, 6379]) {
          assertResult(await poolAt(port, { host, guard: guardWith() }).send(fill(TO)), FORBIDDEN);
        }
        assertResult(await poolAt(25, { host, guard: guardWith([], ["1.1.1.0/24"]) }).send(fill(TO)), FORBIDDEN);
      }
    });

    it("connects to no name that was public at the account's check and is loopback now", async () => {
      const sink = await sinkWith();
      const host = "rebinding.test";
      dns.names.set(host, { a: ["1.1.1.1"] });
      await guardWith([], []).resolve(host, 25);
      for (const a of [["127.0.0.1"], ["1.1.1.1", "127.0.0.1"]]) {
        dns.names.set(host, { a });
        assertResult(await poolAt(25, { host, guard: guardWith() }).send(fill(TO)), FORBIDDEN);
      }
      assert.equal(sink.connections.made, 0);
    });

    it("connects to the addresses that it checked, without a second look-up", async () => {
      const sink = await sinkWith();
      const host = "only-here.test";
      dns.names.set(host, { a: ["127.0.0.2", "127.0.0.1"] });
      const before = dns.queries(host);
      const pool = poolAt(sink.port, { host, guard: guardWith([`${host}:${sink.port}`]), maxConnections: 1 });
      assertResult(await pool.send(fill(TO)), { outcome: "sent" });
      assertResult(await pool.send(fill(TO)), { outcome: "sent" });
      assert.equal(dns.queries(host) - before, 2); // A and AAAA
      assert.equal(sink.connections.made, 1);
    });

    it("verifies the certificate for the name, not for the address", async () => {
      const names: string[] = [];
      const sink = await sinkWith({
        secure: true,
        SNICallback: (servername, done) => {
          names.push(servername);
          done(null);
        },
      });
      const host = "named.test";
      dns.names.set(host, { a: ["127.0.0.1"] });
      const guard = guardWith([`${host}:*`]);
      assertResult(await poolAt(sink.port, { host, guard, secure: "tls" }).send(fill(TO)), {
        ...FORBIDDEN,
        reason: "tls_failed",
      });
      const trusting = poolAt(sink.port, { host, guard, secure: "tls", allowUnverifiedTls: true });
      assertResult(await trusting.send(fill(TO)), { outcome: "sent" });
      assert.ok(names.includes(host));
    });

    it("gives up on a name whose servers say nothing", async () => {
      dns.names.set("silent.test", { silent: "both" });
      const pool = poolAt(25, { host: "silent.test", guard: guardWith(), timeoutMs: 200 });
      assertResult(await pool.send(fill(TO)), {
        outcome: "account_failure",
        reason: "connection_timeout",
        temporary: true,
      });
      await pool.close({ graceMs: 0 });
      assert.equal(pool.open, 0);
    });

    it("can be closed while a server is looked up, and while it does not greet", async () => {
      dns.names.set("silent.test", { silent: "both" });
      const { port, server } = await silentServer();
      stops.push(async () => server.close());
      const looking = poolAt(25, { host: "silent.test", guard: guardWith() });
      for (const pool of [looking, poolAt(port)]) {
        const sending = pool.send(fill(TO));
        await until(() => pool.open === 1 && (pool === looking || server.connected.size === 1));
        await pool.close({ graceMs: 0 });
        assert.equal(pool.open, 0);
        assert.notEqual((await sending).outcome, "sent");
      }
    });
  });

  describe("logs in", () => {
    /** An address of this machine besides loopback; undefined without a network. */
    const outer = Object.values(networkInterfaces())
      .flat()
      .find((address) => address?.family === "IPv4" && !address.internal)?.address;

    it("over TLS only, except on loopback", async function () {
      if (outer === undefined) return this.skip();
      let logins = 0;
      const withLogin: SinkOptions = {
        authOptional: false,
        allowInsecureAuth: true,
        onAuth: ({ username }, _session, done) => {
          logins++;
          done(null, { user: username });
        },
      };
      const sink = await sinkWith({ ...withLogin, listenOn: outer });
      const guard = openSmtpGuard({ SMTP_ALLOWED_HOSTS: [`${outer}:*`], EGRESS_DENIED_NETWORKS: [] });
      const account = { host: outer, guard, user: "desk", pass: "secret", allowUnverifiedTls: true };
      assertResult(await poolAt(sink.port, account).send(fill(TO)), {
        outcome: "account_failure",
        reason: "login_in_clear_text",
        temporary: false,
      });
      assert.equal(logins, 0);
      assertResult(await poolAt(sink.port, { ...account, secure: "starttls" }).send(fill(TO)), { outcome: "sent" });
      assert.equal(logins, 1);
      const here = await sinkWith(withLogin);
      assertResult(await poolAt(here.port, { user: "desk", pass: "secret" }).send(fill(TO)), { outcome: "sent" });
      assert.equal(logins, 2);
    });
  });

  describe("verifies an account", () => {
    const account = (port: number, more: Partial<SmtpAccount> = {}): SmtpAccount => ({
      host: "127.0.0.1",
      port,
      guard: LOOPBACK_ONLY,
      secure: "none",
      timeoutMs: 2_000,
      ...more,
    });
    const withLogin: SinkOptions = {
      authOptional: false,
      allowInsecureAuth: true,
      onAuth: ({ username, password }, _session, done) =>
        username === "desk@example.com" && password === "right"
          ? done(null, { user: username })
          : done(Object.assign(new Error(`5.7.8 bad login for ${username}`), { responseCode: 535 })),
    };

    it("that can log in", async () => {
      const sink = await sinkWith(withLogin);
      assert.deepEqual(await verifyAccount(account(sink.port, { user: "desk@example.com", pass: "right" })), {
        ok: true,
      });
      await until(() => sink.connections.open === 0);
    });

    it("whose password is wrong", async () => {
      const sink = await sinkWith(withLogin);
      const check = await verifyAccount(account(sink.port, { user: "desk@example.com", pass: "wrong" }));
      assert.deepEqual(check, {
        ok: false,
        reason: "login_refused",
        temporary: false,
        message: "The server refused the user name or the password. It said: 535 5.7.8 bad login for [address]",
      });
    });

    it("whose server is not there", async () => {
      const sink = await startSink();
      await sink.close();
      const check = await verifyAccount(account(sink.port));
      assert.equal(!check.ok && check.reason, "connection_refused");
    });

    it("whose host has no address", async () => {
      const check = await verifyAccount(account(25, { host: "no-such-host.invalid" }));
      assert.equal(!check.ok && check.reason, "name_not_found");
    });

    it("whose server does not greet", async () => {
      const { port, server } = await silentServer();
      stops.push(async () => server.close());
      const check = await verifyAccount(account(port, { timeoutMs: 150 }));
      assert.equal(!check.ok && check.reason, "connection_timeout");
    });

    it("whose server never ends its greeting", async () => {
      const { port, server } = await tricklingServer();
      stops.push(async () => server.close());
      const check = await verifyAccount(account(port, { timeoutMs: 100 }));
      assert.equal(!check.ok && check.reason, "connection_timeout");
    });

    for (const secure of ["starttls", "tls"] as const) {
      it(`over ${secure}, its certificate verified unless the settings say otherwise`, async () => {
        const sink = await sinkWith({ secure: secure === "tls" });
        const refused = await verifyAccount(account(sink.port, { secure }));
        assert.equal(!refused.ok && refused.reason, "tls_failed");
        assert.deepEqual(await verifyAccount(account(sink.port, { secure, allowUnverifiedTls: true })), { ok: true });
        const pool = poolAt(sink.port, { secure, allowUnverifiedTls: true });
        assert.equal((await pool.send(fill(TO))).outcome, "sent");
        assert.equal((await PostalMime.parse(sink.received[0]?.raw ?? "")).subject, "Hello Zoë");
      });
    }

    it("never in clear text where STARTTLS was asked for", async () => {
      const sink = await sinkWith({ ...withLogin, hideSTARTTLS: true, disabledCommands: ["STARTTLS"] });
      const check = await verifyAccount(
        account(sink.port, { secure: "starttls", user: "desk@example.com", pass: "right" }),
      );
      assert.equal(!check.ok && check.reason, "tls_failed");
    });
  });
});

interface RawServer {
  port: number;
  server: { connected: Set<Socket>; close(): void };
}

/** Takes connections and never says a word. */
const silentServer = (): Promise<RawServer> => rawServer(() => {});

/** Begins a greeting and never ends it. */
const tricklingServer = (): Promise<RawServer> =>
  rawServer((socket) => {
    const trickle = setInterval(() => socket.write("220-more\r\n"), 20);
    socket.once("close", () => clearInterval(trickle));
  });

/** Replies to each line with `answer`; `trickle` begins an answer that never ends. */
const talkingServer = (answer: (line: string) => string | undefined): Promise<RawServer> =>
  rawServer((socket) => {
    socket.write("220 talking\r\n");
    const lines = createInterface(socket).on("error", () => {});
    lines.on("line", (line) => {
      const reply = answer(line);
      if (reply !== "trickle") {
        if (reply !== undefined) socket.write(`${reply}\r\n`);
        return;
      }
      const trickle = setInterval(() => socket.write("250-more\r\n"), 20);
      socket.once("close", () => clearInterval(trickle));
    });
  });

async function rawServer(onConnection: (socket: Socket) => void): Promise<RawServer> {
  const connected = new Set<Socket>();
  const server = createServer((socket) => {
    connected.add(socket.on("error", () => {}));
    onConnection(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = () => {
    for (const socket of connected) socket.destroy();
    server.close();
  };
  return { port: (server.address() as AddressInfo).port, server: { connected, close } };
}
