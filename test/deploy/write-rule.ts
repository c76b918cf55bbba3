/** `npm run rule`: Kustomize cannot put a file into a field, and reads none outside of its folder. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const DEPLOY = join(import.meta.dirname, "../../deploy");

export const RULE = join(DEPLOY, "kubernetes/monitoring/prometheus-rule.yaml");

/** The alerts of Prometheus as a resource of its operator. */
export function prometheusRule(): string {
  const [, groups = ""] = readFileSync(join(DEPLOY, "prometheus/alerts.yml"), "utf8").split(/^(?=groups:)/m);
  return `# Written by \`npm run rule\` from deploy/prometheus/alerts.yml: change that one.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: { name: mailkeel }
spec:
${groups.replaceAll(/^(?=.)/gm, "  ")}`;
}

if (import.meta.main) writeFileSync(RULE, prometheusRule());
