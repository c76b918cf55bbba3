import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { openLog } from "../../config/log.ts";
import { inSpan, openTracing } from "../../config/tracing.ts";
import { leaksOf, textsIn } from "../histories/files.ts";
import { eventually } from "../support/eventually.ts";
import { unique } from "../support/factories.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { pidOf } from "../support/processes.ts";
import { openReceiver, RECEIVER_HOSTS, type Receiver } from "../support/receiver.ts";
import { confirm, makeSender, tokenOf, untilStatus } from "../support/sending.ts";

interface Span {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  attributes: { key: string; value: Record<string, string | number> }[];
}

type Otlp = { resourceSpans: { scopeSpans: { spans: Span[] }[] }[] };

const attributeOf = ({ attributes }: Span, name: string) =>
  Object.values(attributes.find(({ key }) => key === name)?.value ?? {})[0];

async function listen(answer: RequestListener) {
  const server = createServer(answer);
  await once(server.listen(0, "127.0.0.1"), "listening");
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close };
}

describe("Traces", () => {
  const spans: Span[] = [];
  let collector: Awaited<ReturnType<typeof listen>>;
  let namespace: TestNamespace;
  let receiver: Receiver;

  before(async () => {
    collector = await listen(async (req, res) => {
      const { resourceSpans } = (await json(req)) as Otlp;
      spans.push(...resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)));
      res.end("{}");
    });
    receiver = await openReceiver();
    namespace = await openNamespace({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_TRACES_SAMPLER_ARG: 1 });
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
    const root = await eventually(
      () => spans.find((span) => attributeOf(span, "request_id") === requestId && !span.parentSpanId),
      {
        what: "the span of the request",
      },
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
      [...begin, "activity dispatchSlice", "slice", "commit"],
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
    const url = `${receiver.origin}/${unique("traced")}`;
    const { body } = await client.post("/webhooks", { name: "Traced", url, events: ["newsletter.paused"] });
    const own = pidOf("webhooks");
    // The stack's own worker would take it.
    process.kill(own, "SIGSTOP");
    try {
      await client.post(`/webhooks/${body.data.id}/test`, {});
      const isIt = (span: Span) => span.name === "webhook attempt" && attributeOf(span, "webhook_id") === body.data.id;
      const attempt = await eventually(() => spans.find(isIt), { what: "an attempt" });
      await eventually(() => spans.some(({ spanId }) => spanId === attempt?.parentSpanId), { what: "its activity" });
    } finally {
      process.kill(own, "SIGCONT");
    }
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
    const lines: string[] = [];
    const env = { LOG_LEVEL: "info", OTEL_EXPORTER_OTLP_ENDPOINT: collector.url } as const;
    const log = openLog(env, "test", { write: (line) => void lines.push(line) });
    await inSpan({ name: "logged" }, async (span) => {
      log.info("within");
      assert.equal(JSON.parse(lines[0] ?? "").traceId, span?.spanContext().traceId);
    });
  });

  it("are dropped where their collector does not answer, without delay or failure", async () => {
    const deaf = await listen(() => {});
    const warnings: unknown[] = [];
    const end = await openTracing({ OTEL_EXPORTER_OTLP_ENDPOINT: deaf.url, OTEL_TRACES_SAMPLER_ARG: 1 }, "test", {
      warn: (warning: unknown) => void warnings.push(warning),
    });
    const begun = performance.now();
    for (let i = 0; i < 20_000; i++) assert.equal(await inSpan({ name: "dropped" }, async () => i), i);
    assert.ok(performance.now() - begun < 5_000);
    await end();
    deaf.close();
    assert.equal(warnings.length, 1);
  });
});
