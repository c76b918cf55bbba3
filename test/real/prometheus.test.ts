import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { needs } from "./programs.ts";

const RULES = `${import.meta.dirname}/../../deploy/prometheus/alerts.yml`;

describe("deploy/prometheus/alerts.yml", () => {
  const promtool = needs("promtool");

  it("holds rules that Prometheus takes", async () => {
    const { stdout } = await promisify(execFile)(promtool(), ["check", "rules", RULES]);
    assert.match(stdout, /SUCCESS: [1-9]\d* rules found/);
  });
});
