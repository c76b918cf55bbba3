import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { realpath } from "node:fs/promises";
import { tmpdir } from "node:os";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { parse } from "yaml";
import { isSetting } from "../../config/env.ts";
import { claimPort } from "../../config/ports.ts";
import { api } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { unique } from "../support/factories.ts";
import { workerSettings } from "../support/processes.ts";
import { needs } from "../support/programs.ts";
import { ledgerStates, makeSender, sendAndWait } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const run = promisify(execFile);
const ROOT = `${import.meta.dirname}/../..`;
const BUILD_MINUTES = 15;
const RECIPIENTS = 20;
/** Of the image, which has no package for development. Debian and Node are about half of it. */
const MOST_MB = 700;
/** Podman would raise these limits of root, which a container may not do. */
const LIMITS = ["--ulimit", "nofile=10240:10240", "--ulimit", "nproc=10240:10240"];
const CONFINED = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"];

interface Service {
  command?: string[];
  healthcheck?: { test: string[] };
}
const compose: { services: Record<string, Service & { build?: string }> } = parse(
  readFileSync(`${ROOT}/docker-compose.temporal.yml`, "utf8"),
  { merge: true },
);
/** The API and the pools of workers. */
const processes = Object.entries(compose.services).filter(
  (entry): entry is [string, Required<Service>] => entry[1].build !== undefined && entry[1].healthcheck !== undefined,
);

/** The image of the Dockerfile. Its base is not pulled but made: of Debian, and the Node and npm of this machine. */
class Image {
  readonly #folder = mkdtempSync("/var/tmp/mailkeel-image-");
  readonly #program: string;

  constructor(program: string) {
    this.#program = program;
  }

  async podman(...args: string[]): Promise<string> {
    const folders = ["--root", `${this.#folder}/storage`, "--runroot", `${this.#folder}/run`];
    // crun refuses hosts with both versions of cgroups. Podman's other driver keeps a whole copy for each layer, 22 GB in all.
    const own = [...folders, "--runtime", "runc", "--storage-driver", "overlay"];
    const { stdout } = await run(this.#program, [...own, ...args], { maxBuffer: 2 ** 26 });
    return stdout.trim();
  }

  async #npm(setting: string): Promise<string> {
    return (await run("npm", ["config", "get", setting], { cwd: tmpdir() })).stdout.trim();
  }

  async #makeBase(name: string, suite: string): Promise<void> {
    const { stdout: npm } = await run("sh", ["-c", "command -v npm"]);
    const cafile = await this.#npm("cafile");
    writeFileSync(
      `${this.#folder}/npmrc`,
      `registry=${await this.#npm("registry")}\n${existsSync(cafile) ? "cafile=/usr/local/etc/cafile\n" : ""}`,
    );
    const hooks = [
      'mkdir -p "$1/usr/local/lib/node_modules"',
      `copy-in ${await realpath(process.execPath)} /usr/local/bin`,
      `copy-in ${resolve(await realpath(npm.trim()), "../..")} /usr/local/lib/node_modules`,
      'ln -s ../lib/node_modules/npm/bin/npm-cli.js "$1/usr/local/bin/npm"',
      `upload ${this.#folder}/npmrc /usr/local/etc/npmrc`,
      ...(existsSync(cafile) ? [`upload ${cafile} /usr/local/etc/cafile`] : []),
      'chroot "$1" useradd --uid 1000 --create-home node',
    ];
    const tar = `${this.#folder}/base.tar`;
    const options = ["--variant=minbase", ...hooks.map((hook) => `--customize-hook=${hook}`)];
    // Without root, mmdebstrap works as users of its own, which may not enter the temporary folder of the tests.
    const env = { ...process.env, TMPDIR: "/var/tmp" };
    await run("mmdebstrap", [...options, suite, tar], { maxBuffer: 2 ** 26, env });
    await this.podman("import", "--quiet", tar, `docker.io/library/${name}`);
    rmSync(tar);
  }

  async build(): Promise<void> {
    const dockerfile = readFileSync(`${ROOT}/Dockerfile`, "utf8");
    const [, name = "", suite = ""] = /^FROM (node:[\d.]+-(\w+)-slim) AS base$/m.exec(dockerfile) ?? [];
    await this.#makeBase(name, suite);
    const cache = `${await this.#npm("cache")}:/root/.npm`;
    const options = ["--isolation", "chroot", "--network", "host", "--pull-never", "--volume", cache];
    await this.podman("build", "--quiet", ...options, "--tag", "mailkeel", ROOT);
  }

  /** Starts a process on the network of this machine, and waits for the end of `prepare`. */
  async start(name: string, command: readonly string[], settings: Record<string, string>): Promise<void> {
    const file = `${this.#folder}/${name}.env`;
    writeFileSync(
      file,
      Object.entries(settings)
        .map((entry) => `${entry.join("=")}\n`)
        .join(""),
      { mode: 0o600 },
    );
    const options = ["--network", "host", "--env-file", file, ...LIMITS, ...CONFINED];
    const lifetime = name === "prepare" ? "--rm" : "--detach";
    await this.podman("run", lifetime, "--name", name, ...options, "mailkeel", ...command);
  }

  async delete(): Promise<void> {
    await this.podman("rm", "--all", "--force");
    // Without root, Podman alone may delete the files of an image that belong to other users.
    await this.podman("rmi", "--all", "--force");
    // Podman leaves its storage mounted on itself.
    await run("umount", [`${this.#folder}/storage/overlay`]).catch(() => undefined);
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

describe("The image", function () {
  this.timeout(BUILD_MINUTES * 60_000);
  const podman = needs("podman");
  let image: Image;

  before(async () => {
    image = new Image(podman());
    await image.build();
  });
  after(() => image?.delete());

  it(`has at most ${MOST_MB} MB`, async () => {
    const megabytes = Number(await image.podman("image", "inspect", "--format", "{{.Size}}", "mailkeel")) / 1e6;
    console.log(`    ${Math.round(megabytes)} MB`);
    assert.ok(megabytes <= MOST_MB, `${megabytes} MB`);
  });

  it("prepares a namespace, runs API and workers that send a newsletter, and stops each within its grace time", async () => {
    const { env } = await stack();
    const given = Object.entries(await workerSettings()).filter(([name]) => isSetting(name));
    const settings = Object.fromEntries(given) as Record<string, string>;
    settings["TEMPORAL_NAMESPACE"] = unique("image");
    settings["LOG_LEVEL"] = "info";
    await image.start("prepare", compose.services["prepare"]?.command ?? [], {
      ...settings,
      MIGRATION_DATABASE_URL: env.MIGRATION_DATABASE_URL ?? "",
    });

    const PORT = String(await claimPort());
    for (const [name, { command = [], healthcheck }] of processes) {
      const HEALTH_PORT = String(await claimPort());
      await image.start(name, command, { ...settings, PORT, HEALTH_PORT, INTAKE_SMTP_PORT: "0" });
      const [, ...check] = healthcheck.test.map((part) =>
        part.replace(":3000/", `:${PORT}/`).replace(":9090/", `:${HEALTH_PORT}/`),
      );
      const isReady = () => image.podman("exec", name, ...check).then(() => true);
      await eventually(isReady, { what: `${name} to be ready` }).catch(async (cause) => {
        throw new Error(await image.podman("logs", name), { cause });
      });
    }
    assert.match(await image.podman("exec", "api", "node", "app/main.mjs", "team:list"), /team_/);
    const page = await fetch(`http://127.0.0.1:${PORT}/console/`);
    assert.match(await page.text(), /<script [^>]*src="\/console\//);

    const sender = await makeSender({ recipients: RECIPIENTS });
    const client = api(sender.keys.live, `http://127.0.0.1:${PORT}/api/v2`);
    const { status } = await sendAndWait({ ...sender, client });
    assert.equal(status, "SENT");
    assert.deepEqual(await ledgerStates(sender), { SENT: RECIPIENTS });

    // A process that is killed after that time ends with 137.
    const names = processes.map(([name]) => name);
    await image.podman("stop", "--time", "30", ...names);
    const codes = await image.podman("inspect", "--format", "{{.Name}} {{.State.ExitCode}}", ...names);
    assert.deepEqual(
      codes.split("\n"),
      names.map((name) => `${name} 0`),
    );
  });
});
