import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { webcrypto } from "node:crypto";
import { globSync, readFileSync, symlinkSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { createContext, runInContext } from "node:vm";
import { build, type Rollup } from "vite";
import { SERVICE_VERSION } from "../../client/generated.ts";
import { signatureHeader, signerOf } from "../../domain/webhooks/request.ts";
import { makeTeam } from "../support/factories.ts";
import { SECRET } from "../support/signature-cases.ts";
import { stack } from "../support/stack.ts";
import { runStep } from "../support/steps.ts";
import { installClient } from "./install.ts";
import { installed } from "./write-client.ts";

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, "../..");
const CLIENT = join(ROOT, "client");

/** The strictest that a project may have which uses the client. In node16, unlike nodenext, CommonJS cannot import a module. */
const COMPILER_OPTIONS = {
  strict: true,
  exactOptionalPropertyTypes: true,
  module: "node16",
  target: "es2022",
  types: ["node"],
  noEmit: true,
  skipLibCheck: false,
};

const snippets = (file: string): string[] =>
  [...readFileSync(join(ROOT, file), "utf8").matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code = ""]) => code);

/** The names that the examples of a document take from their reader's program. */
const DECLARED = [
  "declare const rawBody: Uint8Array, secret: string;",
  'import type { IncomingMessage } from "node:http";',
  "declare const request: IncomingMessage;",
  "declare let since: string | undefined;",
  "declare function store(record: { id: string }): Promise<void>;",
];
const GIVEN = ["let since: string | undefined;", "const store = async ({ id }: { id: string }) => console.log(id);"];
const IMPORTS = 'import { InvalidRequestError, Mailkeel } from "@mailkeel/client";\ndeclare const mailkeel: Mailkeel;';

/** Options that may be undefined in a project that tells them from absent ones. */
const OPTIONAL = `import { type ClientOptions, Mailkeel, verifyWebhook } from "@mailkeel/client";
const { KEY: apiKey, VERSION: serviceVersion, TRY: idempotencyKey } = process.env;
const mailkeel = new Mailkeel({ apiKey, serviceVersion, baseUrl: "https://mail.example.com/api/v2" });
export const page = (cursor?: string, signal?: AbortSignal, timeoutMs?: number) =>
  mailkeel.subscribers.list({ cursor, limit: 10 }, { signal, timeoutMs });
export const add = (email: string, first_name?: string, dryRun?: true) =>
  mailkeel.subscribers.create({ email, first_name }, { idempotencyKey, dryRun });
export const client = (options: Omit<ClientOptions, "baseUrl">, fetch?: ClientOptions["fetch"]) =>
  new Mailkeel({ ...options, fetch, baseUrl: "https://mail.example.com/api/v2" });
export const verified = (body: string, signature?: string | string[], now?: number) =>
  verifyWebhook({ body, signature, secret: "x", now });
`;

/** In a CommonJS project the compiler makes a `require` of the import. */
const COMMON = `import { Mailkeel, type MailingList, NotFoundError } from "@mailkeel/client";
const mailkeel = new Mailkeel({ apiKey: "x", baseUrl: "https://mail.example.com/api/v2" });
export const found = (id: string): Promise<MailingList | undefined> =>
  mailkeel.lists.retrieve(id).then(({ data }) => data, (error) => {
    if (error instanceof NotFoundError && error.status === 404) return undefined;
    throw error;
  });
`;

/** Calls that the API does not take: each must be an error of its types. */
const WRONG = [
  'mailkeel.lists.create({ title: "x" })',
  'mailkeel.newsletters.list({ status: "GONE" })',
  'mailkeel.lists.create({ name: "x" }, { dryRun: true }).then(({ data }) => data.id)',
  'mailkeel.newsletters.send("nl_1", { confirmation_token: "x" }, { dryRun: true })',
  'mailkeel.lists.retrieve("list_1", { idempotencyKey: "x" })',
  'mailkeel.lists.delete("list_1", { idempotencyKey: "x" })',
];

function programs(): Record<string, string> {
  const guides = ["pagination", "errors", "webhooks"].map((name) => snippets(`api/docs/guides/${name}.md`));
  for (const each of guides) assert.ok(each.length > 0);
  return {
    "example.ts": snippets("README.md")[0] ?? "",
    "started.ts": snippets("api/docs/guides/getting-started.md")[0] ?? "",
    "readme.ts": [...DECLARED, ...snippets("client/README.md")].join("\n"),
    // Without the one about webhooks.
    "calls.ts": [...GIVEN, ...snippets("client/README.md").slice(0, -1), "console.log(list.name, drafts);"].join("\n"),
    "guides.ts": [IMPORTS, ...DECLARED, ...guides.flat()].join("\n"),
    "optional.ts": OPTIONAL,
    "common.cts": COMMON,
    "wrong.ts": [IMPORTS, ...WRONG.map((call) => `await ${call};`), ""].join("\n"),
  };
}

describe("The client's package", () => {
  let project: string;
  /** Of the client in the project's `node_modules`. */
  let home: string;
  let paths: string[];
  /** The errors of the compiler, by program and line. */
  let errors: string;

  before(async function () {
    // Each step ends by itself, or says that it stands still.
    this.timeout(0);
    project = await mkdtemp(join(tmpdir(), "mailkeel-client-"));
    home = join(project, "node_modules/@mailkeel/client");
    paths = await installClient(project);
    symlinkSync(join(ROOT, "node_modules/@types"), join(project, "node_modules/@types"));
    symlinkSync(join(ROOT, "node_modules/undici-types"), join(project, "node_modules/undici-types"));
    const files = programs();
    for (const [name, code] of Object.entries(files)) await writeFile(join(project, name), code);
    const config = { compilerOptions: COMPILER_OPTIONS, files: Object.keys(files) };
    await writeFile(join(project, "tsconfig.json"), JSON.stringify(config));
    // One run for all programs: the compiler takes seconds to start.
    const compiled = await runStep("the compiler", installed("tsc"), ["--project", project], project);
    assert.notEqual(compiled.code, null, compiled.stderr);
    errors = compiled.stdout;
  });
  after(() => rm(project, { recursive: true, force: true }));

  it("holds what its sources compile to, its documents and its licence, and may be published", () => {
    const modules = globSync("*.ts", { cwd: CLIENT }).map((file) => basename(file, ".ts"));
    const compiled = modules
      .filter((name) => name !== "generate")
      .flatMap((name) => [`dist/${name}.js`, `dist/${name}.d.ts`, `dist/cjs/${name}.d.ts`]);
    const documents = ["CHANGELOG.md", "LICENSE", "README.md", "package.json", "dist/cjs/package.json"];
    assert.deepEqual(paths.toSorted(), [...compiled, ...documents].sort());
    assert.equal(readFileSync(join(home, "LICENSE"), "utf8"), readFileSync(join(ROOT, "LICENSE"), "utf8"));
    const manifest = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
    for (const key of ["private", "dependencies", "peerDependencies", "optionalDependencies"])
      assert.equal(manifest[key], undefined, key);
  });

  it("bundled for browsers and edge runtimes, verifies a webhook and calls the API by web standards alone", async () => {
    const made = await build({
      configFile: false,
      logLevel: "error",
      root: project,
      build: {
        write: false,
        lib: { entry: join(home, "dist/index.js"), formats: ["iife"], name: "client" },
        // A module of Node would be left out with a warning.
        rolldownOptions: { onLog: (_level, { message }) => assert.fail(message) },
      },
    });
    const [{ output }] = [made].flat() as [Rollup.RollupOutput];
    assert.equal(output.length, 1);
    const sent: Request[] = [];
    const fetch = async (...request: Parameters<typeof globalThis.fetch>) => {
      sent.push(new Request(...request));
      const [status, retryAfter] = sent.length === 1 ? [503, "0"] : [200, ""];
      return Response.json({ data: null, meta: {} }, { status, headers: { "retry-after": retryAfter } });
    };
    const web = { AbortSignal, Blob, Headers, TextDecoder, TextEncoder, URL, crypto: webcrypto, performance, fetch };
    const context = createContext({ ...web, setTimeout, clearTimeout });
    runInContext(output[0].code, context);
    const body = '{"type":"unsubscribe.created"}';
    const signature = signatureHeader([signerOf(SECRET)], Math.floor(Date.now() / 1_000), body);
    Object.assign(context, { delivery: { body: Buffer.from(body), signature, secret: SECRET } });
    const { type } = await runInContext("client.Mailkeel.unwrapWebhook(delivery)", context);
    assert.equal(type, "unsubscribe.created");
    const forged = runInContext('client.verifyWebhook({ ...delivery, body: "{}" })', context);
    await assert.rejects(forged, { name: "WebhookSignatureError" });
    await runInContext(
      'new client.Mailkeel({ apiKey: "x", baseUrl: "https://mail.example.com/api/v2" }).lists.create({ name: "x" })',
      context,
    );
    const keys = sent.map(({ headers }) => headers.get("idempotency-key"));
    assert.deepEqual([keys.length, new Set(keys).size], [2, 1]);
    assert.match(keys[0] ?? "", /^[\w-]{36}$/);
  });

  it("compiles the examples of its README.md, of the project's and of the guides; refuses what the API does not take", () => {
    const found = [...errors.matchAll(/^(\w+\.c?ts)\((\d+),/gm)].map(([, name, line]) => `${name}:${line}`);
    assert.deepEqual(
      [...new Set(found)],
      WRONG.map((_, index) => `wrong.ts:${index + 3}`),
      errors,
    );
  });

  it("brings the program that assistants start, which asks for the address and a key", async () => {
    const program = join(project, "node_modules/.bin/mailkeel");
    for (const [settings, problem] of [
      [{}, /Usage: MAILKEEL_URL=/],
      [{ MAILKEEL_URL: "mail.example.com", MAILKEEL_API_KEY: "mk_live_x" }, /MAILKEEL_URL must be/],
      [
        { MAILKEEL_URL: "https://me:pw@mail.example.com", MAILKEEL_API_KEY: "mk_live_x" },
        /no user name and no password/,
      ],
      [{ MAILKEEL_URL: "https://me@mail.example.com", MAILKEEL_API_KEY: "mk_live_x" }, /no user name and no password/],
      [{ MAILKEEL_URL: "https://mail.example.com/api/v2", MAILKEEL_API_KEY: "mk_live_…" }, /MAILKEEL_API_KEY must be/],
    ] as const)
      await assert.rejects(run(program, ["mcp"], { env: { PATH: process.env["PATH"], ...settings } }), problem);
  });

  it("has the version of the newest entry in its changelog, which names the API's", () => {
    const { version } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
    const [, newest = ""] = readFileSync(join(home, "CHANGELOG.md"), "utf8").split("\n## ");
    assert.ok(newest.startsWith(`${version}\n`), newest);
    assert.ok(newest.includes(SERVICE_VERSION), newest);
  });

  it("runs the examples of its README.md, of the project's and of the guide Getting started", async () => {
    const [{ keys }, { keys: other }] = [await makeTeam(), await makeTeam()];
    const { api } = await stack();
    const calls = await readFile(join(project, "calls.ts"), "utf8");
    await writeFile(join(project, "calls.ts"), calls.replace("https://mail.example.com/api/v2", api));
    for (const [program, env, output] of [
      ["calls.ts", { MAILKEEL_API_KEY: other.live }, "Readers []\n"],
      ["example.ts", { MAILKEEL_API_KEY: keys.live, MAILKEEL_URL: api }, "ada@example.com CONFIRMED\n"],
      ["started.ts", { KEY: keys.test, API: api }, "grace@example.com CONFIRMED\n"],
    ] as const) {
      const options = { cwd: project, env: { PATH: process.env["PATH"], ...env } };
      assert.equal((await run(process.execPath, [program], options)).stdout, output);
    }
  });
});
