import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { createServer } from "node:net";
import type { Env } from "../../config/env.ts";
import { STACK_SETTINGS, type StackSettings } from "../../stack/settings.ts";
import { allGone, clearStacks, spawnStack, temporaryFolder } from "./support.ts";

type Settings = Exclude<keyof Env | keyof StackSettings, "TEMPORAL_NAMESPACE">;

/** One bad value of every setting; a namespace can have any name. */
const BAD = {
  DATABASE_URL: "mysql://127.0.0.1/mailkeel",
  MIGRATION_DATABASE_URL: "mysql://127.0.0.1/mailkeel",
  DATABASE_POOL_MAX: "0",
  HOST: "no-such-host.invalid",
  PORT: "70000",
  MAX_CONNECTIONS: "0",
  MAX_CONNECTIONS_PER_ADDRESS: "many",
  PROXY_ADDRESSES: "10.0.0.0/33",
  PROXY_HOPS: "11",
  RATE_LIMIT_PER_MINUTE: "0",
  FAILED_AUTHENTICATIONS_PER_MINUTE: "many",
  PREVIEW_WAIT_MS: "1",
  CONFIRM_WAIT_MS: "60001",
  PLAN_SECONDS: "0",
  PUBLIC_URL: "example.com",
  OAUTH_ISSUER: "issuer.example.com",
  OAUTH_JWKS_URL: "/jwks.json",
  OAUTH_AUDIENCE: "two words",
  TEMPORAL_ADDRESS: "http://127.0.0.1:7233",
  SIGNING_SECRET: "short",
  ENCRYPTION_KEYS: "k1:short",
  SYSTEM_SMTP_URL: "http://127.0.0.1",
  SYSTEM_FROM: "x",
  WORKER_DEPLOYMENT_NAME: "mail.keel",
  WORKER_BUILD_ID: "build 1",
  LOG_LEVEL: "loud",
  HEALTH_HOST: "localhost:9090",
  HEALTH_PORT: "-1",
  SHUTDOWN_GRACE_MS: "soon",
  SMTP_TIMEOUT_MS: "1",
  ACCOUNT_CHECK_SECONDS: "59",
  ACCOUNT_RECHECK_SECONDS: "0",
  ACCOUNT_FAILURES_TO_ERROR: "0",
  ACCOUNT_FAILING_SECONDS: "-1",
  ACCOUNT_CHECKS_AT_ONCE: "1",
  SMTP_ALLOWED_HOSTS: "relay.example",
  EGRESS_DENIED_NETWORKS: "203.0.113.0",
  ACTIVITY_CONCURRENCY: "0",
  RETURN_PATH_DOMAIN: "Bounces.example",
  INTAKE_HOST: "localhost",
  INTAKE_SMTP_PORT: "65536",
  INTAKE_MAX_CONNECTIONS: "3",
  INTAKE_MAILS_PER_MINUTE: "0",
  INTAKE_TLS_KEY_FILE: "key.pem",
  INTAKE_TLS_CERTIFICATE_FILE: "certificate.pem",
  MAX_LISTS: "0",
  MAX_NEWSLETTERS: "many",
  MAX_CAMPAIGNS: "many",
  MAX_API_KEYS: "0",
  CONFIRMATIONS_PER_ADDRESS: "0",
  CONFIRMATIONS_PER_TEAM: "-1",
  SOFT_BOUNCES_TO_SUPPRESS: "0",
  SOFT_BOUNCE_WINDOW_DAYS: "0",
  LEDGER_DAYS: "396",
  LEDGER_NAMES_DAYS: "29",
  CREDIT_ENTRY_DAYS: "61",
  PREVIEW_DAYS: "1",
  BULK_REPLAY_DAYS: "0",
  PROVIDER_REQUESTS_PER_MINUTE: "0",
  DISPATCH_BATCH_SIZE: "0",
  DISPATCH_SLICE_ROWS: "0",
  DISPATCH_SLICE_MS: "1",
  DEFERRAL_LADDER_SECONDS: "5m",
  DEFERRAL_WINDOW_SECONDS: "0",
  WEBHOOK_LADDER_SECONDS: "5,300",
  WEBHOOK_ALLOWED_HOSTS: "localhost",
  WEBHOOK_HTTPS_ONLY: "yes",
  WEBHOOK_DNS_SERVERS: "dns.example:53",
  WEBHOOK_TIMEOUT_MS: "99",
  DATA_DIR: "/dev/null/data",
  POSTGRES_PORT: "x",
  TEMPORAL_PORT: "-1",
  TEMPORAL_UI_PORT: "1.5",
  SMTP_PORT: "65536",
  MAIL_PORT: "1080 ",
  WEBHOOK_RECEIVER_PORT: "http",
  TEMPORAL_CLI: "/no/such/temporal",
} satisfies Record<Settings, string>;

describe("a stack that cannot start", () => {
  afterEach(clearStacks);

  async function refusal(env: NodeJS.ProcessEnv, dataDir = temporaryFolder()): Promise<string> {
    const stack = spawnStack({ dataDir, env });
    assert.equal(await stack.exited, 1, stack.output());
    assert.doesNotMatch(stack.output(), /^ +at /m, "shows a stack trace");
    return stack.output();
  }

  /** Settings whose value only the start itself finds wrong: each takes a start of its own. */
  const FOUND_LATER: readonly string[] = ["HOST", "DATA_DIR", "TEMPORAL_CLI"];
  const found = Object.entries(BAD).filter(([name]) => !FOUND_LATER.includes(name));
  const ofStack = found.filter(([name]) => STACK_SETTINGS.some((setting) => setting === name));
  const ofProcesses = found.filter((entry) => !ofStack.includes(entry));

  for (const bad of [ofStack, ofProcesses]) {
    describe("for many wrong settings", () => {
      let output: string;
      before(async () => {
        output = await refusal(Object.fromEntries(bad));
      });

      for (const [name, value] of bad) {
        it(`names ${name} when that is ${JSON.stringify(value)}`, () => {
          assert.match(output, new RegExp(`^ +${name} `, "m"));
        });
      }
    });
  }

  for (const [name, value] of Object.entries(BAD).filter(([each]) => FOUND_LATER.includes(each))) {
    it(`names ${name} when that is ${JSON.stringify(value)}`, async () => {
      assert.match(await refusal({ [name]: value }), new RegExp(`\\b${name}\\b`));
    });
  }

  describe("for settings that only their use would find wrong", () => {
    /** Starts with these would give mails links that lead nowhere, or would try again for ever. */
    const useless = {
      PUBLIC_URL: "https://mail.example/?from=mail",
      TEMPORAL_ADDRESS: "127.0.0.1:72330",
      SYSTEM_SMTP_URL: "smtp://",
      SYSTEM_FROM: "Mailkeel",
    };
    let output: string;
    before(async () => {
      output = await refusal(useless);
    });

    for (const [name, value] of Object.entries(useless)) {
      it(`names ${name} when that is ${JSON.stringify(value)}`, () => {
        assert.match(output, new RegExp(`^ +${name} must `, "m"));
      });
    }
  });

  it("names PROXY_ADDRESSES when PROXY_HOPS lacks it", async () => {
    assert.match(await refusal({ PROXY_HOPS: "1" }), /^ +PROXY_ADDRESSES is not set/m);
  });

  it("takes an IPv6 address in brackets for Temporal, and nothing else in them", async () => {
    const named = async (TEMPORAL_ADDRESS: string) =>
      (await refusal({ TEMPORAL_ADDRESS, LOG_LEVEL: "loud" })).includes("TEMPORAL_ADDRESS must be host:port");
    assert.equal(await named("[::1]:7233"), false);
    assert.equal(await named("[127.0.0.1]:7233"), true);
  });

  it("names every wrong setting at once", async () => {
    const output = await refusal({ LOG_LEVEL: "loud", SYSTEM_FROM: "x" });
    assert.match(output, /LOG_LEVEL/);
    assert.match(output, /SYSTEM_FROM/);
  });

  for (const name of STACK_SETTINGS.filter((setting) => setting.endsWith("PORT"))) {
    it(`names ${name} when that port is in use`, async () => {
      const server = createServer();
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      const { port } = server.address() as { port: number };
      try {
        assert.match(await refusal({ [name]: String(port) }), new RegExp(`\\b${name}: port ${port} .*in use.*${name}`));
      } finally {
        server.close();
      }
    });
  }

  it("names the setting of a database and of a cluster that does not answer", async () => {
    const DATABASE_URL = "postgres://app@127.0.0.1:1/mailkeel";
    const MIGRATION_DATABASE_URL = "postgres://owner@127.0.0.1:1/mailkeel";
    assert.match(await refusal({ DATABASE_URL }), /MIGRATION_DATABASE_URL is not set/);
    assert.match(await refusal({ DATABASE_URL, MIGRATION_DATABASE_URL }), /DATABASE_URL: .*ECONNREFUSED/);
    assert.match(await refusal({ TEMPORAL_ADDRESS: "127.0.0.1:1" }), /TEMPORAL_ADDRESS/);
  });

  it("leaves nothing running when it fails half-way", async () => {
    const stack = spawnStack({ env: { TEMPORAL_CLI: "/no/such/temporal" } });
    const seen = new Set<number>();
    const watch = setInterval(() => stack.pids().forEach((pid) => void seen.add(pid)), 20);
    await stack.exited;
    clearInterval(watch);
    await allGone([...seen]);
  });

  it("says so when the secrets of a database are lost", async () => {
    const stack = spawnStack();
    await stack.ready();
    stack.process.kill("SIGTERM");
    await stack.exited;
    rmSync(`${stack.dataDir}/secrets.json`);
    assert.match(await refusal({}, stack.dataDir), /secrets\.json/);
  });
});
