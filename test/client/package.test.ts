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

describe("The client's package", () => {
  let project: string;
  /** Of the client in the project's `node_modules`. */
  let home: string;

  const typeCheck = async (name: string, code: string): Promise<string> => {
    await writeFile(join(project, name), code);
    const config = { compilerOptions: COMPILER_OPTIONS, files: [name] };
    await writeFile(join(project, "tsconfig.json"), JSON.stringify(config));
    return run(installed("tsc"), ["--project", project], { cwd: project }).then(
      () => "",
      ({ stdout }) => stdout,
    );
  };

  before(async () => {
    project = await mkdtemp(join(tmpdir(), "mailkeel-client-"));
    home = join(project, "node_modules/@mailkeel/client");
    await writeFile(join(project, "package.json"), JSON.stringify({ type: "module" }));
    cpSync(join(CLIENT, "package.json"), join(home, "package.json"), { recursive: true });
    await run(installed("tsc"), ["--project", CLIENT, "--outDir", join(home, "dist")]);
    symlinkSync(join(ROOT, "node_modules/@types"), join(project, "node_modules/@types"));
    symlinkSync(join(ROOT, "node_modules/undici-types"), join(project, "node_modules/undici-types"));
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

  it("runs the example of README.md, in JavaScript's own Node and with its types", async () => {
    const [example = ""] = snippets("README.md");
    assert.equal(await typeCheck("example.ts", example), "");
    const { keys } = await makeTeam();
    const env = { PATH: process.env["PATH"], MAILKEEL_API_KEY: keys.live, MAILKEEL_URL: (await stack()).api };
    const { stdout } = await run(process.execPath, ["example.ts"], { cwd: project, env });
    assert.equal(stdout, "ada@example.com CONFIRMED\n");
  });

  /** The names that the examples of a document take from their reader's program. */
  const DECLARED = [
    "declare const rawBody: Uint8Array, secret: string;",
    "declare const request: { headers: Record<string, string | undefined> };",
    "declare let since: string | undefined;",
    "declare function store(record: { id: string }): Promise<void>;",
  ];

  it("compiles the examples of its README.md", async () => {
    assert.equal(await typeCheck("readme.ts", [...DECLARED, ...snippets("client/README.md")].join("\n")), "");
  });

  it("compiles the examples of the guides", async () => {
    const imports =
      'import { InvalidRequestError, Mailkeel } from "@mailkeel/client";\ndeclare const mailkeel: Mailkeel;';
    const examples = ["pagination", "errors", "webhooks"].map((name) => snippets(`api/docs/guides/${name}.md`));
    for (const each of examples) assert.ok(each.length > 0);
    assert.equal(await typeCheck("guides.ts", [imports, ...DECLARED, ...examples.flat()].join("\n")), "");
  });

  it("runs the example of the guide Getting started, with its types", async () => {
    const [example = ""] = snippets("api/docs/guides/getting-started.md");
    assert.equal(await typeCheck("started.ts", example), "");
    const { keys } = await makeTeam();
    const env = { PATH: process.env["PATH"], KEY: keys.test, API: (await stack()).api };
    const { stdout } = await run(process.execPath, ["started.ts"], { cwd: project, env });
    assert.equal(stdout, "grace@example.com CONFIRMED\n");
  });

  it("refuses, by its types, what the API does not take", async () => {
    const wrong = [
      'mailkeel.lists.create({ title: "x" })',
      'mailkeel.newsletters.list({ status: "GONE" })',
      'mailkeel.lists.create({ name: "x" }, { dryRun: true }).then(({ data }) => data.id)',
      'mailkeel.newsletters.send("nl_1", { confirmation_token: "x" }, { dryRun: true })',
      'mailkeel.lists.retrieve("list_1", { idempotencyKey: "x" })',
      'mailkeel.lists.delete("list_1", { idempotencyKey: "x" })',
    ];
    const head = 'import { Mailkeel } from "@mailkeel/client";\ndeclare const mailkeel: Mailkeel;\n';
    const errors = await typeCheck("wrong.ts", `${head}${wrong.map((call) => `await ${call};`).join("\n")}\n`);
    const lines = new Set([...errors.matchAll(/wrong\.ts\((\d+),/g)].map(([, line]) => Number(line)));
    assert.deepEqual(
      [...lines].sort((a, b) => a - b),
      wrong.map((_, index) => index + 3),
      errors,
    );
  });
});
