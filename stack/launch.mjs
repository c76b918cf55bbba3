// Plain JavaScript for any Node from 20 on, with nothing installed: installs the dependencies, among them
// the Node that runs the rest.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const node = `${root}node_modules/.bin/node`;

function fail(message) {
  console.error(message);
  process.exit(1);
}

const readJson = (file) => JSON.parse(readFileSync(`${root}${file}`, "utf8"));

const packages = (lockFile) => readJson(lockFile).packages;

/** Whether node_modules holds the packages of package-lock.json. Times do not show it: a checkout changes them. */
function isInstalled() {
  if (!existsSync(node) || !existsSync(`${root}node_modules/.package-lock.json`)) return false;
  const installed = packages("node_modules/.package-lock.json");
  return Object.entries(packages("package-lock.json")).every(
    // Optional ones are for other machines, as a rule.
    ([path, { version, optional }]) => path === "" || optional || installed[path]?.version === version,
  );
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

/** Installs the dependencies if they are not there yet, or not those of this checkout. */
export function install() {
  if (isInstalled()) return;
  console.log("Installing dependencies (npm ci), once");
  // Some of them must run scripts to be of use (package.json, allowScripts), also against the user's own settings.
  const flags = ["ci", "--ignore-scripts=false", "--include=dev", "--loglevel=error"];
  const { status, error } = spawnSync("npm", flags, {
    cwd: root,
    stdio: "inherit",
    shell: process.platform === "win32",
  });
  if (error) fail(`npm could not be run: ${error.message}. Install Node with npm, version 20 or later.`);
  if (status !== 0) fail("npm ci failed; its own message is above.");
  if (!existsSync(node)) fail("npm ci did not install Node 24 (the package `node`). Does npm allow install scripts?");
  checkNode(realpathSync(node), readJson("stack/node-digests.json").sha256[`${process.platform}-${process.arch}`]);
}

/**
 * Runs a TypeScript file in the installed Node, with our arguments; signals and exit code pass through.
 * @param entry its path from the root
 */
export function launch(entry) {
  const [major] = process.versions.node.split(".").map(Number);
  if (major < 20) fail(`Node ${process.versions.node} is too old. Install Node 20 or later.`);
  install();
  // The IPC channel closes when this process ends, even by SIGKILL, and the child then stops.
  const child = spawn(node, [`${root}${entry}`, ...process.argv.slice(2)], {
    stdio: ["inherit", "inherit", "inherit", "ipc"],
  });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => fail(`${node} could not be run: ${error.message}`));
  child.on("exit", (code) => process.exit(code ?? 1));
}
