import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { SETTINGS } from "../../config/env.ts";
import { STACK_SETTINGS } from "../../stack/settings.ts";
import { createMetrics } from "../../workers/metrics.ts";

const ROOT = `${import.meta.dirname}/../..`;
const read = (path: string): string => readFileSync(`${ROOT}/${path}`, "utf8");

describe("docs/operations.md", () => {
  const text = read("docs/operations.md");

  it("names every setting", () => {
    for (const name of [...SETTINGS, ...STACK_SETTINGS]) assert.ok(text.includes(`\`${name}\``), name);
  });

  it("explains every metric of Mailkeel, and every Temporal metric that an alert reads", async () => {
    const ours = [...(await createMetrics("any", () => true).registry.getMetricsAsArray())].map(({ name }) => name);
    const asked = read("deploy/prometheus/alerts.yml").match(/\b(mailkeel|temporal)_\w+/g) ?? [];
    for (const name of new Set([...ours.filter((metric) => metric.startsWith("mailkeel_")), ...asked])) {
      assert.ok(text.includes(`\`${name.replace(/_bucket$/, "")}`), name);
    }
  });
});
