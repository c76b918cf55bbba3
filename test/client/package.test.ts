import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, globSync, readFileSync, symlinkSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { makeTeam } from "../support/factories.ts";
import { stack } from "../support/stack.ts";
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

  before(async () => {
    project = await mkdtemp(join(tmpdir(), "mailkeel-client-"));
    home = join(project, "node_modules/@mailkeel/client");
    await writeFile(join(project, "package.json"), JSON.stringify({ type: "module" }));
    cpSync(join(CLIENT, "package.json"), join(home, "package.json"), { recursive: true });
    await run(installed("tsc"), ["--project", CLIENT, "--outDir", join(home, "dist")]);
    symlinkSync(join(ROOT, "node_modules/@types"), join(project, "node_modules/@types"));
    symlinkSync(join(ROOT, "node_modules/undici-types"), join(project, "node_modules/undici-types"));
    const files = programs();
    for (const [name, code] of Object.entries(files)) await writeFile(join(project, name), code);
    const config = { compilerOptions: COMPILER_OPTIONS, files: Object.keys(files) };
    await writeFile(join(project, "tsconfig.json"), JSON.stringify(config));
    // One run for all programs: the compiler takes seconds to start.
    errors = await run(installed("tsc"), ["--project", project], { cwd: project }).then(
      () => "",
      ({ stdout }) => stdout,
    );
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

  it("runs the examples of README.md and of the guide Getting started", async () => {
    const { keys } = await makeTeam();
    const { api } = await stack();
    for (const [program, env, output] of [
      ["example.ts", { MAILKEEL_API_KEY: keys.live, MAILKEEL_URL: api }, "ada@example.com CONFIRMED\n"],
      ["started.ts", { KEY: keys.test, API: api }, "grace@example.com CONFIRMED\n"],
    ] as const) {
      const options = { cwd: project, env: { PATH: process.env["PATH"], ...env } };
      assert.equal((await run(process.execPath, [program], options)).stdout, output);
    }
  });
});
