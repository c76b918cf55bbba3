import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { parse, stringify } from "yaml";
import { claimPort } from "../../config/ports.ts";
import { stackSettings } from "../../stack/settings.ts";
import type { Json } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { needs } from "../support/programs.ts";
import { stack } from "../support/stack.ts";

const DEPLOY = `${import.meta.dirname}/../../deploy/prometheus`;
const run = promisify(execFile);

interface Sample {
  scrape_configs: [{ static_configs: [{ targets: string[] }] }];
}
interface Checked {
  health: string;
  lastError?: string;
}

/** Waits until Prometheus has tried each of these. */
async function untilKnown(read: () => Promise<Checked[]>, what: string): Promise<Checked[]> {
  let found: Checked[] = [];
  const areKnown = async () => {
    found = await read();
    return found.length > 0 && found.every(({ health }) => health !== "unknown");
  };
  await eventually(areKnown, { what });
  return found;
}

/** Other teams' mails leave all the time. @returns a test of these alerts after 20 minutes; no other of sends fires */
const standstill = (cause: string, alerts: Record<string, boolean>) => ({
  interval: "1m",
  input_series: [
    { series: `mailkeel_send_standstill_seconds{cause="${cause}", pool="maintenance"}`, values: "0+60x30" },
    { series: 'mailkeel_mails_total{outcome="SENT", pool="dispatch"}', values: "0+10000x30" },
    { series: 'mailkeel_queue_age_seconds{pool="maintenance"}', values: "0+60x30" },
  ],
  promql_expr_test: Object.entries(alerts).map(([alertname, fires]) => ({
    expr: `count(ALERTS{alertname="${alertname}", alertstate="firing"}) or vector(0)`,
    eval_time: "20m",
    exp_samples: [{ labels: "{}", value: Number(fires) }],
  })),
});

const HTTP = "mailkeel_http_request_seconds";
/** Series, a value a minute, in which each of these alerts fires, and others in which it does not. */
const FIRING: [alert: string, firing: Record<string, string>, quiet: Record<string, string>][] = [
  [
    "MailkeelServerErrors",
    { [`${HTTP}_count{route="/me", status="500"}`]: "0+6x90", [`${HTTP}_count{route="/me", status="200"}`]: "0+94x90" },
    // Paths that no route takes do not count.
    {
      [`${HTTP}_count{route="/me", status="500"}`]: "0+4x90",
      [`${HTTP}_count{route="/me", status="200"}`]: "0+96x90",
      [`${HTTP}_count{route="none", status="503"}`]: "0+99x90",
    },
  ],
  [
    "MailkeelApiSlow",
    {
      [`${HTTP}_bucket{route="/me", le="2.5"}`]: "0+98x90",
      [`${HTTP}_bucket{route="/me", le="5"}`]: "0+100x90",
      [`${HTTP}_bucket{route="/me", le="+Inf"}`]: "0+100x90",
    },
    {
      [`${HTTP}_bucket{route="/me", le="2.5"}`]: "0+100x90",
      [`${HTTP}_bucket{route="/me", le="+Inf"}`]: "0+100x90",
      [`${HTTP}_bucket{route="/newsletters/{newsletterId}/send", le="+Inf"}`]: "0+100x90",
    },
  ],
  [
    "MailkeelDeliveriesFail",
    { 'mailkeel_webhook_attempts_total{outcome="BLOCKED"}': "0+1x90" },
    { 'mailkeel_webhook_attempts_total{outcome="RETRYING"}': "0+9x90" },
  ],
  [
    "MailkeelEndpointsFail",
    { mailkeel_webhook_endpoints_failing: "1x70 6x20" },
    { mailkeel_webhook_endpoints_failing: "6x90" },
  ],
  [
    "MailkeelPoolAbsent",
    { 'mailkeel_pool_ready{pool="intake", instance="a"}': "1x60 _x30" },
    { 'mailkeel_pool_ready{pool="intake", instance="a"}': "1x90" },
  ],
  [
    "MailkeelPoolNotReady",
    {
      'mailkeel_pool_ready{pool="sends", instance="a"}': "1x90",
      'mailkeel_pool_ready{pool="sends", instance="b"}': "0x90",
    },
    { 'mailkeel_pool_ready{pool="sends", instance="a"}': "1x90" },
  ],
  [
    "MailkeelRetentionFails",
    { mailkeel_retention_failures_total: "0+1x90" },
    { mailkeel_retention_failures_total: "3x90" },
  ],
  [
    "MailkeelSystemMailWaits",
    { 'mailkeel_system_mail_wait_seconds{kind="confirmation"}': "0+60x90" },
    {
      'mailkeel_system_mail_wait_seconds{kind="confirmation"}': "1200x90",
      'mailkeel_system_mail_wait_seconds{kind="sign_in_link"}': "200x90",
    },
  ],
  [
    "MailkeelSendLeftPaused",
    { 'mailkeel_send_paused_seconds{cause="client"}': "86000+60x90" },
    { 'mailkeel_send_paused_seconds{cause="client"}': "0+60x90" },
  ],
];
/** The other processes of `MailkeelPoolAbsent`. */
const PRESENT = {
  'mailkeel_pool_ready{pool="sends", instance="other"}': "1x90",
  'mailkeel_pool_ready{pool="dispatch"}': "1x90",
  'mailkeel_pool_ready{pool="webhooks"}': "1x90",
  'mailkeel_pool_ready{pool="maintenance"}': "1x90",
  'process_start_time_seconds{pool="api"}': "1x90",
};

/** @returns a test of promtool for an alert after 80 minutes of these series */
const firingTest = (alert: string, series: Record<string, string>, fires: boolean) => ({
  interval: "1m",
  input_series: Object.entries({ ...PRESENT, ...series }).map(([name, values]) => ({ series: name, values })),
  promql_expr_test: [
    {
      expr: `count(ALERTS{alertname="${alert}", alertstate="firing"}) or vector(0)`,
      eval_time: "80m",
      exp_samples: [{ labels: "{}", value: Number(fires) }],
    },
  ],
});

describe("deploy/prometheus", () => {
  const promtool = needs("promtool");
  let folder: string;

  before(() => {
    folder = mkdtempSync(`${tmpdir()}/mailkeel-prometheus-`);
    cpSync(`${DEPLOY}/alerts.yml`, `${folder}/alerts.yml`);
  });
  after(() => rmSync(folder, { recursive: true }));

  it("holds rules and a configuration that Prometheus takes", async () => {
    const { stdout } = await run(promtool(), ["check", "rules", `${DEPLOY}/alerts.yml`]);
    assert.match(stdout, /SUCCESS: [1-9]\d* rules found/);
    await run(promtool(), ["check", "config", `${DEPLOY}/prometheus.yml`]);
  });

  it("alerts when one team's send stands still, however many mails the others send", async () => {
    const [MailkeelSendAccountFails, MailkeelSendStandsStill, MailkeelQueueStalled] = [false, false, false];
    const quiet = { MailkeelSendAccountFails, MailkeelSendStandsStill, MailkeelQueueStalled };
    const tests = {
      rule_files: ["alerts.yml"],
      evaluation_interval: "1m",
      tests: [
        standstill("account", { ...quiet, MailkeelSendAccountFails: true }),
        standstill("other", { ...quiet, MailkeelSendStandsStill: true }),
        standstill("limit", quiet),
      ],
    };
    writeFileSync(`${folder}/tests.yml`, stringify(tests));
    const { stdout } = await run(promtool(), ["test", "rules", `${folder}/tests.yml`]);
    assert.match(stdout, /SUCCESS/);
  });

  it("alerts on errors, waits, pauses, and on one stalled process of several", async () => {
    const tests = FIRING.flatMap(([alert, firing, quiet]) => [
      firingTest(alert, firing, true),
      firingTest(alert, quiet, false),
    ]);
    writeFileSync(`${folder}/firing.yml`, stringify({ rule_files: ["alerts.yml"], evaluation_interval: "1m", tests }));
    const { stdout } = await run(promtool(), ["test", "rules", `${folder}/firing.yml`]);
    assert.match(stdout, /SUCCESS/);
  });

  it("lets a Prometheus scrape every process of the stack and evaluate every rule", async () => {
    const sample = parse(readFileSync(`${DEPLOY}/prometheus.yml`, "utf8")) as Sample;
    const [{ targets }] = sample.scrape_configs[0].static_configs;
    const first = stackSettings.shape.HEALTH_PORT.parse(undefined);
    const { health } = await stack();
    const ofStack = Object.values(health).map((url) => new URL(url).host);
    assert.deepEqual(
      targets,
      // The stack of the tests runs no intake.
      [...ofStack, "intake"].map((_, i) => `127.0.0.1:${first + i}`),
    );
    sample.scrape_configs[0].static_configs[0].targets = ofStack;
    const quick = { scrape_interval: "1s", evaluation_interval: "1s" };
    writeFileSync(`${folder}/prometheus.yml`, stringify({ ...sample, global: quick }));

    const address = `127.0.0.1:${await claimPort()}`;
    const prometheus = spawn(
      `${dirname(promtool())}/prometheus`,
      [
        ...["--config.file", `${folder}/prometheus.yml`, "--storage.tsdb.path", `${folder}/data`],
        ...["--web.listen-address", address],
      ],
      { stdio: ["ignore", "ignore", "pipe"] },
    );
    const said = text(prometheus.stderr);
    const ask = async (path: string): Promise<Json> => {
      const answer: Json = await (await fetch(`http://${address}/api/v1/${path}`)).json();
      return answer.data;
    };
    try {
      const scraped = await untilKnown(async () => (await ask("targets")).activeTargets, "a scrape of each process");
      assert.deepEqual(
        scraped.map(({ health: state, lastError }) => [state, lastError]),
        ofStack.map(() => ["up", ""]),
      );
      const rules = await untilKnown(
        async () => (await ask("rules")).groups.flatMap((group: Json) => group.rules),
        "an evaluation of each rule",
      );
      assert.deepEqual(
        rules.filter(({ health: state }) => state !== "ok"),
        [],
      );
      const { result } = await ask(`query?query=${encodeURIComponent("mailkeel_pool_ready")}`);
      const pools: string[] = result.map(({ metric }: Json) => metric.pool);
      assert.deepEqual(["api", ...pools].sort(), Object.keys(health).sort());
    } catch (error) {
      prometheus.kill();
      throw new Error(`Prometheus wrote: ${(await said).slice(-2_000)}`, { cause: error });
    } finally {
      prometheus.kill();
      if (prometheus.exitCode === null) await once(prometheus, "exit");
    }
  });
});
