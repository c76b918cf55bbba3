import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { globSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { promisify } from "node:util";
import { parse } from "yaml";
import { claimPort } from "../../config/ports.ts";
import { eventually } from "../support/eventually.ts";
import { needs } from "../support/programs.ts";

const DEPLOY = `${import.meta.dirname}/../../deploy/kubernetes`;
const GO_MODULE = `${import.meta.dirname}/../support/kubernetes`;
const TIMEOUT_MS = 120_000;
const TOKEN = "operator";

/** The folders that `kubectl apply -k` takes. */
const OVERLAYS = globSync("*/kustomization.yaml", { cwd: DEPLOY })
  .filter((path) => parse(readFileSync(`${DEPLOY}/${path}`, "utf8")).kind === "Kustomization")
  .map((path) => path.replace("/kustomization.yaml", ""))
  .sort();

/** Files of the modules of KEDA and of the Prometheus operator. */
const DEFINITIONS = [
  "config/crd/bases/keda.sh_scaledobjects.yaml",
  "example/prometheus-operator-crd/monitoring.coreos.com_{prometheusrules,servicemonitors}.yaml",
];

/** Downloads the modules. @returns the files of `DEFINITIONS` */
async function findDefinitions(): Promise<string[]> {
  const args = ["mod", "download", "-modfile=crds.mod", "-json"];
  const env = { ...process.env, GOWORK: "off" };
  const { stdout } = await promisify(execFile)("go", args, { cwd: GO_MODULE, env });
  const folders = [...stdout.matchAll(/"Dir": (".*")/g)].map(([, folder = ""]) => JSON.parse(folder) as string);
  return folders.flatMap((folder) => DEFINITIONS.flatMap((files) => globSync(`${folder}/${files}`)));
}

describe("An API server of Kubernetes", function () {
  this.timeout(TIMEOUT_MS);
  const etcd = needs("etcd");
  const apiServer = needs("kube-apiserver");
  const kubectl = needs("kubectl");
  const processes: ChildProcess[] = [];
  let folder: string;

  /** @param input its standard input @returns its standard output. @throws {Error} with what it wrote to standard error */
  async function runKubectl(args: string[], input = ""): Promise<string> {
    const env = { HOME: folder, KUBECONFIG: `${folder}/kubeconfig` };
    const running = promisify(execFile)(kubectl(), args, { env });
    running.child.stdin?.end(input);
    return (await running).stdout;
  }

  /** Has the server check objects as it would for `kubectl apply`, and store none. @returns a line for each object */
  const check = (from: string[], input?: string): Promise<string> =>
    runKubectl(
      ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors", ...from],
      input,
    );

  /** Starts a program that writes to a file of the folder. */
  function start(program: string, options: Record<string, string>): void {
    const log = openSync(`${folder}/log`, "a");
    const args = Object.entries(options).map(([name, value]) => `--${name}=${value}`);
    processes.push(spawn(program, args, { cwd: folder, stdio: ["ignore", log, log] }));
  }

  before(async () => {
    folder = mkdtempSync(`${tmpdir()}/mailkeel-kubernetes-`);
    const ofEtcd = `http://127.0.0.1:${await claimPort()}`;
    const port = `${await claimPort()}`;
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    writeFileSync(`${folder}/key.pem`, privateKey.export({ type: "pkcs8", format: "pem" }));
    writeFileSync(`${folder}/tokens.csv`, `${TOKEN},operator,operator,system:masters\n`);
    const server = { server: `https://127.0.0.1:${port}`, "insecure-skip-tls-verify": true };
    const config = {
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "test", cluster: server }],
      users: [{ name: "operator", user: { token: TOKEN } }],
      contexts: [{ name: "test", context: { cluster: "test", user: "operator" } }],
      "current-context": "test",
    };
    writeFileSync(`${folder}/kubeconfig`, JSON.stringify(config));
    start(etcd(), {
      "data-dir": `${folder}/etcd`,
      "listen-client-urls": ofEtcd,
      "advertise-client-urls": ofEtcd,
      "listen-peer-urls": "http://127.0.0.1:0",
    });
    start(apiServer(), {
      "etcd-servers": ofEtcd,
      "bind-address": "127.0.0.1",
      "secure-port": port,
      "cert-dir": `${folder}/certificates`,
      "token-auth-file": `${folder}/tokens.csv`,
      "service-account-issuer": "https://kubernetes.test",
      "service-account-key-file": `${folder}/key.pem`,
      "service-account-signing-key-file": `${folder}/key.pem`,
      "service-cluster-ip-range": "10.0.0.0/24",
    });
    await eventually(() => runKubectl(["get", "--raw", "/readyz"]), { what: "the API server" }).catch((error) => {
      throw new Error(`It wrote: ${readFileSync(`${folder}/log`, "utf8").slice(-2_000)}`, { cause: error });
    });
    await eventually(() => runKubectl(["get", "namespace", "default"]), { what: "the namespace" });
    const definitions = await findDefinitions();
    assert.equal(definitions.length, 3);
    const from = definitions.flatMap((file) => ["-f", file]);
    await runKubectl(["apply", "--server-side", ...from]);
    const kinds = "prometheusrules,scaledobjects,servicemonitors";
    await eventually(() => runKubectl(["get", kinds]).then(() => true), { what: kinds });
  });
  after(async () => {
    for (const each of processes.filter(({ exitCode }) => exitCode === null)) {
      each.kill("SIGKILL");
      await once(each, "exit");
    }
    if (folder) rmSync(folder, { recursive: true });
  });

  for (const overlay of OVERLAYS)
    it(`accepts each object of deploy/kubernetes/${overlay}`, async () => {
      const objects = (await check(["-k", `${DEPLOY}/${overlay}`])).trimEnd().split("\n");
      for (const each of objects) assert.match(each, / serverside-applied \(server dry run\)$/);
    });

  for (const [what, overlay, field, mistaken, message] of [
    ["an unknown field", "base", "livenessProbe:", "livenesProbe:", /livenesProbe: field not declared in schema/],
    [
      "an unknown field of KEDA",
      "scaling",
      "pollingInterval:",
      "interval:",
      /spec\.interval: field not declared in schema/,
    ],
    [
      "a network that no schema refuses",
      "base",
      "cidr: 0.0.0.0/0",
      "cidr: 0.0.0.0/33",
      /Invalid value: "0\.0\.0\.0\/33"/,
    ],
  ] as const)
    it(`refuses ${what}`, async () => {
      const rendered = await runKubectl(["kustomize", `${DEPLOY}/${overlay}`]);
      await assert.rejects(check(["-f", "-"], rendered.replace(field, mistaken)), message);
    });
});
