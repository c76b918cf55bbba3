import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename } from "node:path";
import { promisify } from "node:util";
import { parse, parseAllDocuments } from "yaml";
import { isSetting, readEnv, SECRETS } from "../../config/env.ts";
import { CLOSE_MARGIN_MS } from "../../config/stop-limit.ts";
import { POOLS, type PoolDefinition } from "../../workers/pools.ts";
import { installed } from "../client/write-client.ts";
import type { Json } from "../support/api.ts";
import { NEEDED, unneeded } from "./processes.ts";
import { prometheusRule, RULE } from "./write-rule.ts";

const ROOT = `${import.meta.dirname}/../..`;
const FOLDER = `${ROOT}/deploy/kubernetes`;
const read = (path: string): string => readFileSync(`${FOLDER}/${path}`, "utf8");

const kustomizations: Record<string, Json> = Object.fromEntries(
  globSync("*/kustomization.yaml", { cwd: FOLDER }).map((path) => [path.split("/")[0], parse(read(path))]),
);
const objects: Json[] = globSync("*/*.yaml", { cwd: FOLDER, exclude: ["*/kustomization.yaml"] })
  .sort()
  .flatMap((path) => parseAllDocuments(read(path)).map((each) => each.toJS()));
const ofKind = (kind: string): Json[] => objects.filter((each) => each.kind === kind);
const containerOf = (pod: Json): Json => pod.spec.containers[0];

/** Adds fields that `own` lacks: Kustomize would merge others. */
function add(fields: Json, own: Json): void {
  for (const field of Object.keys(fields)) assert.ok(!(field in own), `${field} is in base/kustomization.yaml too`);
  Object.assign(own, fields);
}

const { patch: common } = kustomizations["base"].patches[0];
const { containers, ...ofPod } = parse(common).spec.template.spec;
const [{ name: patchedContainer, env: ofTracing, ...ofContainer }] = containers;
for (const { spec } of ofKind("Deployment")) {
  add(ofContainer, containerOf(spec.template));
  add(ofPod, spec.template.spec);
}

/** The processes by name, each with its pod. */
const pods: Record<string, Json> = Object.fromEntries(
  [...ofKind("Deployment"), ...ofKind("Job")].map(({ metadata, spec }) => [
    metadata.name.replace("mailkeel-", ""),
    spec.template,
  ]),
);

/** The Secret `mailkeel`. */
const SECRET: Record<string, string> = {
  DATABASE_URL: "postgres://mailkeel_app:0123456789abcdef@postgres:5432/mailkeel",
  MIGRATION_DATABASE_URL: "postgres://mailkeel:0123456789abcdef@postgres:5432/mailkeel",
  SIGNING_SECRET: Buffer.alloc(32).toString("base64"),
  ENCRYPTION_KEYS: `k1:${Buffer.alloc(32).toString("base64")}`,
  SYSTEM_SMTP_URL: "smtp://user:password@smtp.example.com:587",
};

/** The environment of a process, as Kubernetes makes it. */
function environmentOf(pod: Json): Record<string, string> {
  const { args, env, envFrom } = containerOf(pod);
  const [generated] = kustomizations["settings"].configMapGenerator;
  const optional = (name: string) => ({ secretRef: { name: `mailkeel-${name}`, optional: true } });
  const common = { configMapRef: { name: generated.name } };
  const ofOthers = [optional("temporal")];
  if (args.includes("maintenance") || args.includes("api/main.ts")) ofOthers.push(optional("images"));
  if (args.includes("api/main.ts")) ofOthers.push(optional("sign-in"));
  assert.deepEqual(envFrom, args.includes("intake") ? [common] : [common, ...ofOthers]);
  const own = env.map(({ name, value, valueFrom }: Json) => {
    if (valueFrom === undefined) return [name, value];
    assert.deepEqual(valueFrom, { secretKeyRef: { name: "mailkeel", key: name } });
    return [name, SECRET[name]];
  });
  const settings = generated.literals.map((literal: string) => /^(\w+)=(.*)$/.exec(literal)?.slice(1));
  return Object.fromEntries([...settings, ...own]);
}

/** Module of the published model of each kind. */
const MODELS: Record<string, string> = {
  Deployment: "kubernetes-models/apps/v1/Deployment",
  Job: "kubernetes-models/batch/v1/Job",
  PodDisruptionBudget: "kubernetes-models/policy/v1/PodDisruptionBudget",
  Ingress: "kubernetes-models/networking.k8s.io/v1/Ingress",
  NetworkPolicy: "kubernetes-models/networking.k8s.io/v1/NetworkPolicy",
  Service: "kubernetes-models/v1/Service",
  ScaledObject: "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject",
  ServiceMonitor: "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor",
  PrometheusRule: "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule",
};

/** @returns the errors of the compiler about these objects, as literals of the published types */
async function typeErrors(given: readonly Json[]): Promise<string> {
  const folder = mkdtempSync(`${tmpdir()}/mailkeel-kubernetes-`);
  try {
    symlinkSync(`${ROOT}/node_modules`, `${folder}/node_modules`);
    const lines = given.map((each, n) => `export const o${n}: I${each.kind} = ${JSON.stringify(each)};`);
    const imports = Object.entries(MODELS).map(([kind, path]) => `import type { I${kind} } from "${path}";`);
    writeFileSync(`${folder}/objects.ts`, [...imports, ...lines].join("\n"));
    const options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--types", ""];
    return await promisify(execFile)(installed("tsc"), [...options, "objects.ts"], { cwd: folder }).then(
      () => "",
      ({ stdout }) => stdout,
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

describe("deploy/kubernetes", () => {
  it("follows the published models of Kubernetes, KEDA and the Prometheus operator, and has no field that they lack", async () => {
    for (const each of objects) {
      const { [each.kind]: Model } = await import(MODELS[each.kind] ?? "");
      new Model(each).validate();
    }
    assert.equal(await typeErrors(objects), "");
    const typo = structuredClone(ofKind("Deployment")[0]);
    containerOf(typo.spec.template).livenesProbe = {};
    assert.match(await typeErrors([typo]), /'"livenesProbe"' does not exist/);
  });

  it("names files that exist, each once, and one image and one patch for all", () => {
    for (const [folder, { resources = [], components = [] }] of Object.entries(kustomizations)) {
      const files = globSync("*.yaml", { cwd: `${FOLDER}/${folder}`, exclude: ["kustomization.yaml"] });
      const others = resources.filter((name: string) => name.startsWith("../"));
      assert.deepEqual(resources.toSorted(), [...others, ...files].sort(), folder);
      for (const other of [...others, ...components]) assert.ok(kustomizations[basename(other)], other);
    }
    for (const folder of ["base", "prepare"]) assert.deepEqual(kustomizations[folder].components, ["../settings"]);
    const [image] = kustomizations["settings"].images;
    assert.equal(image.newTag, parse(readFileSync(`${ROOT}/package.json`, "utf8")).version);
    for (const pod of Object.values(pods)) assert.equal(containerOf(pod).image, image.name);
    assert.deepEqual(kustomizations["base"].patches, [{ target: { kind: "Deployment" }, patch: common }]);
    for (const { spec } of ofKind("Deployment")) assert.equal(containerOf(spec.template).name, patchedContainer);
  });

  it("publishes the paths of the deploying guide, as nginx does", () => {
    const guide = readFileSync(`${ROOT}/docs/operations/deploy.md`, "utf8").match(/^\| publish \|.*$/m)?.[0] ?? "";
    const published = [...guide.matchAll(/`(\/[^`]*)`/g)].map(([, path = ""]) => path).sort();
    assert.ok(published.includes("/f"), "the guide names the page of a form");
    const [{ http }] = ofKind("Ingress")[0].spec.rules;
    assert.deepEqual(http.paths.map(({ path }: Json) => path).sort(), published);
    const nginx = readFileSync(`${ROOT}/deploy/nginx/mailkeel.conf`, "utf8");
    const ofNginx = new RegExp(nginx.match(/location ~ (\^.*) \{/)?.[1] ?? "");
    for (const path of published) if (path !== "/") assert.match(path, ofNginx);
    for (const path of ["/healthz", "/readyz"]) assert.doesNotMatch(path, ofNginx);
  });

  it("opens to the network the ports that pods have", () => {
    for (const { spec } of ofKind("NetworkPolicy")) {
      const { matchLabels } = spec.podSelector;
      const names = (spec.ingress ?? []).flatMap(({ ports }: Json) => ports.map(({ port }: Json) => port));
      const selected = ofKind("Deployment").filter(({ spec: { template } }) =>
        Object.entries(matchLabels).every(([name, value]) => template.metadata.labels[name] === value),
      );
      assert.ok(selected.length > 0);
      for (const { spec: pod } of selected)
        for (const name of names)
          assert.ok(
            containerOf(pod.template).ports.some((one: Json) => one.name === name),
            name,
          );
    }
  });

  it("runs the API and each pool of workers, and prepares with the command of Compose", () => {
    const pools = Object.keys(POOLS).map((pool) => [pool, ["node", "workers/main.ts", "--pool", pool]]);
    assert.deepEqual(Object.fromEntries(Object.entries(pods).map(([name, pod]) => [name, containerOf(pod).args])), {
      ...Object.fromEntries(pools),
      api: ["node", "api/main.ts"],
      prepare: ["node", "stack/prepare.ts"],
    });
  });

  it("gives each process every required setting and no unknown one, the secrets that it needs alone, and time to stop", () => {
    for (const [name, pod] of Object.entries(pods)) {
      const given = environmentOf(pod);
      assert.deepEqual(
        Object.keys(given).filter((key) => !isSetting(key)),
        [],
        name,
      );
      const secrets = [...SECRETS, "MIGRATION_DATABASE_URL"].filter((secret) => secret in given);
      assert.deepEqual(secrets.sort(), [...(NEEDED[name] ?? [])].sort(), name);
      const { SHUTDOWN_GRACE_MS, HEALTH_HOST, HEALTH_PORT } = readEnv(given, unneeded(name));
      if (name === "prepare") continue;
      const { lifecycle, ports, startupProbe, livenessProbe, readinessProbe } = containerOf(pod);
      const beforeStop = lifecycle?.preStop.sleep.seconds ?? 0;
      const stopMs = beforeStop * 1_000 + SHUTDOWN_GRACE_MS + CLOSE_MARGIN_MS;
      assert.ok(pod.spec.terminationGracePeriodSeconds * 1_000 > stopMs, name);
      assert.equal(HEALTH_HOST, "0.0.0.0");
      assert.equal(ports.find((port: Json) => port.name === "health").containerPort, HEALTH_PORT);
      assert.deepEqual(
        [startupProbe, livenessProbe, readinessProbe].map(({ httpGet }) => httpGet),
        [
          { path: "/healthz", port: "health" },
          { path: "/healthz", port: "health" },
          { path: "/readyz", port: "health" },
        ],
      );
    }
  });

  it("gives each process the headers for a collector of traces, which may hold a key, from the Secret", () => {
    const key = "OTEL_EXPORTER_OTLP_HEADERS";
    assert.deepEqual(ofTracing, [
      { name: key, valueFrom: { secretKeyRef: { name: "mailkeel", key, optional: true } } },
    ]);
  });

  it("gives the API time to end a confirm, and lets no process write outside of /tmp or run as root", () => {
    const env = readEnv(environmentOf(pods["api"]), unneeded("api"));
    assert.ok(env.SHUTDOWN_GRACE_MS > env.CONFIRM_WAIT_MS);
    for (const pod of Object.values(pods)) {
      const { securityContext } = containerOf(pod);
      assert.deepEqual(
        [securityContext, pod.spec.securityContext, pod.spec.automountServiceAccountToken, pod.spec.enableServiceLinks],
        [
          { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } },
          { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: "RuntimeDefault" } },
          false,
          false,
        ],
      );
    }
  });

  it("requests the memory of docs/operations/deploy.md, and allows twice that: V8 gives the heap half of a limit", () => {
    const table = readFileSync(`${ROOT}/docs/operations/deploy.md`, "utf8");
    const rows = [...table.matchAll(/^\| (\w+) \| `.*\| (\d+) MiB \|$/gm)];
    assert.deepEqual(rows.map(([, name = ""]) => name.toLowerCase()).sort(), ["api", ...Object.keys(POOLS)].sort());
    for (const [, name = "", mib] of rows) {
      const { requests, limits } = containerOf(pods[name.toLowerCase()]).resources;
      assert.deepEqual([requests.memory, limits.memory], [`${mib}Mi`, `${2 * Number(mib)}Mi`], name);
    }
  });

  it("selects the pods of one process by each budget, spread and Service, and all for the metrics, ready or not", () => {
    const labels = (component: string) => ({
      "app.kubernetes.io/name": "mailkeel",
      "app.kubernetes.io/component": component,
    });
    const named = (each: Json) => each.metadata.name.replace("mailkeel-", "");
    for (const each of ofKind("Deployment")) {
      assert.deepEqual(each.spec.selector.matchLabels, labels(named(each)));
      assert.deepEqual(each.spec.template.metadata.labels, labels(named(each)));
      const [spread] = each.spec.template.spec.topologySpreadConstraints;
      const alike = spread.matchLabelKeys.map((key: string) => [key, each.spec.template.metadata.labels[key]]);
      assert.deepEqual({ ...spread.labelSelector.matchLabels, ...Object.fromEntries(alike) }, labels(named(each)));
    }
    const budgets = ofKind("PodDisruptionBudget");
    assert.deepEqual(budgets.map(named).sort(), ofKind("Deployment").map(named).sort());
    for (const each of budgets) assert.deepEqual(each.spec.selector.matchLabels, labels(named(each)));
    for (const each of ofKind("Service")) {
      const name = named(each);
      assert.deepEqual(
        each.spec.selector,
        name === "metrics" ? { "app.kubernetes.io/name": "mailkeel" } : labels(name),
      );
      const ports = containerOf(pods[name] ?? pods["api"]).ports.map((port: Json) => port.name);
      for (const { targetPort } of each.spec.ports) assert.ok(ports.includes(targetPort), name);
    }
    const [monitor] = ofKind("ServiceMonitor");
    const metrics = ofKind("Service").find((each) => named(each) === "metrics");
    assert.deepEqual(monitor.spec.selector.matchLabels, metrics.metadata.labels);
    const [endpoint] = monitor.spec.endpoints;
    assert.deepEqual(
      [endpoint.port, endpoint.path, endpoint.honorLabels],
      [metrics.spec.ports[0].name, "/metrics", true],
    );
    assert.ok(metrics.spec.publishNotReadyAddresses);
  });

  it("names in docs/operations/deploy.md the connections to Postgres that a rollout may need", () => {
    const { DATABASE_POOL_MAX } = readEnv(environmentOf(pods["api"]), unneeded("api"));
    const most = Object.fromEntries(
      ofKind("ScaledObject").map(({ metadata, spec }) => [metadata.name, spec.maxReplicaCount]),
    );
    const ofRollout = (processes: Record<string, number>): number =>
      ofKind("Deployment").reduce((sum, { metadata: { name }, spec }) => {
        const ofProcess = DATABASE_POOL_MAX + (/api|webhooks/.test(name) ? 1 : 0);
        return sum + 2 * (processes[name] ?? spec.replicas) * ofProcess;
      }, 0);
    const page = readFileSync(`${ROOT}/docs/operations/deploy.md`, "utf8");
    assert.ok(page.includes(`rollouts: ${ofRollout({})} with base, ${ofRollout(most)} with all that KEDA may start`));
  });

  it("has the alerts of deploy/prometheus: else run `npm run rule`", () => {
    assert.equal(readFileSync(RULE, "utf8"), prometheusRule());
  });

  it("scales Deployments by the task queue that they poll, and no longer sets their replicas", () => {
    const [{ target, patch }] = kustomizations["scaling"].patches;
    assert.deepEqual(parse(patch), [{ op: "remove", path: "/spec/replicas" }]);
    const scaled = ofKind("ScaledObject").map(({ spec }) => spec);
    const patched = ofKind("Deployment").map(({ metadata }) => metadata.name as string);
    assert.deepEqual(
      patched.filter((name) => new RegExp(`^${target.name}$`).test(name)),
      scaled.map(({ scaleTargetRef }) => scaleTargetRef.name),
    );
    for (const { scaleTargetRef, minReplicaCount, maxReplicaCount, triggers } of scaled) {
      const pool = scaleTargetRef.name.replace("mailkeel-", "") as keyof typeof POOLS;
      const { taskQueue, workflows }: PoolDefinition = POOLS[pool];
      const [{ type, metadata }] = triggers;
      assert.equal(type, "temporal");
      const { targetQueueSize: _, ...read } = metadata;
      assert.deepEqual(read, {
        endpointFromEnv: "TEMPORAL_ADDRESS",
        namespaceFromEnv: "TEMPORAL_NAMESPACE",
        apiKeyFromEnv: "TEMPORAL_API_KEY",
        taskQueue,
        queueTypes: workflows ? "workflow,activity" : "activity",
      });
      const { TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE } = environmentOf(pods[pool]);
      assert.ok(TEMPORAL_ADDRESS && TEMPORAL_NAMESPACE);
      assert.equal(
        minReplicaCount,
        ofKind("Deployment").find(({ metadata: { name } }) => name === scaleTargetRef.name).spec.replicas,
      );
      assert.ok(maxReplicaCount > minReplicaCount, pool);
    }
  });
});
