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
import { STACK_SETTINGS_FACTS } from "../../stack/settings.ts";
import type { Json } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { stack } from "../support/stack.ts";
import { needs } from "./programs.ts";

const DEPLOY = `${import.meta.dirname}/../../deploy/prometheus`;
const run = promisify(execFile);

interface Sample {
  scrape_configs: [{ static_configs: [{ targets: string[] }] }];
}
/** A process that is scraped, or a rule. */
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

/**
 * One team's send stands still for a cause, while other teams' mails leave all the time.
 * @returns a test of promtool for these alerts after 20 minutes; the others of sends do not fire
 */
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

  it("lets a Prometheus scrape every process of the stack and evaluate every rule", async () => {
    const sample = parse(readFileSync(`${DEPLOY}/prometheus.yml`, "utf8")) as Sample;
    const [{ targets }] = sample.scrape_configs[0].static_configs;
    const first = Number(STACK_SETTINGS_FACTS.HEALTH_PORT.defaultText);
    const { health } = await stack();
    const ofStack = Object.values(health).map((url) => new URL(url).host);
    assert.deepEqual(
      targets,
      ofStack.map((_, i) => `127.0.0.1:${first + i}`),
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
