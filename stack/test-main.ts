/** `npm test`: the whole stack on free ports with data of its own, and mocha against it. */
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { reservePorts } from "./infra.ts";
import { removeDataDir } from "./postgres.ts";
import { readStackSettings } from "./settings.ts";
import { Stack } from "./stack.ts";
import { explain, onSignals } from "./terminal.ts";

const ALL_TESTS = "test/**/*.test.ts";
const ROOT = `${import.meta.dirname}/..`;

/** The shell's settings for a real database or cluster are none of a test's business: only these are passed on. */
const KEPT =
  /^(PATH|HOME|USER|SHELL|TERM|TMPDIR|LANG|XDG_CACHE_HOME|LOG_LEVEL|TEMPORAL_CLI|(NODE_|GO|LC_|SSL_).*|.*_proxy)$/i;

/** Waits short enough to be waited for. */
const QUICK = {
  DEFERRAL_LADDER_SECONDS: "1,1,2",
  SMTP_TIMEOUT_MS: "5000",
  WEBHOOK_LADDER_SECONDS: "0,1,1,2",
  WEBHOOK_TIMEOUT_MS: "2000",
};

/** Where receivers of the tests may listen: the only addresses of this machine that webhooks may reach. */
const RECEIVERS = ["a", "b", "c", "d", "e", "f", "g", "h"];

function namesTests(arg: string, before: string | undefined): boolean {
  if (arg.startsWith("-") || /^(-g|--grep|-f|--fgrep)$/.test(before ?? "")) return false;
  return arg.endsWith(".ts") || statSync(arg, { throwIfNoEntry: false })?.isDirectory() === true;
}

async function main(): Promise<number> {
  const source = Object.fromEntries(Object.entries(process.env).filter(([name]) => KEPT.test(name)));
  const dataDir = mkdtempSync(`${tmpdir()}/mailkeel-test-`);
  const freePorts = {
    PORT: "0",
    POSTGRES_PORT: "0",
    TEMPORAL_PORT: "0",
    TEMPORAL_UI_PORT: "0",
    SMTP_PORT: "0",
    MAIL_PORT: "0",
    WEBHOOK_RECEIVER_PORT: "0",
  };
  const receivers = Object.values(await reservePorts(Object.fromEntries(RECEIVERS.map((name) => [name, { port: 0 }]))));
  const allowed = receivers.map((port) => `127.0.0.1:${port}`).join(",");
  const settings = readStackSettings({ ...source, ...freePorts, DATA_DIR: dataDir });
  const stack = new Stack({
    settings,
    source: { ...source, ...QUICK, WEBHOOK_ALLOWED_HOSTS: allowed },
    ephemeral: true,
    step: (name, work) => work((message) => console.log(`  … ${name}: ${message}`)),
    // Tests kill children on purpose; what became of them is in the logs.
    say: () => {},
  });

  let mocha: ReturnType<typeof spawn> | undefined;
  const clear = () => removeDataDir(dataDir);
  onSignals(
    async () => {
      mocha?.kill("SIGTERM");
      await stack.stop();
      await clear();
      process.exit(130);
    },
    async () => {
      mocha?.kill("SIGKILL");
      await stack.kill();
      await clear();
      process.exit(130);
    },
  );

  try {
    const { file } = await stack.start();
    const temporary = `${dataDir}/tmp`;
    mkdirSync(temporary, { mode: 0o711 });
    const args = process.argv.slice(2);
    const tests = args.some((arg, i) => namesTests(arg, args[i - 1])) ? [] : [ALL_TESTS];
    const child = spawn(process.execPath, [`${ROOT}/node_modules/mocha/bin/mocha.js`, ...args, ...tests], {
      cwd: ROOT,
      // What tests leave behind goes with our data.
      env: { ...process.env, MAILKEEL_STACK: file, MAILKEEL_RECEIVERS: receivers.join(","), TMPDIR: temporary },
      stdio: "inherit",
    });
    mocha = child;
    return await new Promise((resolve) => child.once("exit", (code) => resolve(code ?? 1)));
  } finally {
    await stack.stop();
    await clear();
  }
}

main().then(
  (code) => process.exit(code),
  (error) => {
    console.error(`The tests could not be run.\n${explain(error)}`);
    process.exit(1);
  },
);
