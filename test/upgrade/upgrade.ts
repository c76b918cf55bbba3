/**
 * `npm run test:upgrade`: from the latest release to this commit and back, process by process, while mail, webhooks, a sequence
 * and an import are on their way. The soak of the release is the traffic, and checks it; a proxy counts each request that fails.
 * Here stand those who begin with one version and end with another: tokens, cursors, sessions and imports. Exit code 1 when
 * something broke.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { Command } from "commander";
import { wholeNumber } from "../../app/options.ts";
import { removeDataDir } from "../../stack/postgres.ts";
import { readStackSettings } from "../../stack/settings.ts";
import { POOLS, Stack } from "../../stack/stack.ts";
import { type StackFile, writeJson } from "../../stack/state.ts";
import type { ApiAnswer } from "../support/api.ts";
import { SETTINGS } from "../support/soak-settings.ts";
import { FREE_PORTS, NO_RATE_LIMITS, shellVariables } from "../support/stack-settings.ts";
import { openProxy, type UpgradeProxy } from "./proxy.ts";

const ROOT = resolve(import.meta.dirname, "../..");
/** Deliveries of the soak before the upgrade begins: by then all of its teams send. */
const ENOUGH = 100;
const IMPORTED_ROWS = 20_000;
/** Longer than the slowest step of a busy machine. */
const PATIENCE_MS = 600_000;

const git = (...args: string[]): string =>
  execFileSync("git", args, { cwd: ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }).trim();

/** The commit of the latest release before this one; its title finds it in a clone without tags. */
export function latestRelease(): string {
  const commit = git("log", "--format=%H", "--max-count=1", "--grep=^Release [0-9]*\\.[0-9]*\\.[0-9]*$", "HEAD");
  if (commit === "") throw new Error("No commit `Release 1.2.3` is below HEAD: name the version by --from.");
  return commit;
}

/** Checks a commit out into a folder, with its packages and its bundle of workflows. */
function checkOut(commit: string, folder: string): string {
  execFileSync("git", ["clone", "--quiet", "--shared", "--no-checkout", ROOT, folder]);
  execFileSync("git", ["checkout", "--quiet", "--detach", commit], { cwd: folder });
  const lock = (at: string) => readFileSync(join(at, "package-lock.json"), "utf8").replace(/"version": "[^"]*"/, "");
  if (lock(folder) === lock(ROOT)) symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  else execFileSync("npm", ["ci", "--loglevel=error"], { cwd: folder, stdio: "inherit" });
  execFileSync(process.execPath, ["workers/bundle.ts"], { cwd: folder, stdio: "inherit" });
  return folder;
}

const startedAt = Date.now();
const say = (what: string) => console.log(`${Math.round((Date.now() - startedAt) / 1_000)} s: ${what}`);

const broken: string[] = [];
/** Keeps what broke. */
function expect(what: string, holds: boolean, detail = ""): void {
  if (holds) return;
  broken.push(`${what}${detail === "" ? "" : `: ${detail}`}`);
  console.log(`BROKEN: ${broken.at(-1)}`);
}

/** The soak of a version, as a client of the stack that checks it. */
class Traffic {
  readonly #child: ChildProcess;
  readonly #ended: Promise<number | null>;
  #mails = 0;
  #webhooks = 0;

  constructor(code: string, stackFile: string, seed: number) {
    const args = ["bench/soak.ts", "--stack", stackFile, "--minutes", "240", "--seed", String(seed)];
    this.#child = spawn(process.execPath, args, { cwd: code, stdio: ["ignore", "pipe", "inherit"] });
    this.#ended = once(this.#child, "exit").then(([status]) => status);
    if (!this.#child.stdout) throw new Error("the soak has no output");
    createInterface(this.#child.stdout).on("line", (line) => {
      const [, mails, webhooks] = /mails (\d+), webhooks (\d+)/.exec(line) ?? [];
      if (mails !== undefined) [this.#mails, this.#webhooks] = [Number(mails), Number(webhooks)];
      if (mails === undefined || /violations [^0]/.test(line)) console.log(`  ${line}`);
    });
  }

  /** Waits for so many more mails and webhooks. */
  async flows(more: number): Promise<void> {
    const wanted = { mails: this.#mails + more, webhooks: this.#webhooks + more };
    const until = Date.now() + PATIENCE_MS;
    while (this.#mails < wanted.mails || this.#webhooks < wanted.webhooks) {
      if (this.#child.exitCode !== null) throw new Error("the soak has ended");
      if (Date.now() > until)
        return expect("mail and webhooks arrive", false, `${more} more than ${JSON.stringify(wanted)}`);
      await delay(500);
    }
  }

  /** Ends what it begins, waits for what is on its way, and lets it compare everything. @returns whether all held */
  async end(): Promise<boolean> {
    this.#child.kill("SIGTERM");
    return (await this.#ended) === 0;
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }
}

/** Work that a client began with one version and ends with another. */
interface Begun {
  end: (by: string) => Promise<void>;
}

/** Runs as a client of one version: its helpers came from that version's folder. */
async function openClients(code: string) {
  const sending: typeof import("../support/sending.ts") = await import(`${code}/test/support/sending.ts`);
  const consoles: typeof import("../support/console.ts") = await import(`${code}/test/support/console.ts`);
  const factories: typeof import("../support/factories.ts") = await import(`${code}/test/support/factories.ts`);
  const eventually: typeof import("../support/eventually.ts") = await import(`${code}/test/support/eventually.ts`);
  const sender = await sending.makeSender({ recipients: 25 });
  const { client, team, owner } = sender;
  // Not that of the newsletters: a token is void once its audience has changed.
  const list = await client.post("/lists", { name: "Imported", optin: "SINGLE" });
  const people = (answer: ApiAnswer): string[] => answer.body.data.map(({ id }: { id: string }) => id);

  return {
    close: factories.closeAll,
    /** A token, a cursor, a session and an import of the version that serves now. */
    async begin(by: string): Promise<Begun> {
      const draft = await sending.anotherNewsletter(sender);
      const token = await sending.tokenOf(draft);
      const key = sending.freshKey();
      const first = await client.get("/subscribers", { query: { limit: 10 } });
      const cursor: string = first.body.meta.next_cursor;
      const session = await consoles.consoleClient(await consoles.signIn(owner.id), team.id);
      const rows = Array.from({ length: IMPORTED_ROWS }, (_, i) => `${by.replaceAll(" ", "-")}${i}@${sender.audience}`);
      const bytes = Buffer.from(`email\n${rows.join("\n")}\n`);
      const begun = await session.app.imports.begin.mutate({
        body: { name: "people.csv", size: bytes.length },
      });
      const params = { importId: begun.data.id };
      await session.app.imports.part.mutate({ params, body: { n: 0, base64: bytes.toString("base64") } });
      const check = { kind: "subscribers" as const, list_id: list.body.data.id, uses: ["email"], confirmed: true };
      await session.app.imports.check.mutate({ params, body: check });
      const state = async () => (await session.app.imports.retrieve.query({ params })).data.state;
      await eventually.eventually(async () => (await state()) === "CHECKED", { what: "the check of an import" });
      await session.app.imports.run.mutate({ params, body: {} });

      return {
        end: async (by) => {
          const second = await client.get("/subscribers", { query: { limit: 10, cursor } });
          expect(`a cursor is valid with ${by}`, second.status === 200, second.text);
          const both = new Set([...people(first), ...people(second)]);
          expect(`a cursor continues where its page ended with ${by}`, both.size === 20, `${both.size} people`);
          const answers = [await sending.confirm(draft, token, key), await sending.confirm(draft, token, key)];
          expect(
            `a token is valid with ${by}, once`,
            answers.every(({ status }) => status === 202) && answers[0]?.text === answers[1]?.text,
            answers.map(({ text }) => text).join(" and "),
          );
          const ended = async () => ["DONE", "FAILED"].includes(await state());
          await eventually.eventually(ended, { what: "the end of an import", withinMs: PATIENCE_MS });
          const { state: last, report } = (await session.app.imports.retrieve.query({ params })).data;
          const counts = [report?.rows, report?.created].join();
          expect(
            `an import ends with ${by}`,
            last === "DONE" && counts === `${IMPORTED_ROWS},${IMPORTED_ROWS}`,
            `${last} ${counts}`,
          );
        },
      };
    },
  };
}

interface Versions {
  before: string;
  after: string;
}

async function roll(stack: Stack, proxy: UpgradeProxy, code: string, traffic: Traffic): Promise<void> {
  for (const pool of POOLS) {
    await stack.replace(pool, code);
    say(`  ${pool} is replaced`);
  }
  await stack.replace("api", code, proxy.lead);
  say("  the API is replaced");
  await traffic.flows(ENOUGH);
}

async function upgrade({ before, after }: Versions, seed: number, seconds: number): Promise<void> {
  const proxy = await openProxy((failure) => say(`  ${failure}`));
  const dataDir = mkdtempSync(`${tmpdir()}/mailkeel-upgrade-`);
  const source = { ...shellVariables(), ...NO_RATE_LIMITS, ...SETTINGS, PUBLIC_URL: proxy.origin };
  const stack = new Stack({
    settings: readStackSettings({ ...source, ...FREE_PORTS, DATA_DIR: dataDir }),
    // An API that stops answers the confirms that it has; that of 1.0.0 needs more time for its previews.
    source: { ...source, SHUTDOWN_GRACE_MS: "65000", PREVIEW_WAIT_MS: "20000" },
    code: before,
    step: (_name, work) => work(() => {}),
    say: (message) => console.log(`  ${message}`),
  });
  let traffic: Traffic | undefined;
  let isWhole = false;
  try {
    const { content } = await stack.start();
    proxy.lead(Number(new URL(content.api).port));
    const file = `${dataDir}/through-proxy.json`;
    await writeJson(file, { ...content, api: `${proxy.origin}/api/v2` } satisfies StackFile);
    process.env["MAILKEEL_STACK"] = file;
    const clients = await openClients(before);
    traffic = new Traffic(before, file, seed);
    await traffic.flows(ENOUGH);
    say("the version before runs, with traffic");

    const env = {
      ...process.env,
      ...content.settings,
      DATABASE_URL: content.database,
      MIGRATION_DATABASE_URL: content.migrationDatabase,
      TEMPORAL_ADDRESS: content.temporal.address,
    };
    execFileSync(process.execPath, ["stack/prepare.ts"], { cwd: after, env, stdio: ["ignore", "ignore", "inherit"] });
    say(`migrated; the version before runs on the new schema for ${seconds} s`);
    await delay(seconds * 1_000);
    await traffic.flows(ENOUGH);

    const forward = await clients.begin("the version before");
    await roll(stack, proxy, after, traffic);
    await forward.end("the new version");
    say(`the new version runs, for ${seconds} s`);
    await delay(seconds * 1_000);

    const back = await clients.begin("the new version");
    await roll(stack, proxy, before, traffic);
    await back.end("the version before");
    say("the version before runs again");
    await traffic.flows(ENOUGH);

    expect("all that the soak compares holds", await traffic.end());
    expect(
      "every request of a client is answered",
      proxy.failures.length === 0,
      proxy.failures.slice(0, 20).join("; "),
    );
    say(`${proxy.answered} requests were answered, ${proxy.failures.length} were not or with 5xx`);
    await clients.close();
    isWhole = true;
  } finally {
    traffic?.kill();
    await stack.stop();
    proxy.close();
    // Its logs say why.
    if (isWhole && broken.length === 0) await removeDataDir(dataDir);
    else console.log(`The logs are in ${dataDir}/logs.`);
  }
}

const program = new Command("test:upgrade")
  .description("Upgrades from a version to this commit and back, with traffic.")
  .option("--from <commit>", "the version before; the latest release unless given")
  .option("--to <commit>", "the new version", "HEAD")
  .option("--seconds <n>", "how long each version runs on the new schema", wholeNumber(1), 60)
  .option("--seed <n>", "what the traffic does", wholeNumber(0), Math.floor(Math.random() * 1e6))
  .parse();
const {
  from = latestRelease(),
  to,
  seconds,
  seed,
} = program.opts<{ from?: string; to: string; seconds: number; seed: number }>();
const folder = mkdtempSync(join(tmpdir(), "mailkeel-versions-"));
try {
  say(`from ${git("log", "-1", "--format=%h %s", from)} to ${git("log", "-1", "--format=%h %s", to)}, seed ${seed}`);
  await upgrade(
    { before: checkOut(from, join(folder, "before")), after: checkOut(to, join(folder, "after")) },
    seed,
    seconds,
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
for (const line of broken) console.log(`BROKEN: ${line}`);
if (broken.length === 0) say("everything held");
process.exit(broken.length === 0 ? 0 : 1);
