import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { createInterface, type Interface } from "node:readline";
import { mock } from "node:test";
import PostalMime from "postal-mime";
import type { SmtpAccount } from "../../activities/smtp/login.ts";
import type { SmtpPoolOptions } from "../../activities/smtp/pool.ts";
import { verifyAccount } from "../../activities/smtp/verify.ts";
import { composeMessage, type FilledMessage } from "../../domain/mail/message.ts";
import type { MailOutcome } from "../../domain/mail/outcome.ts";
import { openSmtpGuard } from "../../domain/mail/smtp-guard.ts";
import { type DnsServer, startDnsServer } from "../support/dns-server.ts";
import { eventually } from "../support/eventually.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { LOOPBACK_ONLY, within } from "../support/smtp-guard.ts";
import { type SinkOptions, startSink } from "./smtp-sink.ts";
import { smtpSuite, type TestPool } from "./smtp-suite.ts";

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

type Expected = Pick<MailOutcome, "outcome"> & Record<string, unknown>;

describe("An SMTP pool", () => {
  const { stops, sinkWith, poolAt } = smtpSuite(10);

  /** A server that is no sink; it and its connections end with the test. */
  async function rawServer(onConnection: (socket: Socket) => void) {
    const connected = new Set<Socket>();
    const server = createServer((socket) => {
      connected.add(socket.on("error", () => {}));
      onConnection(socket);
    });
    const port = await listenLocally(server);
    stops.push(async () => {
      for (const socket of connected) socket.destroy();
      server.close();
    });
    return { port, connected };
  }

  /** Replies to each line with `answer`; `trickle` begins a reply that never ends. */
  const talkingServer = (answer: (line: string) => string | undefined) =>
    rawServer((socket) => {
      socket.write("220 talking\r\n");
      const lines = createInterface(socket).on("error", () => {});
      lines.on("line", (line) => {
        const reply = answer(line);
        if (reply === "trickle") trickle(socket);
        else if (reply !== undefined) socket.write(`${reply}\r\n`);
      });
    });

  const outcomeAt = async (options: SinkOptions, poolOptions: Partial<SmtpPoolOptions> = {}) => {
    const sink = await sinkWith(options);
    const result = await poolAt(sink.port, poolOptions).send(fill(TO));
    return { sink, result };
  };

  const assertResult = (result: MailOutcome, expected: Expected) =>
    assert.deepEqual({ ...result, ...expected }, result);

  /** Sends to these addresses in batches; results by address. */
  const drainAll = async (
    pool: TestPool,
    addresses: readonly string[],
    options: {
      batch?: number;
      signal?: AbortSignal;
      onResult?: () => void;
      fill?: (address: string) => FilledMessage;
    } = {},
  ) => {
    const size = options.batch ?? 20;
    const results = new Map<string, MailOutcome[]>();
    async function* batches() {
      for (let i = 0; i < addresses.length; i += size) yield addresses.slice(i, i + size);
    }
    const drain = pool.drain(batches(), { fill: options.fill ?? fill, signal: options.signal });
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

  /** Mails to these addresses up to the end of the last batch. */
  const assertMailed = async (
    pool: TestPool,
    addresses: readonly string[],
    counts: Record<string, number>,
    options: Parameters<typeof drainAll>[2] = {},
  ) => {
    const { end, results } = await drainAll(pool, addresses, options);
    assert.deepEqual(end, { ended: "done" });
    assert.deepEqual(tally(results), counts);
    return results;
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

  describe("classifies", () => {
    const cases: [string, SinkOptions, Expected][] = [
      [
        "550 to RCPT",
        { rcpt: (to) => ({ code: 550, text: `5.1.1 <${to}>: no jane.doe here` }) },
        { outcome: "rejected", suppress: true, enhanced: "5.1.1", response: "550 5.1.1 [address]: no [address] here" },
      ],
      [
        "452 after the dot",
        { dot: () => ({ code: 452, text: "4.3.1 Full" }) },
        { outcome: "deferred", reason: "temporary_refusal" },
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
    for (const [what, options, expected] of cases) {
      it(`${what}, with PIPELINING and without`, async () => {
        for (const hidePIPELINING of [false, true]) {
          assertResult((await outcomeAt({ ...options, hidePIPELINING })).result, expected);
        }
      });
    }

    it("a server that does not answer RCPT", async () => {
      const { result } = await outcomeAt({ rcpt: () => "hang" }, { limits: within(500) });
      assertResult(result, { outcome: "deferred", reason: "connection_timeout" });
    });

    it("a server that does not answer the final dot", async () => {
      const { sink, result } = await outcomeAt({ dot: () => "hang" }, { limits: within(500) });
      assertResult(result, { outcome: "unknown", reason: "no_answer" });
      assert.equal(sink.connections.made, 1, "never sent again");
    });

    it("a server that sends parts of an answer but never all of it", async () => {
      const { port } = await talkingServer((line) =>
        line.startsWith("EHLO") ? "250 hello" : line.startsWith("MAIL") ? "trickle" : "250 ok",
      );
      const result = await poolAt(port, { limits: within(100) }).send(fill(TO));
      assertResult(result, { outcome: "deferred", reason: "connection_timeout" });
    });

    it("an answer to the final dot that is not SMTP", async () => {
      for (const answer of ["what?", "354 go on"]) {
        const { port } = await talkingServer((line) =>
          line === "DATA" ? "354 go" : line === "." ? answer : /^(EHLO|MAIL|RCPT)/.test(line) ? "250 ok" : undefined,
        );
        assertResult(await poolAt(port).send(fill(TO)), { outcome: "unknown", reason: "no_answer" });
      }
    });

    it("a host without an address, a refused connection and a refused login", async () => {
      const sink = await startSink();
      await sink.close();
      const failure = { outcome: "account_failure", temporary: true } as const;
      const nameless = await poolAt(25, { host: "no-such-host.invalid" }).send(fill(TO));
      assertResult(nameless, { outcome: "account_failure", reason: "name_not_found" });
      assertResult(await poolAt(sink.port).send(fill(TO)), { ...failure, reason: "connection_refused" });
      const { result } = await outcomeAt(
        { authOptional: false, allowInsecureAuth: true, onAuth: (_auth, _session, done) => done(new Error("no")) },
        { user: "u", pass: "p" },
      );
      assertResult(result, { ...failure, reason: "login_refused", code: 535, temporary: false });
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

  it("replaces a connection after its share of messages", async () => {
    const sink = await sinkWith();
    await drainAll(poolAt(sink.port, { maxConnections: 1, messagesPerConnection: 10 }), people(35));
    const perConnection = Map.groupBy(sink.received, ({ connection }) => connection);
    assert.deepEqual(
      [...perConnection.values()].map(({ length }) => length),
      [10, 10, 10, 5],
    );
  });

  it("opens a new connection when there is mail again after the server closed one that idled", async () => {
    const sink = await sinkWith({ socketTimeout: 300 });
    const pool = poolAt(sink.port);
    await pool.send(fill(TO));
    await eventually(() => sink.connections.open === 0);
    assert.equal((await pool.send(fill(TO))).outcome, "sent");
    assert.equal(sink.connections.made, 2);
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
    await eventually(() => sink.connections.open <= 2);
    most = 0;
    await drainAll(pool, people(50));
    assert.ok(most <= 2, String(most));
  });

  it("opens no more connections than it has messages", async () => {
    const sink = await sinkWith({ latencyMs: 5 });
    const pool = poolAt(sink.port, { maxConnections: 50 });
    for (let i = 0; i < 5; i++) await drainAll(pool, people(4));
    assert.ok(sink.connections.made <= 4, `${sink.connections.made} connections for 4 messages at a time`);
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

  it("rejects a recipient whose message cannot be composed, and continues", async () => {
    const addresses = ["a@x.example", "not an address", "b@x.example"];
    const results = await assertMailed(poolAt((await sinkWith()).port), addresses, { sent: 2, rejected: 1 });
    assertResult(results.get("not an address")?.[0] ?? assert.fail(), {
      outcome: "rejected",
      reason: "unsendable",
    });
  });

  it("sends the messages of its batch and then throws when the next batch fails", async () => {
    const { port } = await sinkWith();
    const results: string[] = [];
    async function* batches() {
      yield people(30);
      throw new Error("database gone");
    }
    const drained = async () => {
      for await (const mailed of poolAt(port).drain(batches(), { fill })) {
        results.push(...mailed.map(({ outcome }) => outcome.outcome));
      }
    };
    await assert.rejects(drained, /database gone/);
    assert.deepEqual(results, Array(30).fill("sent"));
  });

  it("stops when its consumer fails", async () => {
    async function* batches() {
      for (;;) yield people(10);
    }
    const drain = poolAt((await sinkWith()).port).drain(batches(), { fill });
    const drained = async () => {
      for await (const _ of drain) throw new Error("cannot write");
    };
    await assert.rejects(drained, /cannot write/);
    assert.deepEqual(drain.end, { ended: "stopped" });
  });

  describe("pipelines: while it awaits the reply to a dot, the next envelope is out, so", () => {
    /** By rules: `undefined` gives no reply, `close` ends the connection. `log` holds the commands, and "body" for a body. */
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
      const { port } = await rawServer((socket) => {
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
      return { port, log, connections: () => connections };
    }
    const one = (port: number) => poolAt(port, { maxConnections: 1 });
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
      await assertMailed(one(port), people(5), { sent: 5 });
      assert.equal(bodies(log), 5);
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
      const message = Buffer.from(`Subject: x\r\n\r\n${"A line of the body\r\n".repeat(2_000)}`);
      await assertMailed(
        one(port),
        [TO, long],
        { sent: 2 },
        { fill: (to) => ({ envelope: { ...envelope, to }, message }), onResult: () => readOn() },
      );
      assert.equal(bodies(log), 2);
    });

    it("a 354 after a refused RCPT ends the connection, and its message is not taken for sent", async () => {
      const { port, log, connections } = await pipeliningServer((what) => {
        if (what.startsWith("RCPT TO:<person1@") || what.startsWith("RCPT TO:<person3@")) return "550 5.1.1 unknown";
        return what === "empty body" ? "554 no valid recipients" : accept(what);
      });
      const results = await assertMailed(one(port), people(5), { sent: 3, rejected: 2 });
      assert.deepEqual([bodies(log), log.filter((what) => what === "empty body").length, connections()], [3, 0, 3]);
      assert.equal(results.get("person3@example.org")?.[0]?.reason, "mailbox_unknown");
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
      await assertMailed(one(port), people(12), { sent: 12 });
      assert.equal(bodies(log), 12);
      assert.ok(connections() <= 12, `${connections()} connections`);
    });

    it("a server that closes after each message gets each of them once", async () => {
      const { port, log } = await pipeliningServer((what) => (what === "body" ? "250 ok\r\n221 bye" : accept(what)));
      const closing = await pipeliningServer((what, before) => (before.at(-2) === "body" ? "close" : accept(what)));
      for (const server of [{ port, log }, closing]) {
        await assertMailed(one(server.port), people(10), { sent: 10 });
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
      await assertMailed(one(port), people(6), { sent: 5, unknown: 1 });
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
      const { end, results } = await drainAll(one(port), people(4), { signal: stop.signal });
      assert.deepEqual(end, { ended: "stopped" });
      assert.deepEqual(tally(results), { sent: 1, not_attempted: 3 });
      assert.deepEqual(
        log.filter((what) => what.endsWith("body")),
        ["body"],
      );
    });

    it("a reply before the end of a body ends the connection, and its message is not taken for sent", async () => {
      const large = Buffer.from(`Subject: x\r\n\r\n${"word ".repeat(13)}\r\n`.repeat(200_000));
      const { port } = await rawServer((socket) => {
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
      const envelope = { from: "a@b.example", to: TO, smtpUtf8: false };
      assertResult(await poolAt(port).send({ envelope, message: large }), { outcome: "unknown", reason: "no_answer" });
    });
  });

  it("serves two drains at once", async () => {
    const sink = await sinkWith({ latencyMs: 1 });
    const pool = poolAt(sink.port, { maxConnections: 4 });
    const others = people(200).map((address) => `x${address}`);
    await Promise.all([people(200), others].map((addresses) => assertMailed(pool, addresses, { sent: 200 })));
    const half = sink.received.slice(0, 200).filter(({ to }) => to.startsWith("x")).length;
    assert.ok(half > 50 && half < 150, `neither waits for the other: ${half}`);
  });

  describe("that its server refuses", () => {
    const withLogin: SinkOptions = { authOptional: false, allowInsecureAuth: true };
    const LOGIN = { user: "desk", pass: "secret" };

    /** Refuses while `refuses` says so, each one later than the one before. */
    const refusingSink = async (stage: "greeting" | "login", code: number, refuses: () => boolean) => {
      const counts = { refused: 0, loggedIn: 0 };
      const refusal = Object.assign(new Error("4.7.0 by this test"), { responseCode: code });
      const reply = (at: typeof stage, accept: () => void, refuse: (error: Error) => void) => {
        if (at !== stage) return accept();
        if (refuses()) return void setTimeout(refuse, 10 * Math.min(++counts.refused, 20), refusal);
        counts.loggedIn++;
        accept();
      };
      const sink = await sinkWith({
        ...withLogin,
        latencyMs: 5,
        onConnect: (_session, done) => reply("greeting", () => done(), done),
        onAuth: (_auth, _session, done) => reply("login", () => done(null, { user: "desk" }), done),
      });
      return { sink, counts };
    };

    const cases = [
      ["login", 535, "login_refused", false],
      ["login", 454, "login_refused", true],
      ["greeting", 554, "greeting_refused", false],
      ["greeting", 421, "server_closing", true],
    ] as const;
    for (const [stage, code, reason, temporary] of cases) {
      it(`with ${code} at the ${stage}: stops after one connection, and opens none for a while`, async () => {
        const { sink } = await refusingSink(stage, code, () => true);
        const pool = poolAt(sink.port, { ...LOGIN, maxConnections: 100 });
        const { end, results } = await drainAll(pool, people(300), { batch: 100 });
        assert.ok(end.ended === "account_failure", end.ended);
        assert.deepEqual([end.failure.reason, end.failure.temporary], [reason, temporary]);
        assert.ok(Object.keys(tally(results)).every((outcome) => /^(account_failure|not_attempted)$/.test(outcome)));
        assert.deepEqual([(await drainAll(pool, people(50))).end, await pool.send(fill(TO))], [end, end.failure]);
        assert.equal(sink.connections.made, 1);
      });
    }

    const talks: [string, (socket: Socket) => void][] = [
      ["closing each connection at once", (socket) => socket.destroy()],
      ["never greeting", () => {}],
      ["a greeting that never ends", trickle],
    ];
    for (const [how, onConnection] of talks) {
      it(`by ${how}: stops after one connection`, async () => {
        const { port, connected } = await rawServer(onConnection);
        const { end } = await drainAll(poolAt(port, { maxConnections: 50, limits: within(150) }), people(200));
        assert.equal(end.ended === "account_failure" && end.failure.temporary, true);
        assert.equal(connected.size, 1);
      });
    }

    it("tries one connection once the pause has ended, then opens the rest", async () => {
      let isRepaired = false;
      const { sink, counts } = await refusingSink("login", 535, () => !isRepaired);
      const accesses: (string | undefined)[] = [];
      const onAccess: SmtpPoolOptions["onAccess"] = (failure) => accesses.push(failure?.reason);
      const pool = poolAt(sink.port, { ...LOGIN, maxConnections: 20, onAccess });
      await drainAll(pool, people(100));
      isRepaired = true;
      pool.tryNow();
      await assertMailed(pool, people(400), { sent: 400 });
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
      assert.ok(Object.keys(rest).every((outcome) => /^(account_failure|not_attempted)$/.test(outcome)));
      assert.ok(counts.refused >= 1 && counts.refused <= 8, `${counts.refused} refused logins`);
    });

    it("once, while others are logged in: continues with those, and tries no other one meanwhile", async () => {
      let logins = 0;
      const { sink, counts } = await refusingSink("login", 454, () => ++logins > 2);
      const pool = poolAt(sink.port, { ...LOGIN, maxConnections: 20 });
      await assertMailed(pool, people(300), { sent: 300 });
      assert.equal(counts.loggedIn, 2);
      // Two were opened at once when two were logged in; one more only after a minute.
      assert.equal(counts.refused, 2);
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
    it("finishes the messages in flight and begins no more, also when it is closed twice at once", async () => {
      const sink = await sinkWith({ latencyMs: 50 });
      const pool = poolAt(sink.port, { maxConnections: 4 });
      const draining = drainAll(pool, people(100));
      await eventually(() => sink.received.length >= 4);
      await Promise.all([pool.close({ graceMs: 5_000 }), pool.close({ graceMs: 5_000 })]);
      const { end, results } = await draining;
      assert.deepEqual(end, { ended: "stopped" });
      const counts = tally(results);
      assert.equal(counts["sent"], sink.received.length);
      assert.deepEqual(Object.keys(counts).sort(), ["not_attempted", "sent"]);
      assert.equal((await pool.send(fill(TO))).outcome, "not_attempted");
      await eventually(() => sink.connections.open === 0);
    });

    it("cuts off messages that do not end in time, as unknown when the dot may have left", async () => {
      const hung = new Set<string>();
      const hang = (at: string) => {
        hung.add(at);
        return "hang" as const;
      };
      const rcpt = (to: string) => (to.startsWith("person0@") ? hang("rcpt") : undefined);
      const sink = await sinkWith({ rcpt, dot: () => hang("dot") });
      const pool = poolAt(sink.port, { maxConnections: 2 });
      const draining = drainAll(pool, people(2));
      await eventually(() => hung.size === 2);
      await pool.close({ graceMs: 100 });
      const { results } = await draining;
      assert.equal(results.get("person0@example.org")?.[0]?.outcome, "deferred");
      assert.equal(results.get("person1@example.org")?.[0]?.outcome, "unknown");
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

    it("connects to public addresses at ports of mail only, and to no denied network", async () => {
      dns.names.set("mx.test", { a: ["1.1.1.1"] });
      const refused = async (host: string, port: number, denied: string[] = []) =>
        assertResult(await poolAt(port, { host, guard: guardWith([], denied) }).send(fill(TO)), FORBIDDEN);
      for (const host of "127.0.0.1 localhost ::1 169.254.169.254 10.0.0.1 127.1 2130706433 [::1]".split(" ")) {
        await refused(host, 25);
      }
      for (const host of ["1.1.1.1", "mx.test"]) {
        for (const port of [22, 443, 5432]) await refused(host, port);
        await refused(host, 25, ["1.1.1.0/24"]);
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

    for (const secure of ["starttls", "tls"] as const) {
      it(`verifies the certificate over ${secure} for the name, not for the address`, async () => {
        const names: string[] = [];
        const sink = await sinkWith({
          secure: secure === "tls",
          SNICallback: (servername, done) => {
            names.push(servername);
            done(null);
          },
        });
        const host = "named.test";
        dns.names.set(host, { a: ["127.0.0.1"] });
        const guard = guardWith([`${host}:*`]);
        const sendWith = (allowUnverifiedTls: boolean) =>
          poolAt(sink.port, { host, guard, secure, allowUnverifiedTls }).send(fill(TO));
        assertResult(await sendWith(false), { ...FORBIDDEN, reason: "tls_failed" });
        assertResult(await sendWith(true), { outcome: "sent" });
        assert.ok(names.includes(host));
      });
    }

    it("gives up on a name whose servers say nothing", async () => {
      dns.names.set("silent.test", { silent: "both" });
      const pool = poolAt(25, { host: "silent.test", guard: guardWith(), limits: within(200) });
      assertResult(await pool.send(fill(TO)), { ...FORBIDDEN, reason: "connection_timeout", temporary: true });
    });

    it("can be closed while a server is looked up, and while it does not greet", async () => {
      dns.names.set("silent.test", { silent: "both" });
      const { port, connected } = await rawServer(() => {});
      const looking = poolAt(25, { host: "silent.test", guard: guardWith() });
      for (const pool of [looking, poolAt(port)]) {
        const sending = pool.send(fill(TO));
        await eventually(() => pool.open === 1 && (pool === looking || connected.size === 1));
        await pool.close({ graceMs: 0 });
        assert.equal(pool.open, 0);
        assert.equal((await sending).outcome, "not_attempted");
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
      const refused = { outcome: "account_failure", reason: "login_in_clear_text", temporary: false } as const;
      assertResult(await poolAt(sink.port, account).send(fill(TO)), refused);
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
      limits: within(2_000),
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

    it("that can log in, and one whose password is wrong", async () => {
      const sink = await sinkWith(withLogin);
      const login = (pass: string) => verifyAccount(account(sink.port, { user: "desk@example.com", pass }));
      assert.deepEqual(await login("right"), { ok: true });
      assert.deepEqual(await login("wrong"), {
        ok: false,
        reason: "login_refused",
        temporary: false,
        message: "The server refused the user name or the password. It said: 535 5.7.8 bad login for [address]",
      });
      await eventually(() => sink.connections.open === 0);
    });

    it("never in clear text where STARTTLS was asked for", async () => {
      const sink = await sinkWith({ ...withLogin, hideSTARTTLS: true, disabledCommands: ["STARTTLS"] });
      const check = await verifyAccount(
        account(sink.port, { secure: "starttls", user: "desk@example.com", pass: "right" }),
      );
      assert.equal(!check.ok && check.reason, "tls_failed");
    });
  });
});

function trickle(socket: Socket): void {
  const trickling = setInterval(() => socket.write("220-more\r\n"), 20);
  socket.once("close", () => clearInterval(trickling));
}
