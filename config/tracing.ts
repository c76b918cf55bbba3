import { AsyncLocalStorage } from "node:async_hooks";
import type * as Api from "@opentelemetry/api";
import type { Logger } from "pino";
import type { Env } from "./env.ts";

/*
 * Spans of OpenTelemetry. The packages are loaded by `openTracing` alone, and only where a collector is set: otherwise
 * `inSpan` calls its work and does nothing else. No address, key, text of a mail or message of an error may become an
 * attribute.
 */

export type SpanAttributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** Children of one span: an activity may make thousands of statements or attempts. */
const MOST_CHILDREN = 500;
/** Spans that wait for the collector; more of them are dropped. */
const MOST_WAITING = 4_096;
const SPANS_OF_A_BATCH = 512;
const EXPORT_EVERY_MS = 2_000;
/** A collector that does not answer holds up a stopping process for no longer. */
const EXPORT_TIMEOUT_MS = 3_000;
/** How often a collector that does not answer is reported. */
const WARN_EVERY_MS = 60_000;

/** The span in which the present code runs; it is undefined in a trace that is not sampled. */
interface CurrentSpan {
  span: Api.Span | undefined;
  requestId?: string | undefined;
  children: number;
}

/** Nothing below it is sampled either. */
const NOT_SAMPLED: CurrentSpan = { span: undefined, children: 0 };

interface Tracing {
  api: typeof Api;
  tracer: Api.Tracer;
  /** Share of the spans without a parent that are sampled, from 0 to 1. */
  share: number;
  end(): Promise<void>;
}

const current = new AsyncLocalStorage<CurrentSpan>();
let tracing: Tracing | undefined;

interface SpanOptions {
  name: string;
  kind?: "SERVER" | "CLIENT" | "INTERNAL";
  attributes?: SpanAttributes;
  /** The request that a span without a parent is of; spans below it get the same. */
  requestId?: string;
  /** It is made below another span alone, and begins no trace. */
  isPart?: boolean;
  /** It has no children: the attribute `children_left_out` counts them. */
  isLeaf?: boolean;
}

/** Runs `work` in a span of its own, which is undefined while there are no traces, or this one is not sampled. */
export function inSpan<T>(options: SpanOptions, work: (span?: Api.Span) => Promise<T>): Promise<T> {
  return tracing === undefined ? work() : traced(tracing, options, work);
}

/** Runs a statement of Postgres in a span below the present one; in none without that, nor where it begins a transaction. */
export function inStatementSpan<T>(text: string, run: () => Promise<T>): Promise<T> {
  if (tracing === undefined || !current.getStore()?.span || /^(begin|start)\b/.test(text)) return run();
  const options = { name: summaryOf(text), kind: "CLIENT", attributes: { "db.system.name": "postgresql" } } as const;
  return traced(tracing, options, (span) =>
    run().catch((error) => {
      if (span) markFailed(codeOf(error));
      throw error;
    }),
  );
}

async function traced<T>(
  { api, tracer, share }: Tracing,
  { name, kind = "INTERNAL", attributes, requestId: given, isPart, isLeaf }: SpanOptions,
  work: (span?: Api.Span) => Promise<T>,
): Promise<T> {
  const parent = current.getStore();
  if (parent && (!parent.span || ++parent.children > MOST_CHILDREN)) return work();
  // The SDK would make a context and IDs first. A context of its own would cost each request that is not sampled.
  if (!parent && (isPart || Math.random() >= share)) return work();
  const requestId = parent?.requestId ?? given;
  const outer = parent?.span ? api.trace.setSpan(api.ROOT_CONTEXT, parent.span) : api.ROOT_CONTEXT;
  const options = { kind: api.SpanKind[kind], attributes: { ...attributes, request_id: requestId } };
  const span = tracer.startSpan(name, options, outer);
  const own = { span, requestId, children: isLeaf ? MOST_CHILDREN : 0 };
  try {
    return await current.run(own, work, span);
  } finally {
    if (own.children > MOST_CHILDREN) span.setAttribute("children_left_out", own.children - MOST_CHILDREN);
    span.end();
  }
}

/** Marks the present span. */
export function markFailed(code: string): void {
  if (tracing === undefined) return;
  current.getStore()?.span?.setAttribute("error.type", code).setStatus({ code: tracing.api.SpanStatusCode.ERROR });
}

/** A code or the name of its class: messages of errors may quote an address. */
function codeOf(error: unknown): string {
  const { code, type, name } = Object(error) as Record<"code" | "type" | "name", unknown>;
  return String([code, type, name].find((text) => typeof text === "string" && /^\w{1,60}$/.test(text)) ?? "error");
}

/** The first write of a statement, else its first read: `update sends`. */
function summaryOf(text: string): string {
  const [, ...words] = WRITE.exec(text) ?? READ.exec(text) ?? /(\w+)/.exec(text) ?? [];
  return words.join(" ").toLowerCase();
}

const WRITE = /\b(insert|delete|(?<!\b(?:for|do|key)\s+)update)\s+(?:into\s+|from\s+)?"?([a-z_]+)/i;
/** No alias or function behind a `from`, as in `extract(epoch from s.send_at)`. */
const READ = /\b(select)\b.*?\bfrom\s+"?([a-z_]+)\b(?![.(])/is;

/** Makes a callback run in the present span, or in none where there is none, also when another span calls it. */
export function keepSpan<Args extends unknown[], R>(act: (...args: Args) => R): (...args: Args) => R {
  if (tracing === undefined) return act;
  const kept = current.getStore();
  return (...args) => (kept ? current.run(kept, act, ...args) : current.exit(act, ...args));
}

/** Makes a timer or the like in no span: it outlives the present one. */
export const withoutSpan = <T>(make: () => T): T => current.exit(make);

/** Fields of each line that is logged in a span. */
export function logFields(): { traceId?: string } {
  const span = current.getStore()?.span;
  return span ? { traceId: span.spanContext().traceId } : {};
}

/** The present span as workflows carry it to their activities. */
export interface SpanHeader {
  /** As W3C Trace Context writes it; left out where it is not sampled. */
  traceparent?: string;
  requestId?: string;
}

export function spanHeader(): SpanHeader | undefined {
  if (tracing === undefined) return undefined;
  const { span, requestId } = current.getStore() ?? NOT_SAMPLED;
  if (span === undefined) return {};
  const { traceId, spanId } = span.spanContext();
  return { traceparent: `00-${traceId}-${spanId}-01`, ...(requestId !== undefined && { requestId }) };
}

/** Runs `work` as a part of the span that a header names. */
export function underSpan<T>(header: SpanHeader | undefined, work: () => Promise<T>): Promise<T> {
  if (tracing === undefined || header === undefined) return work();
  const { api } = tracing;
  const [, traceId, spanId] = header.traceparent?.split("-") ?? [];
  if (!traceId || !spanId) return current.run(NOT_SAMPLED, work);
  const span = api.trace.wrapSpanContext({ traceId, spanId, traceFlags: api.TraceFlags.SAMPLED, isRemote: true });
  return current.run({ span, requestId: header.requestId, children: 0 }, work);
}

/** Loads the packages and begins to trace, where a collector is set and the SDK is not disabled. */
export async function openTracing(
  env: Pick<Env, "OTEL_EXPORTER_OTLP_ENDPOINT" | "OTEL_TRACES_SAMPLER_ARG"> & Partial<Pick<Env, "OTEL_SDK_DISABLED">>,
  service: string,
  log: Pick<Logger, "warn">,
): Promise<void> {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_TRACES_SAMPLER_ARG: share } = env;
  if (endpoint === undefined || env.OTEL_SDK_DISABLED) return;
  const [api, sdk, { OTLPTraceExporter }, resources] = await Promise.all([
    import("@opentelemetry/api"),
    import("@opentelemetry/sdk-trace"),
    import("@opentelemetry/exporter-trace-otlp-http"),
    import("@opentelemetry/resources"),
  ]);
  let warnedAt = Number.NEGATIVE_INFINITY;
  const warn = (message: string) => {
    if (performance.now() - warnedAt < WARN_EVERY_MS) return;
    warnedAt = performance.now();
    // An error of the SDK as JSON: an HTTP status, a code of the socket or `Timeout`, beside texts of the collector.
    const code = /"(?:code|message)":"(\w+)"/.exec(message)?.[1];
    withoutSpan(() =>
      log.warn({ code }, "spans were lost: the collector of traces does not take them, or not as many"),
    );
  };
  const quiet = () => {};
  const diagnostics = { error: warn, warn, info: quiet, debug: quiet, verbose: quiet };
  api.diag.setLogger(diagnostics, { logLevel: api.DiagLogLevel.WARN, suppressOverrideMessage: true });
  const provider = new sdk.TracerProvider({
    // Attributes of the operator, by OTEL_RESOURCE_ATTRIBUTES, add to it.
    resource: resources
      .resourceFromAttributes({ "service.name": `mailkeel-${service}` })
      .merge(resources.detectResources({ detectors: [resources.envDetector] })),
    sampler: new sdk.AlwaysOnSampler(),
    spanProcessors: [
      new sdk.BatchSpanProcessor({
        exporter: new OTLPTraceExporter({
          url: `${endpoint.replace(/\/$/, "")}/v1/traces`,
          timeoutMillis: EXPORT_TIMEOUT_MS,
        }),
        maxQueueSize: MOST_WAITING,
        maxExportBatchSize: SPANS_OF_A_BATCH,
        scheduledDelayMillis: EXPORT_EVERY_MS,
        exportTimeoutMillis: EXPORT_TIMEOUT_MS,
      }),
    ],
  });
  tracing = { api, tracer: provider.getTracer("mailkeel"), share, end: () => provider.shutdown().catch(quiet) };
}

/** Sends the spans that wait, for at most EXPORT_TIMEOUT_MS. */
export async function endTracing(): Promise<void> {
  const opened = tracing;
  tracing = undefined;
  await opened?.end();
}
