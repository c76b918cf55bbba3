// Plain JavaScript for any Node from 20 on, with nothing installed: installs the dependencies, among them
// the Node that runs the rest.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { findTemporalProblem } from "./temporal-ways.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const node = `${root}node_modules/.bin/node`;

function fail(message) {
  console.error(message);
  process.exit(1);
}

const readJson = (file) => JSON.parse(readFileSync(`${root}${file}`, "utf8"));

const packages = (lockFile) => readJson(lockFile).packages;

/**
 * Whether node_modules holds the packages of package-lock.json. Times do not show it: a checkout changes them.
 * @param withTools also those that `npm start` does not need
 */
function isInstalled(withTools) {
  if (!existsSync(node) || !existsSync(`${root}node_modules/.package-lock.json`)) return false;
  const installed = packages("node_modules/.package-lock.json");
  const { optionalDependencies } = readJson("package.json");
  return Object.entries(packages("package-lock.json")).every(([path, { version, dev, optional, devOptional }]) => {
    // The others that are optional are for other machines, as a rule.
    const isNeeded = path.slice("node_modules/".length) in optionalDependencies || !(optional || devOptional);
    return path === "" || !isNeeded || (dev && !withTools) || installed[path]?.version === version;
  });
}

/**
 * Deletes a Node whose digest is not the expected one, and ends the process. The install script of the package `node`
 * fetches the binary past package-lock.json, so that npm compares it with no digest of ours.
 * @param expected SHA-256 in hex; undefined on a platform without a known one
 */
export function checkNode(binary, expected) {
  if (expected === undefined) return;
  const digest = createHash("sha256").update(readFileSync(binary)).digest("hex");
  if (digest === expected) return;
  rmSync(binary);
  fail(`${binary} had the SHA-256 digest ${digest} instead of ${expected}. It was deleted and not run.`);
}

/**
 * Deletes what packages bring for other systems, for compilers and for debuggers: 240 MB of 670.
 * @param modules the folder of the packages
 */
export function dropUnused(modules) {
  const core = `${modules}/@temporalio/core-bridge`;
  const cpu = { x64: "x86_64", arm64: "aarch64" }[process.arch];
  const system = { linux: "unknown-linux-gnu", darwin: "apple-darwin", win32: "pc-windows-msvc" }[process.platform];
  const builds = readdirSync(`${core}/releases`).filter((name) => name !== `${cpu}-${system}`);
  const ofNode = `${modules}/node/node_modules`;
  const nodes = existsSync(ofNode) ? readdirSync(ofNode).filter((name) => name.startsWith("node-")) : [];
  const maps = readdirSync(modules, { recursive: true }).filter((path) => path.endsWith(".map"));
  for (const path of [
    ...builds.map((name) => `${core}/releases/${name}`),
    ...nodes.map((name) => `${ofNode}/${name}/include`),
    `${core}/sdk-core`,
    ...maps.map((path) => `${modules}/${path}`),
  ])
    rmSync(path, { recursive: true, force: true });
}

/**
 * Installs the dependencies if they are not there yet, or not those of this checkout.
 * @param withTools also those of `npm test`; they come beside what a running stack has loaded
 */
export async function install(withTools) {
  if (isInstalled(withTools)) return;
  const problem = await findTemporalProblem(process.env);
  if (problem !== undefined) fail(problem);
  const command = isInstalled(false) ? ["install", "--no-save"] : ["ci"];
  console.log(`Installing dependencies (npm ${command[0]}), once`);
  // Some of them must run scripts to be of use (package.json, allowScripts), also against the user's own settings.
  const flags = [
    "--ignore-scripts=false",
    "--include=optional",
    withTools ? "--include=dev" : "--omit=dev",
    "--loglevel=error",
  ];
  const { status, error } = spawnSync("npm", [...command, ...flags], {
    cwd: root,
    stdio: "inherit",
    shell: process.platform === "win32",
  });
  if (error) fail(`npm could not be run: ${error.message}. Install Node with npm, version 20 or later.`);
  if (status !== 0) fail(`npm ${command[0]} failed; its own message is above.`);
  if (!existsSync(node)) fail("npm did not install Node 24 (the package `node`). Does npm allow install scripts?");
  checkNode(realpathSync(node), readJson("stack/node-digests.json").sha256[`${process.platform}-${process.arch}`]);
  dropUnused(`${root}node_modules`);
}

/**
 * Runs a TypeScript file in the installed Node, with our arguments; signals and exit code pass through.
 * @param entry its path from the root @param withTools whether it needs the packages of `npm test`
 */
export async function launch(entry, withTools) {
  const [major] = process.versions.node.split(".").map(Number);
  if (major < 20) fail(`Node ${process.versions.node} is too old. Install Node 20 or later.`);
  await install(withTools);
  process.env.NODE_COMPILE_CACHE ??= `${root}node_modules/.cache/mailkeel/compiled`;
  // The IPC channel closes when this process ends, even by SIGKILL, and the child then stops.
  const child = spawn(node, [`${root}${entry}`, ...process.argv.slice(2)], {
    stdio: ["inherit", "inherit", "inherit", "ipc"],
  });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => fail(`${node} could not be run: ${error.message}`));
  child.on("exit", (code) => process.exit(code ?? 1));
}
