import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { connect } from "node:net";
import { json } from "node:stream/consumers";
import { promisify } from "node:util";
import type { Context } from "@temporalio/activity";
import { defaultPayloadConverter } from "@temporalio/common";
import type { ActivityExecuteInput } from "@temporalio/worker";
import { pino } from "pino";
import { z } from "zod";
import { HitBuffer } from "../../api/public/hit-buffer.ts";
import { router } from "../../api/rest/route.ts";
import { openTemporal } from "../../api/temporal-gateway.ts";
import { openLog } from "../../config/log.ts";
import { Progress } from "../../config/progress.ts";
import {
  endTracing,
  inSpan,
  inStatementSpan,
  keepSpan,
  logFields,
  openTracing,
  type SpanHeader,
  spanHeader,
  withoutSpan,
} from "../../config/tracing.ts";
import { newId } from "../../domain/ids.ts";
import type { Hit } from "../../domain/tracking/record.ts";
import { SPAN_HEADER } from "../../temporal/ids.ts";
import { failuresToCodes, traceActivities } from "../../workers/interceptors.ts";
import { leaksOf, textsIn } from "../histories/files.ts";
import { route, serveRoutes } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, unique } from "../support/factories.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { pidOf } from "../support/processes.ts";
import { openReceiver, RECEIVER_HOSTS, type Receiver } from "../support/receiver.ts";
import { anotherNewsletter, confirm, makeSender, tokenOf, untilStatus } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

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

/** Collects what is sent to it. */
const collectIn = (spans: Span[]) =>
  listen(async (req, res) => {
    const { resourceSpans } = (await json(req)) as Otlp;
    spans.push(...resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)));
    res.end("{}");
  });

/** @returns the spans of this process while it works, all sampled */
async function spansOf(work: (settings: typeof SAMPLED & { OTEL_EXPORTER_OTLP_ENDPOINT: string }) => Promise<unknown>) {
  const spans: Span[] = [];
  const { url, close } = await collectIn(spans);
  const settings = { ...SAMPLED, OTEL_EXPORTER_OTLP_ENDPOINT: url };
  await openTracing(settings, "test", console);
  try {
    await work(settings);
  } finally {
    await endTracing();
    close();
  }
  return spans;
}
const SAMPLED = { OTEL_TRACES_SAMPLER_ARG: 1 };

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
    collector = await collectIn(spans);
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
    assert.equal(Number(attributeOf(root, "http.response.status_code")), 202);
    assert.equal(
      attributeOf(root, "send_id"),
      (await sender.client.get(`/newsletters/${sender.newsletterId}`)).body.data.send_id,
    );
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
      const activity = await untilSpan("its activity", ({ spanId }) => spanId === attempt?.parentSpanId);
      assert.equal(activity?.name, "activity deliverDue");
    } finally {
      process.kill(own, "SIGCONT");
    }
  });

  it("have no error where a confirm is refused", async () => {
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

  it("go on in the workflows that a request starts or signals", async () => {
    const options = { taskQueue: unique("unserved"), args: [] };
    const { call } = namespace.app.deps.temporal;
    const begins = {
      start: (workflowId: string) => call(10_000, ({ workflow }) => workflow.start("any", { ...options, workflowId })),
      signal: (workflowId: string) =>
        call(10_000, ({ workflow }) => workflow.signalWithStart("any", { ...options, workflowId, signal: "any" })),
    };
    for (const [name, begin] of Object.entries(begins)) {
      const traceId = await inSpan({ name }, async (span) => {
        await begin(name);
        return span?.spanContext().traceId;
      });
      const { events } = await namespace.client.workflow.getHandle(name).fetchHistory();
      const { header } = events?.[0]?.workflowExecutionStartedEventAttributes ?? {};
      const given = header?.fields?.[SPAN_HEADER];
      assert.ok(given && traceId);
      assert.equal(defaultPayloadConverter.fromPayload<SpanHeader>(given).traceparent?.split("-")[1], traceId);
    }
  });

  it("show a message of MCP as the operation that it calls", async () => {
    const params = { name: "retrieveList", arguments: { listId: newId("list") } };
    const answer = await fetch(`${namespace.app.base}/mcp`, {
      method: "POST",
      headers: {
        "x-api-key": (await makeSender({ recipients: 1 })).keys.live,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }),
    });
    const requestId = answer.headers.get("x-request-id");
    const span = await untilSpan(
      "its span",
      (span) => attributeOf(span, "request_id") === requestId && !span.parentSpanId,
    );
    assert.equal(span?.name, "GET /lists/{listId}");
    assert.equal(Number(attributeOf(span, "http.response.status_code")), 404);
    assert.equal(attributeOf(span, "tool"), "retrieveList");
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

  it("makes no span where the SDK is disabled", async () => {
    const disabled = { ...SAMPLED, OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1", OTEL_SDK_DISABLED: true };
    await openTracing(disabled, "test", console);
    await inSpan({ name: "disabled" }, async (span) => assert.equal(span, undefined));
  });

  it("names no trace in the log that is not sampled", async () => {
    const silent = await listen(() => {});
    await openTracing({ OTEL_EXPORTER_OTLP_ENDPOINT: silent.url, OTEL_TRACES_SAMPLER_ARG: 0 }, "test", console);
    const lines: Line[] = [];
    await inSpan({ name: "not sampled" }, async (span) => {
      assert.equal(span, undefined);
      logTo(lines).info("within");
      assert.deepEqual(spanHeader(), {}, "the workflow that it starts is not sampled either");
    });
    assert.equal(lines.length, 1);
    assert.ok(!("traceId" in (lines[0] ?? {})));
    await endTracing();
    silent.close();
  });

  it("has at most 500 children of a span, and none of a leaf", async () => {
    const child = () => inSpan({ name: "child" }, async () => undefined);
    const parent = async () => {
      for (let i = 0; i < 502; i++) await child();
    };
    const spans = await spansOf(async () => {
      await inSpan({ name: "parent" }, parent);
      await inSpan({ name: "leaf", isLeaf: true }, child);
      await inSpan({ name: "part of none", isPart: true }, async () => undefined);
    });
    const leftOut = Object.fromEntries(spans.map((span) => [span.name, attributeOf(span, "children_left_out")]));
    assert.deepEqual(leftOut, { child: undefined, parent: 2, leaf: 1 });
    assert.equal(spans.filter(({ name }) => name === "child").length, 500);
  });

  it("names a statement by its first write, else by the first table that it reads", async () => {
    const texts = {
      "update sends": `with x as (select 1 from lists for update) update sends set a = 1`,
      "select sends": `select extract(epoch from s.send_at), b is distinct from least(1) from "sends" s`,
      "select lists": "select 1 from lists",
      commit: "commit",
    };
    const spans = await spansOf(() =>
      inSpan({ name: "all" }, async () => {
        for (const text of [...Object.values(texts), "begin"]) await inStatementSpan(text, async () => undefined);
      }),
    );
    assert.deepEqual(
      spans.map(({ name }) => name),
      [...Object.keys(texts), "all"],
    );
  });

  it("runs a callback in the span that it was made for, and what outlives a span in none", async () => {
    await spansOf(async () => {
      const [own, kept] = await inSpan({ name: "own" }, async () => [logFields(), keepSpan(logFields)] as const);
      assert.ok(own.traceId);
      await inSpan({ name: "another" }, async () => {
        assert.deepEqual(kept(), own);
        assert.deepEqual(withoutSpan(logFields), {});
      });
      const recorded = Promise.withResolvers<object>();
      const none = () => undefined;
      const hits = new HitBuffer({
        record: async () => {
          recorded.resolve(logFields());
          return [];
        },
        metrics: { recorded: none, dropped: none, ignored: none, waiting: none },
        progress: new Progress(),
        log: pino({ enabled: false }),
      });
      const hit: Hit = {
        ...{ kind: "opened", sendId: newId("send"), seq: 1, at: Date.now(), url: null },
        ...{ rule: null, early: false, source: null },
      };
      await inSpan({ name: "request" }, async () => hits.add(hit));
      assert.deepEqual(await recorded.promise, {});
      await hits.close();
    });
  });

  it("has an error where a statement, an activity, a call to Temporal or a request fails", async () => {
    const failure = Object.assign(new Error("Key (email)=(ann@example.com) exists"), { code: "23505" });
    const text = "with x as (select 1 from lists for update) insert into contacts select 1 from x";
    const fail = () => inStatementSpan(text, () => Promise.reject(failure));
    const context = { info: { activityType: "failing" } } as Context;
    const activity: ActivityExecuteInput = { args: [], headers: {} };
    const toCodes = failuresToCodes(pino({ enabled: false }))(context).inbound;
    const temporal = openTemporal({ ...(await stack()).env, TEMPORAL_ADDRESS: "127.0.0.1:1" });
    const ofParts = await spansOf(async () => {
      const { inbound } = traceActivities(context);
      await assert.rejects(inbound.execute(activity, () => toCodes.execute(activity, fail)));
      const start = { workflowId: "any", taskQueue: "any", args: [] };
      const call = () => temporal.call(500, ({ workflow }) => workflow.start("any", start));
      await assert.rejects(inSpan({ name: "calling" }, call));
      await temporal.close();
    });
    const fails = route({ method: "GET", path: "/fails", scope: null, summary: "Fails" })
      .input(z.strictObject({}))
      .output(z.null())
      .query(() => Promise.reject(failure));
    const { keys } = await makeTeam();
    const ofRequest = await spansOf(async (changes) => {
      const app = await serveRoutes(router({ fails }), { changes });
      await fetch(`${app.base}/fails`, { headers: { "x-api-key": keys.live } });
      await app.close();
    });
    const failed = [...ofParts, ...ofRequest].filter(({ status }) => status.code === 2);
    assert.deepEqual(
      failed.map((span) => [span.name, attributeOf(span, "error.type")]),
      [
        ["insert contacts", "23505"],
        ["activity failing", "database_23505"],
        ["start any", "temporal_away"],
        ["GET /fails", "internal_error"],
      ],
    );
  });

  it("drops what its collector refuses or does not answer, without delay or failure", async () => {
    for (const [answer, warning] of [
      [(_, res) => void res.writeHead(404).end("ann@example.com"), { code: "404" }],
      [() => {}, { code: "Timeout" }],
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
