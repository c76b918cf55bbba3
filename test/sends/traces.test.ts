import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { connect } from "node:net";
import { json } from "node:stream/consumers";
import { promisify } from "node:util";
import { openLog } from "../../config/log.ts";
import { endTracing, inSpan, inStatementSpan, openTracing } from "../../config/tracing.ts";
import { leaksOf, textsIn } from "../histories/files.ts";
import { eventually } from "../support/eventually.ts";
import { unique } from "../support/factories.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { pidOf } from "../support/processes.ts";
import { openReceiver, RECEIVER_HOSTS, type Receiver } from "../support/receiver.ts";
import { anotherNewsletter, confirm, makeSender, tokenOf, untilStatus } from "../support/sending.ts";

interface Span {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  attributes: { key: string; value: Record<string, string | number> }[];
  status: { code?: number };
}

type Line = Record<string, unknown>;
type Otlp = { resourceSpans: { scopeSpans: { spans: Span[] }[] }[] };

const attributeOf = ({ attributes }: Span, name: string) =>
  Object.values(attributes.find(({ key }) => key === name)?.value ?? {})[0];

async function listen(answer: RequestListener) {
  const server = createServer(answer);
  const port = await listenLocally(server);
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${port}`, close };
}

/** The log of a process that is traced. */
function logTo(lines: Line[]) {
  const env = { LOG_LEVEL: "info", OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1" } as const;
  return openLog(env, "test", { write: (line) => void lines.push(JSON.parse(line)) });
}

describe("Traces", () => {
  const spans: Span[] = [];
  const lines: Line[] = [];
  let collector: Awaited<ReturnType<typeof listen>>;
  let namespace: TestNamespace;
  let receiver: Receiver;
  const untilSpan = (what: string, isIt: (span: Span) => boolean) => eventually(() => spans.find(isIt), { what });

  before(async () => {
    collector = await listen(async (req, res) => {
      const { resourceSpans } = (await json(req)) as Otlp;
      spans.push(...resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)));
      res.end("{}");
    });
    receiver = await openReceiver();
    const traced = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_TRACES_SAMPLER_ARG: 1 };
    namespace = await openNamespace(traced, { log: logTo(lines) });
    const settings = {
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_TRACES_SAMPLER_ARG: "1",
      WEBHOOK_ALLOWED_HOSTS: RECEIVER_HOSTS.join(","),
    };
    await Promise.all(
      (["sends", "dispatch", "webhooks"] as const).map((pool) => namespace.startWorker(pool, settings)),
    );
  });

  after(async () => {
    await namespace.close();
    collector.close();
    await receiver.close();
  });

  it("lead from the confirm of a send to its settlement in one", async () => {
    const sender = namespace.within(await makeSender({ recipients: 3, credits: 3 }));
    const { headers } = await confirm(sender, await tokenOf(sender));
    await untilStatus(sender, ["SENT"]);
    const requestId = headers.get("x-request-id");
    const root = await untilSpan(
      "the span of the request",
      (span) => attributeOf(span, "request_id") === requestId && !span.parentSpanId,
    );
    assert.ok(root);
    const trace = () => spans.filter(({ traceId }) => traceId === root.traceId);
    const pathOf = (span: Span): string[] => {
      const parent = trace().find(({ spanId }) => spanId === span.parentSpanId);
      return parent ? [...pathOf(parent), span.name] : [span.name];
    };
    const begin = ["POST /newsletters/{newsletterId}/send", "update sendWorkflow confirm"];
    const wanted = [
      [...begin, "activity confirmSend", "insert send_recipients"],
      [...begin, "activity beginSend"],
      [...begin, "activity dispatchSlice", "slice"],
      [...begin, "activity finishSend"],
    ].map((path) => path.join(" > "));
    // Each process sends its own spans when it likes, children before their parents.
    await eventually(
      () => {
        const paths = trace().map((span) => pathOf(span).join(" > "));
        const missing = wanted.filter((path) => !paths.includes(path));
        assert.deepEqual(missing, [], paths.sort().join("\n"));
        return paths.every((path) => path.startsWith(begin[0] ?? ""));
      },
      { what: "a whole trace" },
    );
    for (const span of trace()) assert.equal(attributeOf(span, "request_id"), requestId, span.name);
    const slice = trace().find(({ name }) => name === "slice");
    assert.equal(Number(slice && attributeOf(slice, "mailed")), 3);
  });

  it("have a span for each attempt of a webhook", async () => {
    const { client } = await makeSender({ recipients: 1 });
    const path = `/${unique("traced")}`;
    receiver.behaveAt(path, (_, response) => void response.writeHead(500).end("ann@example.com is unknown"));
    const url = `${receiver.origin}${path}`;
    const { body } = await client.post("/webhooks", { name: "Traced", url, events: ["newsletter.paused"] });
    const own = pidOf("webhooks");
    // The stack's own worker would take it.
    process.kill(own, "SIGSTOP");
    try {
      await client.post(`/webhooks/${body.data.id}/test`, {});
      const isIt = (span: Span) => span.name === "webhook attempt" && attributeOf(span, "webhook_id") === body.data.id;
      const attempt = await untilSpan("an attempt", isIt);
      assert.equal(Number(attempt && attributeOf(attempt, "http.response.status_code")), 500);
      await untilSpan("its activity", ({ spanId }) => spanId === attempt?.parentSpanId);
    } finally {
      process.kill(own, "SIGCONT");
    }
  });

  it("have an error where a statement fails, none where a confirm is refused", async () => {
    const sender = namespace.within(await makeSender({ recipients: 1, credits: 1 }));
    const other = await anotherNewsletter(sender);
    const [token, otherToken] = [await tokenOf(sender), await tokenOf(other)];
    assert.equal((await confirm(sender, token)).status, 202);
    const { status, headers } = await confirm(other, otherToken);
    assert.equal(status, 402);
    const ofRequest = (span: Span) => attributeOf(span, "request_id") === headers.get("x-request-id");
    const isRefused = (span: Span) => span.name === "activity confirmSend" && ofRequest(span);
    const refused = await untilSpan("the activity of the refused confirm", isRefused);
    assert.equal(refused?.status.code ?? 0, 0);
    const failure = Object.assign(new Error("Key (email)=(ann@example.com) exists"), { code: "23505" });
    const text = "with x as (select 1 from lists for update) insert into contacts select 1 from x";
    const fail = () => inStatementSpan(text, () => Promise.reject(failure));
    await assert.rejects(inSpan({ name: "failing" }, fail), failure);
    const failed = await untilSpan("the failed statement", (span) => attributeOf(span, "error.type") === "23505");
    assert.equal(failed?.name, "insert contacts");
    assert.equal(failed?.status.code, 2);
  });

  it("hold no address, key, token or text", () => {
    assert.ok(spans.length > 20);
    const texts = spans.flatMap(textsIn);
    assert.deepEqual(leaksOf(texts), []);
    assert.deepEqual(
      texts.filter((text) => / {2}|\n|\$\d|<|'/.test(text) || text.length > 120),
      [],
    );
  });

  it("are named by the lines of the log", async () => {
    const { headers } = await fetch(`${namespace.app.base}/me`);
    const { hostname, port } = new URL(namespace.app.origin);
    const leaver = connect(Number(port), hostname);
    leaver.write("POST /api/v2/lists HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n");
    await once(leaver, "data");
    leaver.resetAndDestroy();
    const answered = (line: Line) => line["requestId"] === headers.get("x-request-id");
    for (const isIt of [answered, ({ msg, status }: Line) => msg === "request" && status === null]) {
      const line = await eventually(() => lines.find(isIt), { what: "its line" });
      const requestId = line?.["requestId"];
      const root = await untilSpan("its span", (span) => attributeOf(span, "request_id") === requestId);
      assert.ok(root);
      assert.equal(line?.["traceId"], root.traceId);
    }
  });
});

describe("Tracing", () => {
  it("does not load its packages without a collector", async () => {
    const script = `
      const { registerHooks } = await import("node:module");
      registerHooks({ resolve: (name, context, next) => (console.log(name), next(name, context)) });
      await (await import("./config/tracing.ts")).openTracing({}, "test", console);`;
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script]);
    assert.deepEqual(
      stdout
        .trim()
        .split("\n")
        .filter((name) => !name.startsWith("node:")),
      ["./config/tracing.ts"],
    );
  });

  it("names no trace in the log that is not sampled", async () => {
    const silent = await listen(() => {});
    await openTracing({ OTEL_EXPORTER_OTLP_ENDPOINT: silent.url, OTEL_TRACES_SAMPLER_ARG: 0 }, "test", console);
    const lines: Line[] = [];
    await inSpan({ name: "not sampled" }, async (span) => {
      assert.equal(span, undefined);
      logTo(lines).info("within");
    });
    assert.equal(lines.length, 1);
    assert.ok(!("traceId" in (lines[0] ?? {})));
    await endTracing();
    silent.close();
  });

  it("drops what its collector refuses or does not answer, without delay or failure", async () => {
    for (const [answer, warning] of [
      [(_, res) => void res.writeHead(404).end("ann@example.com"), { code: "404" }],
      [() => {}, { code: undefined }],
    ] satisfies [RequestListener, object][]) {
      const warnings: unknown[] = [];
      const log = { warn: (warning: unknown) => void warnings.push(warning) };
      const collector = await listen(answer);
      await openTracing({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_TRACES_SAMPLER_ARG: 1 }, "test", log);
      const begun = performance.now();
      for (let i = 0; i < 3_000; i++) assert.equal(await inSpan({ name: "dropped" }, async () => i), i);
      assert.ok(performance.now() - begun < 5_000);
      await eventually(() => warnings.length > 0, { what: "a warning" });
      await endTracing();
      collector.close();
      assert.deepEqual(warnings, [warning]);
    }
  });
});
