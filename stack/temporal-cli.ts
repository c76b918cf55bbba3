import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { chmod, mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { setGlobalProxyFromEnv } from "node:http";
import { join } from "node:path";
import { promisify } from "node:util";
import { StackError } from "./processes.ts";
import { cachedCli, RELEASES, TEMPORAL_CLI_VERSION, temporalWays } from "./temporal-ways.mjs";

const run = promisify(execFile);

const GO_PACKAGE = "github.com/temporalio/cli/cmd/temporal";
/** A Go module that depends on the CLI: its go.sum holds the digest of every module that is built. */
const GO_MODULE = `${import.meta.dirname}/temporal-cli`;

/** A file on the Internet, and the digest in hex without which it is not used. */
interface PinnedFile {
  url: string;
  sha256: string;
}

/** Of the release's archives by platform, as its checksums.txt has them. */
const DIGESTS: Readonly<Record<string, string>> = {
  darwin_arm64: "cca01b7ea35ad56e2a328d9ae596bf716bd22313ef63c7a761c88354457c2415",
  darwin_amd64: "bbb73e2a31135abe50a1f1cdb35030c42961df618e8ce9c60ae89f201540c5d9",
  linux_arm64: "bd1b0db9f18b051026de8bf6cc1505f2510f14bbb7a8b9a4a91fff46c77454f5",
  linux_amd64: "ddc95e08b0b076efd4ea9733a3f488eb7d2be875f8834e616cd2a37358b4852d",
};

function archiveOfThisMachine(): PinnedFile {
  const platform = `${process.platform}_${process.arch === "x64" ? "amd64" : process.arch}`;
  const sha256 = DIGESTS[platform];
  if (sha256 === undefined) throw new Error("There is no release for this platform");
  const folder = `${RELEASES}/v${TEMPORAL_CLI_VERSION}`;
  return { url: `${folder}/temporal_cli_${TEMPORAL_CLI_VERSION}_${platform}.tar.gz`, sha256 };
}

/** A download that has received nothing for this long is stopped. */
const DOWNLOAD_STALL_MS = 10_000;

type Env = Record<string, string | undefined>;
type Report = (message: string) => void;

async function works(cli: string, env: Env): Promise<boolean> {
  return run(cli, ["--version"], { env, timeout: 10_000 }).then(
    ({ stdout }) => stdout.includes("temporal"),
    () => false,
  );
}

/**
 * Downloads the release's archive for this platform, checks its digest and unpacks it; stopped when nothing arrives.
 * @returns path of the binary
 */
export async function download(folder: string, env: Env, { url, sha256 } = archiveOfThisMachine()): Promise<string> {
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

/** Builds programs of a Go module that names them into a folder. @param what a package, or `tool` for all tools of the module */
export async function goInstall(goModule: string, what: string, folder: string, env: Env): Promise<void> {
  // -mod=readonly refuses modules that go.sum does not name, also where GOFLAGS lets them in; a workspace would replace go.mod.
  const args = ["install", "-C", goModule, "-mod=readonly", what];
  const building = run("go", args, { env: { ...env, GOBIN: folder, GOWORK: "off" } });
  const stop = () => building.child.kill();
  process.once("exit", stop);
  await building.finally(() => process.off("exit", stop));
}

async function buildCli(folder: string, env: Env): Promise<string> {
  await goInstall(GO_MODULE, GO_PACKAGE, folder, env);
  return join(folder, "temporal");
}

/**
 * Finds the Temporal CLI, or gets it: the PATH, the project's cache, a download, `go install`. Nothing that was fetched runs
 * before its digest was checked.
 * @param given the setting TEMPORAL_CLI: use this and nothing else
 * @param report called during long steps
 * @returns a command that runs
 * @throws {StackError} naming every way to provide it
 */
export async function findTemporalCli(options: {
  given?: string | undefined;
  env: Env;
  report: Report;
}): Promise<string> {
  const { given, env, report } = options;
  if (given) {
    if (await works(given, env)) return given;
    throw new StackError(`TEMPORAL_CLI: ${given} is not a Temporal CLI that runs on this machine.`);
  }
  if (await works("temporal", env)) return "temporal";
  const cached = cachedCli(env);
  if (await works(cached, env)) return cached;

  const cache = join(cached, "../..");
  await mkdir(join(cached, ".."), { recursive: true });
  // Made aside and moved into place in one step: two clones may be at it at the same time.
  const draft = await mkdtemp(join(cache, "new-"));
  try {
    const ways = {
      "downloading the Temporal CLI": download,
      "building the Temporal CLI with Go, about four minutes, once": buildCli,
    };
    for (const [what, get] of Object.entries(ways)) {
      report(what);
      try {
        const made = await get(draft, env);
        await chmod(made, 0o755);
        if (!(await works(made, env))) continue;
        await rename(made, cached);
        return cached;
      } catch (error) {
        report(error instanceof Error ? (error.message.trim().split("\n").at(-1) ?? "") : String(error));
      }
    }
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  throw new StackError(`The Temporal CLI was not found and could not be fetched. ${temporalWays(env)}`);
}
