import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { globSync, readFileSync, symlinkSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { SERVICE_VERSION } from "../../client/generated.ts";
import { makeTeam } from "../support/factories.ts";
import { stack } from "../support/stack.ts";
import { runStep, runStepWell } from "../support/steps.ts";
import { installed } from "./write-client.ts";

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, "../..");
const CLIENT = join(ROOT, "client");

/** As a project would write them that uses the client. */
const COMPILER_OPTIONS = {
  strict: true,
  module: "nodenext",
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
  "declare const request: { headers: Record<string, string | undefined> };",
  "declare let since: string | undefined;",
  "declare function store(record: { id: string }): Promise<void>;",
];
const GIVEN = ["let since: string | undefined;", "const store = async ({ id }: { id: string }) => console.log(id);"];
const IMPORTS = 'import { InvalidRequestError, Mailkeel } from "@mailkeel/client";\ndeclare const mailkeel: Mailkeel;';

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
    "wrong.ts": [IMPORTS, ...WRONG.map((call) => `await ${call};`), ""].join("\n"),
  };
}

describe("The client's package", () => {
  let project: string;
  /** Of the client in the project's `node_modules`. */
  let home: string;
  /** The errors of the compiler, by program and line. */
  let errors: string;

  before(async function () {
    // Each step ends by itself, or says that it stands still.
    this.timeout(0);
    project = await mkdtemp(join(tmpdir(), "mailkeel-client-"));
    home = join(project, "node_modules/@mailkeel/client");
    await writeFile(join(project, "package.json"), JSON.stringify({ type: "module" }));
    // Packing compiles it.
    const pack = ["pack", CLIENT, "--json", "--pack-destination", project];
    const packed = await runStepWell("npm pack of the client", "npm", pack, ROOT);
    const [{ filename }] = JSON.parse(packed.slice(packed.indexOf("[")));
    const install = ["install", "--offline", "--ignore-scripts", `./${filename}`];
    await runStepWell("npm install of the packed client", "npm", install, project);
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

  it("depends on nothing but Node", () => {
    const manifest = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
    for (const kind of ["dependencies", "peerDependencies", "optionalDependencies"])
      assert.equal(manifest[kind], undefined);
    const files = globSync("dist/*.js", { cwd: home });
    assert.ok(files.length > 5);
    for (const file of files) {
      const imported = [...readFileSync(join(home, file), "utf8").matchAll(/from "([^"]+)"/g)].map(
        ([, name = ""]) => name,
      );
      assert.deepEqual(
        imported.filter((name) => !/^(node:|\.\/\w+\.js$)/.test(name)),
        [],
        file,
      );
    }
  });

  it("compiles the examples of its README.md, of the project's and of the guides; refuses what the API does not take", () => {
    const found = [...errors.matchAll(/^(\w+\.ts)\((\d+),/gm)].map(([, name, line]) => `${name}:${line}`);
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

  it("has the version of the service, and a changelog that names it and the API's", () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    assert.equal(JSON.parse(readFileSync(join(home, "package.json"), "utf8")).version, version);
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
