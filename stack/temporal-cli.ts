import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { access, chmod, constants, mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { setGlobalProxyFromEnv } from "node:http";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { StackError } from "./processes.ts";

const run = promisify(execFile);

/** temporal-cli/go.mod requires the same one. */
export const TEMPORAL_CLI_VERSION = "1.5.1";
const GO_PACKAGE = "github.com/temporalio/cli/cmd/temporal";
/** A Go module that depends on the CLI: its go.sum holds the digest of every module that is built. */
const GO_MODULE = `${import.meta.dirname}/temporal-cli`;

const RELEASE = `https://github.com/temporalio/cli/releases/download/v${TEMPORAL_CLI_VERSION}`;

/** A file on the Internet, and the digest in hex without which it is not used. */
interface PinnedFile {
  url: string;
  sha256: string;
}

/** The release's archives by platform; their digests stand in the release's checksums.txt. */
export const ARCHIVES: Readonly<Record<string, PinnedFile>> = {
  "darwin-arm64": {
    url: `${RELEASE}/temporal_cli_${TEMPORAL_CLI_VERSION}_darwin_arm64.tar.gz`,
    sha256: "cca01b7ea35ad56e2a328d9ae596bf716bd22313ef63c7a761c88354457c2415",
  },
  "darwin-x64": {
    url: `${RELEASE}/temporal_cli_${TEMPORAL_CLI_VERSION}_darwin_amd64.tar.gz`,
    sha256: "bbb73e2a31135abe50a1f1cdb35030c42961df618e8ce9c60ae89f201540c5d9",
  },
  "linux-arm64": {
    url: `${RELEASE}/temporal_cli_${TEMPORAL_CLI_VERSION}_linux_arm64.tar.gz`,
    sha256: "bd1b0db9f18b051026de8bf6cc1505f2510f14bbb7a8b9a4a91fff46c77454f5",
  },
  "linux-x64": {
    url: `${RELEASE}/temporal_cli_${TEMPORAL_CLI_VERSION}_linux_amd64.tar.gz`,
    sha256: "ddc95e08b0b076efd4ea9733a3f488eb7d2be875f8834e616cd2a37358b4852d",
  },
};

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

/**
 * Downloads the release's archive for this platform, checks its digest and unpacks it; stopped when nothing arrives.
 * @param archive the one to get
 * @returns path of the binary
 */
export async function download(
  folder: string,
  env: Env,
  { url, sha256 } = ARCHIVES[`${process.platform}-${process.arch}`] ?? fail("There is no release for this platform"),
): Promise<string> {
  const restoreProxy = setGlobalProxyFromEnv(env);
  const stop = new AbortController();
  const stalled = setTimeout(() => stop.abort(), DOWNLOAD_STALL_MS);
  const file = join(folder, "archive");
  try {
    const response = await fetch(url, { signal: stop.signal });
    if (!response.ok || response.body === null) throw new Error(`${url} answered with ${response.status}`);
    const chunks: Uint8Array[] = [];
    for await (const chunk of response.body) {
      stalled.refresh();
      chunks.push(chunk);
    }
    const archive = Buffer.concat(chunks);
    const digest = createHash("sha256").update(archive).digest("hex");
    if (digest !== sha256) throw new Error(`${url} has the SHA-256 digest ${digest} instead of ${sha256}`);
    await writeFile(file, archive);
    await run("tar", ["-xzf", file, "-C", folder, "temporal"]);
    return join(folder, "temporal");
  } finally {
    clearTimeout(stalled);
    restoreProxy();
    await rm(file, { force: true });
  }
}

function fail(message: string): never {
  throw new Error(message);
}

async function goInstall(folder: string, env: Env, report: Report): Promise<string> {
  const go = (await onPath("go", env)) ?? fail("Go is not installed");
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
  // -mod=readonly refuses modules that go.sum does not name, whatever GOFLAGS says; a workspace would replace go.mod.
  const args = ["install", "-C", GO_MODULE, "-mod=readonly", GO_PACKAGE];
  const building = run(go, args, { env: { ...env, GOBIN: folder, GOWORK: "off" } });
  const stop = () => building.child.kill();
  process.once("exit", stop);
  try {
    await building;
    return join(folder, "temporal");
  } finally {
    clearInterval(ticking);
    process.off("exit", stop);
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
 * Finds the Temporal CLI, or gets it: the PATH, the project's cache, a download, `go install`. Nothing that was fetched runs
 * before its digest was checked.
 * @param given the setting TEMPORAL_CLI: use this and nothing else
 * @param report called during long steps
 * @returns path of a binary that runs
 * @throws {StackError} naming every way to provide it
 */
export async function findTemporalCli(options: {
  given?: string | undefined;
  env: Env;
  report: Report;
}): Promise<string> {
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
      try {
        const made = await way();
        await chmod(made, 0o755);
        if (!(await works(made))) continue;
        await rename(made, cached);
        return cached;
      } catch (error) {
        report(error instanceof Error ? (error.message.trim().split("\n").at(-1) ?? "") : String(error));
      }
    }
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  throw new StackError(
    `The Temporal CLI was not found and could not be fetched. Any one of these helps:
  - install it (https://docs.temporal.io/cli) so that \`temporal\` is on the PATH, or name the file in TEMPORAL_CLI
  - put the binary of version ${TEMPORAL_CLI_VERSION} at ${cached}
  - give this machine access to github.com, where Mailkeel downloads it from
  - install Go (https://go.dev/dl): Mailkeel then builds it with \`go install\`
Or set TEMPORAL_ADDRESS to use a Temporal cluster of your own.`,
  );
}
