import { execFile } from "node:child_process";
import { access, chmod, constants, mkdir, mkdtemp, readdir, rename, rm, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { runGuarded, StackError } from "./processes.ts";

const run = promisify(execFile);

/** The last version that `go install` accepts. */
export const TEMPORAL_CLI_VERSION = "1.5.1";
const GO_PACKAGE = `github.com/temporalio/cli/cmd/temporal@v${TEMPORAL_CLI_VERSION}`;

/** A download that has received nothing for this long is stopped. */
const DOWNLOAD_STALL_MS = 10_000;
/** Leftovers of a search that was killed are cleared away after this time. */
const LEFTOVER_MS = 60 * 60_000;

type Env = Record<string, string | undefined>;
type Report = (message: string) => void;

async function works(cli: string): Promise<boolean> {
  return run(cli, ["--version"], { timeout: 10_000 }).then(
    ({ stdout }) => stdout.includes("temporal"),
    () => false,
  );
}

async function onPath(program: string, env: Env): Promise<string | undefined> {
  for (const folder of (env["PATH"] ?? "").split(delimiter).filter(Boolean)) {
    const file = join(folder, program);
    const executable = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (executable) return file;
  }
  return undefined;
}

/** In the user's cache folder, so that a second clone finds it. */
function cachedCli(env: Env): string {
  const cache = env["XDG_CACHE_HOME"] || join(homedir(), ".cache");
  return join(cache, "mailkeel", `temporal-${TEMPORAL_CLI_VERSION}`, "temporal");
}

/** How much has arrived below a folder. */
async function bytesIn(folder: string): Promise<number> {
  const names = await readdir(folder);
  const sizes = await Promise.all(
    names.map((name) =>
      stat(join(folder, name)).then(
        ({ size }) => size,
        () => 0,
      ),
    ),
  );
  return sizes.reduce((sum, size) => sum + size, names.length);
}

/** The SDK's own download; stopped when nothing arrives. */
async function download(folder: string, env: Env): Promise<string | undefined> {
  const args = [`${import.meta.dirname}/temporal-download.ts`, folder];
  const { finished, stop } = runGuarded({ command: process.execPath, args, stopSignal: "SIGKILL", graceMs: 0 }, env);
  let had = await bytesIn(folder);
  const watch = setInterval(async () => {
    const has = await bytesIn(folder).catch(() => had);
    if (has === had) stop();
    had = has;
  }, DOWNLOAD_STALL_MS);
  await finished;
  clearInterval(watch);
  const done = (await readdir(folder)).find((name) => !name.endsWith(".downloading"));
  return done && join(folder, done);
}

async function goInstall(folder: string, env: Env, report: Report): Promise<string | undefined> {
  const go = await onPath("go", env);
  if (!go) return undefined;
  const startedAt = performance.now();
  const tick = () => {
    const minutes = Math.floor((performance.now() - startedAt) / 60_000);
    const seconds = Math.floor(((performance.now() - startedAt) % 60_000) / 1_000);
    report(
      `building the Temporal CLI with Go, about four minutes, once (${minutes}:${String(seconds).padStart(2, "0")})`,
    );
  };
  tick();
  const ticking = setInterval(tick, 15_000);
  try {
    const install = { command: go, args: ["install", GO_PACKAGE], stopSignal: "SIGTERM", graceMs: 2_000 } as const;
    const { succeeded, output } = await runGuarded({ ...install, args: [...install.args] }, { ...env, GOBIN: folder })
      .finished;
    if (succeeded) return join(folder, "temporal");
    report(`go install failed: ${output.trim().split("\n").at(-1)}`);
    return undefined;
  } finally {
    clearInterval(ticking);
  }
}

async function clearLeftovers(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (!name.startsWith("new-")) continue;
    const path = join(folder, name);
    const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Date.now() }));
    if (Date.now() - mtimeMs > LEFTOVER_MS) await rm(path, { recursive: true, force: true });
  }
}

/**
 * Finds the Temporal CLI, or gets it: the PATH, the project's cache, the SDK's download, `go install`.
 * @param given the setting TEMPORAL_CLI: use this and nothing else
 * @param report called during long steps
 * @returns path of a binary that runs
 * @throws {StackError} naming every way to provide it
 */
export async function findTemporalCli(options: { given?: string; env: Env; report: Report }): Promise<string> {
  const { given, env, report } = options;
  if (given) {
    if (await works(given)) return given;
    throw new StackError(`TEMPORAL_CLI: ${given} is not a Temporal CLI that runs on this machine.`);
  }
  const installed = await onPath("temporal", env);
  if (installed && (await works(installed))) return installed;
  const cached = cachedCli(env);
  if (await works(cached)) return cached;

  const cache = join(cached, "../..");
  await mkdir(join(cached, ".."), { recursive: true });
  await clearLeftovers(cache);
  // Made aside and moved into place in one step: two clones may be at it at the same time.
  const draft = await mkdtemp(join(cache, "new-"));
  try {
    report("looking for a download of the Temporal CLI");
    const ways = [() => download(draft, env), () => goInstall(draft, env, report)];
    for (const way of ways) {
      const made = await way();
      if (!made) continue;
      await chmod(made, 0o755);
      if (!(await works(made))) continue;
      await rename(made, cached);
      return cached;
    }
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  throw new StackError(
    `The Temporal CLI was not found and could not be fetched. Any one of these helps:
  - install it (https://docs.temporal.io/cli) so that \`temporal\` is on the PATH, or name the file in TEMPORAL_CLI
  - put the binary of version ${TEMPORAL_CLI_VERSION} at ${cached}
  - give this machine access to temporal.download and github.com, where the Temporal SDK fetches it from
  - install Go (https://go.dev/dl): Mailkeel then builds it with \`go install ${GO_PACKAGE}\`
Or set TEMPORAL_ADDRESS to use a Temporal cluster of your own.`,
  );
}
