import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { relative } from "node:path";
import { pino } from "pino";
import { parse } from "yaml";
import { openMetrics } from "../../api/metrics.ts";
import { SETTINGS_FACTS, type SettingFacts } from "../../config/env.ts";
import { faultRules } from "../../stack/mail-faults.ts";
import { STACK_SETTINGS_FACTS } from "../../stack/settings.ts";
import { openIntakeMetrics } from "../../workers/intake-metrics.ts";
import { createMetrics } from "../../workers/metrics.ts";
import { DEFAULT_ACTIVITIES, POOLS, type PoolDefinition } from "../../workers/pools.ts";
import * as searchAttributes from "../../workflows/search-attributes.ts";

interface Alert {
  alert: string;
  annotations: { runbook_url?: string };
}

const ROOT = `${import.meta.dirname}/../..`;
const read = (path: string): string => readFileSync(`${ROOT}/${path}`, "utf8");

describe("docs/operations.md", () => {
  const text = read("docs/operations.md");

  /** Rows of the table that begins with this heading: the first cell's name and the second cell. */
  function tableOf(heading: string): Record<string, string> {
    const [, table = ""] = text.split(`\n| ${heading} |`);
    const [lines = ""] = table.split("\n\n");
    const rows = [...lines.matchAll(/^\| `(\w+)` \| ([^|]*) \|/gm)];
    return Object.fromEntries(rows.map(([, name = "", cell = ""]) => [name, cell]));
  }

  const cellOf = ({ required, defaultText }: SettingFacts): string =>
    required ? "required" : defaultText === undefined ? "none" : `\`${defaultText}\``;
  const cellsOf = (facts: Record<string, SettingFacts>): Record<string, string> =>
    Object.fromEntries(Object.entries(facts).map(([name, each]) => [name, cellOf(each)]));

  it("says of every setting whether it is required, or its default", () => {
    const perPool = Object.entries<PoolDefinition>(POOLS).filter(([, { activities }]) => activities !== undefined);
    const concurrency = [
      `\`${DEFAULT_ACTIVITIES}\``,
      ...perPool.map(([pool, { activities }]) => `${pool} \`${activities}\``),
    ].join("; ");
    assert.deepEqual(tableOf("setting"), { ...cellsOf(SETTINGS_FACTS), ACTIVITY_CONCURRENCY: concurrency });
  });

  it("says the same of every setting of the embedded stack", () => {
    const { DATA_DIR, ...others } = STACK_SETTINGS_FACTS;
    const folder = relative(process.cwd(), DATA_DIR.defaultText ?? "");
    assert.deepEqual(tableOf("setting of the stack"), { DATA_DIR: `\`${folder}\``, ...cellsOf(others) });
  });

  it("explains every field of a fault rule, with rules that the mail catcher takes", () => {
    assert.deepEqual(Object.keys(tableOf("field")).sort(), Object.keys(faultRules.element.shape).sort());
    const examples = [...text.matchAll(/api\/faults .*--data '([^']*)'/g)].map(([, rules = ""]) => rules);
    assert.deepEqual(
      examples.map((rules) => faultRules.parse(JSON.parse(rules)).length),
      [2, 0],
    );
  });

  it("names every search attribute that a cluster needs, with its type", () => {
    const [sentence] = /A cluster of your own needs[^.]*\./.exec(text) ?? [""];
    for (const [, names = "", type] of sentence.matchAll(/((?:`\w+`,?\s)+)\((\w+)\)/g)) {
      const told = [...names.matchAll(/`(\w+)`/g)].map(([, name]) => name);
      const needed = Object.values(searchAttributes).filter((attribute) => attribute.type === type?.toUpperCase());
      assert.deepEqual(told.sort(), needed.map(({ name }) => name as string).sort());
    }
    for (const { name } of Object.values(searchAttributes)) assert.ok(sentence.includes(`\`${name}\``), name);
  });

  it("has a heading for each alert, to which its runbook_url leads, and one for each other link", () => {
    const anchorOf = (heading: string) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\w\s-]/g, "")
        .trim()
        .replaceAll(/\s/g, "-");
    const anchors = new Set([...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) => anchorOf(heading)));
    for (const [, anchor = ""] of text.matchAll(/\]\(#([^)]*)\)/g)) assert.ok(anchors.has(anchor), anchor);
    const { groups } = parse(read("deploy/prometheus/alerts.yml")) as { groups: { rules: Alert[] }[] };
    const alerts = groups.flatMap(({ rules }) => rules);
    assert.ok(alerts.length > 20);
    for (const { alert, annotations } of alerts) {
      assert.equal(annotations.runbook_url, `{{ $externalLabels.runbooks }}/operations.md#${anchorOf(alert)}`);
      assert.ok(text.includes(`\n### ${alert}\n`), alert);
    }
  });

  it("explains every metric of Mailkeel, and every Temporal metric that an alert reads", async () => {
    const ofPool = createMetrics("any", () => true).registry;
    openIntakeMetrics(ofPool, { connections: () => 0, reportsWaiting: () => 0 });
    const registries = [ofPool, openMetrics(pino({ level: "silent" })).registry];
    const ours = registries.flatMap((registry) => registry.getMetricsAsArray()).map(({ name }) => name);
    const asked = read("deploy/prometheus/alerts.yml").match(/\b(mailkeel|temporal)_\w+/g) ?? [];
    for (const name of new Set([...ours.filter((metric) => metric.startsWith("mailkeel_")), ...asked])) {
      assert.ok(text.includes(`\`${name.replace(/_bucket$/, "")}`), name);
    }
  });
});
