import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { type Env, readEnv, renamedSettings, SettingsError } from "../../config/env.ts";
import { embeddedPostgres, removeDataDir } from "../../stack/postgres.ts";
import { StackError } from "../../stack/processes.ts";
import { readStackSettings, type StackSettings } from "../../stack/settings.ts";
import { Stack } from "../../stack/stack.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { testsOf } from "../support/long.ts";
import { stack } from "../support/stack.ts";
import { FREE_PORTS, STACK_SETTINGS } from "../support/stack-settings.ts";
import { allGone, clearStacks, spawnStack, temporaryFolder } from "./support.ts";

const { it, longIt } = testsOf();

/** Settings that have no default. */
const GIVEN = {
  ...{ DATABASE_URL: "postgres://127.0.0.1/x", PUBLIC_URL: "https://mail.example", TEMPORAL_ADDRESS: "127.0.0.1:7233" },
  SIGNING_SECRET: Buffer.alloc(32).toString("base64"),
  ENCRYPTION_KEYS: `k1:${Buffer.alloc(32).toString("base64")}`,
  SYSTEM_SMTP_URL: "smtp://127.0.0.1:1025",
};

/** Settings whose value only the start itself finds wrong; a namespace can have any name. */
type FoundLater = "HOST" | "DATA_DIR" | "TEMPORAL_CLI" | "TEMPORAL_NAMESPACE";

/** One bad value of every other setting. */
const BAD = {
  ...{ DATABASE_URL: "mysql://127.0.0.1/mailkeel", MIGRATION_DATABASE_URL: "mysql://127.0.0.1/mailkeel" },
  ...{ DATABASE_POOL_MAX: "0", PORT: "70000", API_MAX_CONNECTIONS: "0", API_MAX_CONNECTIONS_PER_ADDRESS: "many" },
  ...{ PROXY_ADDRESSES: "10.0.0.0/33", PROXY_HOPS: "11", RATE_LIMIT_PER_MINUTE: "0" },
  ...{ TRACKING_NETWORKS_FILE: "networks.json", THROWAWAY_DOMAINS_FILE: "domains.txt" },
  ...{ FAILED_AUTHENTICATIONS_PER_MINUTE: "many", PREVIEW_WAIT_MS: "1", CONFIRM_WAIT_MS: "60001", PLAN_SECONDS: "0" },
  ...{ PUBLIC_URL: "example.com", OAUTH_ISSUER: "issuer.example.com", OAUTH_JWKS_URL: "/jwks.json" },
  ...{ OIDC_ISSUER: "id.example.com", OIDC_CLIENT_ID: "two words", OIDC_CLIENT_SECRET: "two words" },
  ...{ OIDC_NAME: "n".repeat(41), OIDC_TEAM_ID: "two words", OIDC_ROLE_CLAIM: "two words", SIGN_IN_LINKS: "no" },
  ...{ OAUTH_AUDIENCE: "two words", TEMPORAL_ADDRESS: "http://127.0.0.1:7233", SIGNING_SECRET: "short" },
  ...{ ENCRYPTION_KEYS: "k1:short", SYSTEM_SMTP_URL: "http://127.0.0.1", SYSTEM_FROM: "x" },
  ...{ WORKER_DEPLOYMENT_NAME: "mail.keel", WORKER_BUILD_ID: "build 1", LOG_LEVEL: "loud" },
  ...{ HEALTH_HOST: "localhost:9090", HEALTH_PORT: "-1", SHUTDOWN_GRACE_MS: "soon", SMTP_TIMEOUT_MS: "1" },
  ...{ SMTP_GREETING_TIMEOUT_MS: "1", SMTP_MAIL_TIMEOUT_MS: "1", SMTP_RCPT_TIMEOUT_MS: "1", SMTP_DATA_TIMEOUT_MS: "1" },
  ...{ SMTP_BLOCK_TIMEOUT_MS: "1", SMTP_DOT_TIMEOUT_MS: "1" },
  SMTP_HELO_NAME: "mail",
  ACCOUNT_CHECK_SECONDS: "59",
  ...{ ACCOUNT_CHECKS_AT_ONCE: "1", SMTP_ALLOWED_HOSTS: "relay.example" },
  ...{ EGRESS_DENIED_NETWORKS: "203.0.113.0", ACTIVITY_CONCURRENCY: "0", RETURN_PATH_DOMAIN: "Bounces.example" },
  ...{ INTAKE_HOST: "localhost", INTAKE_SMTP_PORT: "65536", INTAKE_MAX_CONNECTIONS: "3", INTAKE_MAILS_PER_MINUTE: "0" },
  ...{ INTAKE_TLS_KEY_FILE: "key.pem", INTAKE_TLS_CERTIFICATE_FILE: "certificate.pem" },
  ...{ FEEDBACK_LOOPS: "Yahoo", FEEDBACK_LOOP_ADDRESSES: "mx.example", MAX_LISTS: "0" },
  ...{ MAX_NEWSLETTERS: "many", MAX_CAMPAIGNS: "many", MAX_API_KEYS: "0", CONFIRMATIONS_PER_ADDRESS: "0" },
  ...{ CONFIRMATIONS_PER_TEAM: "-1", SOFT_BOUNCES_TO_SUPPRESS: "0", SOFT_BOUNCE_WINDOW_DAYS: "0", LEDGER_DAYS: "396" },
  LEDGER_NAMES_DAYS: "29",
  ...{ PROVIDER_REQUESTS_PER_MINUTE: "0", DISPATCH_SLICE_ROWS: "0" },
  ...{ DEFERRAL_LADDER_SECONDS: "5m", DEFERRAL_WINDOW_SECONDS: "0", WEBHOOK_LADDER_SECONDS: "5,300" },
  ...{ WEBHOOK_ALLOWED_HOSTS: "localhost", WEBHOOK_HTTPS_ONLY: "yes", WEBHOOK_DNS_SERVERS: "dns.example:53" },
  ...{ WEBHOOK_TIMEOUT_MS: "99", POSTGRES_PORT: "x", TEMPORAL_PORT: "-1", TEMPORAL_UI_PORT: "1.5", SMTP_PORT: "65536" },
  ...{ MAIL_PORT: "1080 ", WEBHOOK_RECEIVER_PORT: "http" },
  ...{ HEARTBEAT_TIMEOUT_MS: "soon", OTEL_EXPORTER_OTLP_ENDPOINT: "localhost:4318", OTEL_TRACES_SAMPLER_ARG: "1.5" },
  OTEL_SDK_DISABLED: "yes",
  ...{ MAX_IMAGES: "0", MAX_IMAGE_MEGABYTES: "1", IMAGES_DIRECTORY: "images", IMAGES_S3_URL: "s3.example.com" },
  ...{ IMAGES_S3_REGION: "eu west", IMAGES_S3_KEY_ID: "a key", IMAGES_S3_SECRET_KEY: "a secret" },
} satisfies Record<Exclude<keyof Env | keyof StackSettings, FoundLater>, string>;

/** Values that only their use would find wrong: mails would get links that lead nowhere, or would be tried for ever. */
const USELESS = {
  PUBLIC_URL: "https://mail.example/?from=mail",
  TEMPORAL_ADDRESS: "127.0.0.1:72330",
  SYSTEM_SMTP_URL: "smtp://",
  SYSTEM_FROM: "Mailkeel",
};

describe("Settings that are wrong", () => {
  function refusal(read: (source: NodeJS.ProcessEnv) => unknown, source: NodeJS.ProcessEnv): string {
    try {
      read({ ...GIVEN, ...source });
    } catch (error) {
      assert.ok(error instanceof SettingsError);
      return error.message;
    }
    return "";
  }

  it("are named, each of them, at once", () => {
    const isOfStack = (name: string) => STACK_SETTINGS.some((setting) => setting === name);
    const pick = (ofStack: boolean) => Object.entries(BAD).filter(([name]) => isOfStack(name) === ofStack);
    for (const [read, bad] of [
      [readStackSettings, pick(true)],
      [readEnv, pick(false)],
      [readEnv, Object.entries(USELESS)],
    ] as const) {
      const message = refusal(read, Object.fromEntries(bad));
      for (const [name] of bad) assert.match(message, new RegExp(`^ +${name} `, "m"));
    }
  });

  it("are a PUBLIC_URL with a path or a login, which half of the links would lack", () => {
    for (const end of ["/mail", "//", "/?", "#"]) {
      assert.match(refusal(readEnv, { PUBLIC_URL: `https://mail.example${end}` }), /^ +PUBLIC_URL must have no path/m);
    }
    assert.match(refusal(readEnv, { PUBLIC_URL: "https://a:b@mail.example" }), /no login/);
    const { PUBLIC_URL } = readEnv({ ...GIVEN, PUBLIC_URL: "https://Mail.Example:443/" });
    assert.equal(PUBLIC_URL, "https://mail.example");
  });

  it("are not flags in capital letters", () => {
    assert.equal(readEnv({ ...GIVEN, OTEL_SDK_DISABLED: "True" }).OTEL_SDK_DISABLED, true);
  });

  it("are PROXY_HOPS without PROXY_ADDRESSES", () => {
    assert.match(refusal(readEnv, { PROXY_HOPS: "1" }), /^ +PROXY_ADDRESSES is not set/m);
  });

  it("are brackets around an address of Temporal that is not of IPv6", () => {
    assert.equal(refusal(readEnv, { TEMPORAL_ADDRESS: "[::1]:7233" }), "");
    assert.match(refusal(readEnv, { TEMPORAL_ADDRESS: "[127.0.0.1]:7233" }), /TEMPORAL_ADDRESS must be host:port/);
  });

  it("are those under which work would begin again and again", () => {
    const endless = {
      ...{ WEBHOOK_TIMEOUT_MS: "15001", WEBHOOK_LADDER_SECONDS: "0,999999,999999,999999" },
      ...{ DEFERRAL_LADDER_SECONDS: "300,0", SMTP_TIMEOUT_MS: "120001" },
    };
    for (const [name, value] of Object.entries(endless)) {
      assert.match(refusal(readEnv, { [name]: value }), new RegExp(`^ +${name} `, "m"));
    }
  });

  it("are those that lack one without a default", () => {
    assert.equal(readEnv(GIVEN).PORT, 3000);
    for (const name of Object.keys(GIVEN)) {
      assert.ok(refusal(readEnv, { [name]: "" }).includes(`${name} is not set`), name);
    }
  });

  it("are those under which links in mails work for less than 13 months, or a soft bounce counts for longer than it is kept", () => {
    const [from, until] = [Date.UTC(2028, 0, 1), Date.UTC(2029, 1, 1)];
    const least = (until - from) / 86_400_000;
    assert.match(refusal(readEnv, { LEDGER_DAYS: String(least - 1) }), /^ +LEDGER_DAYS .*\b397\b/m);
    const longest = { LEDGER_DAYS: String(least), SOFT_BOUNCE_WINDOW_DAYS: "365" };
    assert.equal(refusal(readEnv, longest), "");
    assert.match(
      refusal(readEnv, { ...longest, SOFT_BOUNCE_WINDOW_DAYS: String(least + 1) }),
      /SOFT_BOUNCE_WINDOW_DAYS/,
    );
  });

  it("are a team, or no links, without a provider, and a provider without TLS for a console with it", () => {
    const provider = {
      OIDC_ISSUER: "https://id.example.com",
      OIDC_CLIENT_ID: "mailkeel",
      OIDC_CLIENT_SECRET: "secret",
    };
    const team = { OIDC_TEAM_ID: "team_x", OIDC_ROLE_CLAIM: "role" };
    assert.match(refusal(readEnv, team), /^ +OIDC_TEAM_ID needs OIDC_ISSUER$/m);
    assert.match(refusal(readEnv, { SIGN_IN_LINKS: "off" }), /^ +SIGN_IN_LINKS must be on without OIDC_ISSUER/m);
    assert.equal(refusal(readEnv, { ...provider, ...team, SIGN_IN_LINKS: "off" }), "");
    const plain = { ...provider, OIDC_ISSUER: "http://id.example.com" };
    assert.match(refusal(readEnv, plain), /^ +OIDC_ISSUER must begin with https/m);
    assert.equal(refusal(readEnv, { ...plain, PUBLIC_URL: "http://localhost:3000" }), "");
  });

  it("are half of a pair", () => {
    const issuer = "https://issuer.example.com";
    for (const pair of [
      { WORKER_DEPLOYMENT_NAME: "mailkeel", WORKER_BUILD_ID: "1" },
      { OAUTH_ISSUER: issuer, OAUTH_JWKS_URL: `${issuer}/jwks.json` },
      { OIDC_ISSUER: issuer, OIDC_CLIENT_ID: "mailkeel", OIDC_CLIENT_SECRET: "secret" },
      { INTAKE_TLS_KEY_FILE: "/etc/mailkeel/key.pem", INTAKE_TLS_CERTIFICATE_FILE: "/etc/mailkeel/certificate.pem" },
    ]) {
      const read: Record<string, unknown> = readEnv({ ...GIVEN, ...pair });
      for (const [name, value] of Object.entries(pair)) {
        assert.equal(read[name], value);
        assert.ok(refusal(readEnv, { ...pair, [name]: "" }).includes(`${name} is not set`), name);
      }
    }
  });
});

describe("A setting that has another name since the minor before", () => {
  it("is understood under its old name, with a warning, and its new name counts", () => {
    const old = { ...GIVEN, MAX_CONNECTIONS: "7" };
    assert.equal(readEnv(old).API_MAX_CONNECTIONS, 7);
    assert.match(renamedSettings(old).join(), /^MAX_CONNECTIONS is now called API_MAX_CONNECTIONS; /);
    const both = { ...old, API_MAX_CONNECTIONS: "8" };
    assert.equal(readEnv(both).API_MAX_CONNECTIONS, 8);
    assert.deepEqual(renamedSettings(both), []);
  });
});

describe("A stack that cannot start", () => {
  afterEach(clearStacks);

  const embedded = (dataDir: string) =>
    embeddedPostgres({ dataDir, port: 1, passwords: { owner: "x", application: "y" }, ephemeral: true });

  async function refusal(source: Record<string, string>): Promise<string> {
    const folder = temporaryFolder();
    const settings = readStackSettings({ ...FREE_PORTS, DATA_DIR: folder, ...source });
    const started = new Stack({ settings, source, step: (_name, work) => work(() => {}), say: () => {} });
    try {
      await started.start();
    } catch (error) {
      assert.ok(error instanceof StackError, String(error));
      return error.message;
    } finally {
      await started.stop();
      await removeDataDir(folder);
    }
    return assert.fail("it started");
  }

  it("ends with exit code 1 and a message without a stack trace", async () => {
    const { exited, output } = spawnStack({ env: { LOG_LEVEL: "loud", SYSTEM_FROM: "x" } });
    assert.equal(await exited, 1);
    for (const setting of [/^ +LOG_LEVEL /m, /^ +SYSTEM_FROM /m]) assert.match(output(), setting);
    assert.doesNotMatch(output(), /^ +at /m);
  });

  it("refuses to hold the sends of a folder without a database", async () => {
    const { exited, output } = spawnStack({ args: ["--hold-sends"] });
    assert.equal(await exited, 1);
    assert.match(output(), /holds no database whose sends could be held\. Restore one/);
  });

  it("names HOST, DATA_DIR and each port that cannot be had", async () => {
    assert.match(await refusal({ HOST: "no-such-host.invalid" }), /^HOST: cannot listen/);
    assert.match(await refusal({ DATA_DIR: "/dev/null/data" }), /^DATA_DIR: cannot use .* set DATA_DIR to another/);
    const server = createServer();
    const port = await listenLocally(server);
    try {
      for (const name of STACK_SETTINGS.filter((setting) => setting.endsWith("PORT"))) {
        const message = await refusal({ [name]: String(port) });
        assert.match(message, new RegExp(`^${name}: port ${port} .*in use.*${name}`));
      }
    } finally {
      server.close();
    }
  });

  it("names what to do about a database of another version or user, and about a part of one", async () => {
    const dataDir = temporaryFolder();
    // Postgres may not reach a folder of root's: it is found by this file also then.
    writeFileSync(`${dataDir}/postgres.path`, dataDir);
    mkdirSync(`${dataDir}/postgres`);
    if (process.getuid?.() === 0) {
      await assert.rejects(embedded(dataDir), /^StackError: DATA_DIR: .* is of user 0\. .* chown -R \d+ /);
      execFileSync("chown", ["postgres", `${dataDir}/postgres`]);
    }
    await assert.rejects(embedded(dataDir), /DATA_DIR: .* no whole database\. Restore one of Postgres \d+ there/);
    writeFileSync(`${dataDir}/postgres/PG_VERSION`, "9\n");
    await assert.rejects(embedded(dataDir), /DATA_DIR: .* a database of Postgres 9\. Restore/);
    await removeDataDir(dataDir);
  });

  it("names the setting whose password Postgres refuses, as `prepare:cluster` does", async () => {
    const { DATABASE_URL, MIGRATION_DATABASE_URL } = (await stack()).env;
    const url = new URL(MIGRATION_DATABASE_URL ?? "");
    url.password = "wrong";
    const { PATH } = process.env;
    const given = { DATABASE_URL, MIGRATION_DATABASE_URL: url.href, TEMPORAL_ADDRESS: "127.0.0.1:1" };
    const { status, stderr } = spawnSync(process.execPath, ["stack/prepare.ts"], { env: { PATH, ...given } });
    assert.equal(status, 1);
    assert.match(String(stderr), /^MIGRATION_DATABASE_URL: .*password authentication failed.*\n$/);
  });

  longIt("names the setting of a database and of a cluster that does not answer", async () => {
    const DATABASE_URL = "postgres://app@127.0.0.1:1/mailkeel";
    const MIGRATION_DATABASE_URL = "postgres://owner@127.0.0.1:1/mailkeel";
    assert.match(await refusal({ DATABASE_URL }), /^MIGRATION_DATABASE_URL is not set/);
    const given = { DATABASE_URL, MIGRATION_DATABASE_URL };
    const { address } = (await stack()).temporal;
    assert.match(await refusal({ ...given, TEMPORAL_ADDRESS: address }), /DATABASE_URL: .*ECONNREFUSED/);
    assert.match(await refusal({ ...given, TEMPORAL_ADDRESS: "127.0.0.1:1" }), /TEMPORAL_ADDRESS/);
  });

  it("leaves nothing running when it fails half-way, and names TEMPORAL_CLI", async () => {
    const spawned = spawnStack({ env: { TEMPORAL_CLI: "/no/such/temporal" } });
    const seen = new Set<number>();
    const watch = setInterval(() => spawned.pids().forEach((pid) => void seen.add(pid)), 50);
    assert.equal(await spawned.exited, 1);
    clearInterval(watch);
    assert.match(spawned.output(), /^TEMPORAL_CLI: /m);
    await allGone([...seen]);
  });
});
