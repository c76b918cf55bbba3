import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname } from "node:path";
import { mock } from "node:test";
import { StackError } from "../../stack/processes.ts";
import { download, findTemporalCli } from "../../stack/temporal-cli.ts";
import { findTemporalProblem } from "../../stack/temporal-ways.mjs";
import { listenLocally } from "../support/listen-locally.ts";
import { temporaryFolder } from "./support.ts";

const SHELL = "#!/bin/sh\n";
const WORKS = `${SHELL}echo temporal version 1.5.1`;
const BROKEN = `${SHELL}exit 1`;

describe("finding the Temporal CLI", () => {
  let folder: string;
  let bin: string;
  let cached: string;

  beforeEach(() => {
    folder = temporaryFolder();
    bin = `${folder}/bin`;
    cached = `${folder}/cache/mailkeel/temporal-1.5.1/temporal`;
    mkdirSync(bin);
  });
  afterEach(() => {
    mock.restoreAll();
    rmSync(folder, { recursive: true });
  });

  const put = (file: string, script: string) => {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, script);
    chmodSync(file, 0o755);
    return file;
  };
  const find = (given?: string) =>
    findTemporalCli({
      ...(given && { given }),
      // No download can get past a proxy that does not exist.
      env: { PATH: bin, XDG_CACHE_HOME: `${folder}/cache`, HTTPS_PROXY: "http://127.0.0.1:1" },
      report: () => {},
    });
  /** A `go` that takes a moment and counts how often it was called. */
  const putGo = () =>
    put(
      `${bin}/go`,
      `${SHELL}echo "$@" >> ${folder}/calls
PATH=/usr/bin:/bin; sleep 0.2
printf '#!/bin/sh\\necho temporal version built' > "$GOBIN/temporal"; chmod 755 "$GOBIN/temporal"`,
    );

  it("takes the one on the PATH first, and the cached one when that does not run", async () => {
    put(cached, WORKS);
    const installed = put(`${bin}/temporal`, WORKS);
    assert.equal(await find(), "temporal");
    put(installed, BROKEN);
    assert.equal(await find(), cached);
  });

  it("builds it with Go when there is no download, also for two clones at the same time, and keeps it", async () => {
    putGo();
    assert.deepEqual(await Promise.all([find(), find()]), [cached, cached]);
    const calls = readFileSync(`${folder}/calls`, "utf8");
    const call = /^install -C \S+\/stack\/temporal-cli -mod=readonly github\.com\/temporalio\/cli\/cmd\/temporal$/;
    for (const line of calls.trim().split("\n")) assert.match(line, call);
    assert.equal(await find(), cached);
    assert.equal(readFileSync(`${folder}/calls`, "utf8"), calls, "it is built no more");
    assert.deepEqual(readdirSync(`${folder}/cache/mailkeel`), ["temporal-1.5.1"]);
  });

  it("names every way when none works, and leaves nothing behind", async () => {
    put(`${bin}/go`, BROKEN);
    await assert.rejects(find(), (error: Error) => {
      assert.ok(error instanceof StackError);
      for (const way of ["PATH", "TEMPORAL_CLI", cached, "github.com", "go install", "TEMPORAL_ADDRESS"]) {
        assert.ok(error.message.includes(way), way);
      }
      return true;
    });
    assert.deepEqual(readdirSync(`${folder}/cache/mailkeel`), ["temporal-1.5.1"]);
    assert.equal(existsSync(cached), false);
  });

  it("is known to fail before packages are installed where nothing is there, and no answer comes", async () => {
    mock.method(globalThis, "fetch", () => Promise.reject(new TypeError("fetch failed")));
    const env = { PATH: bin, XDG_CACHE_HOME: `${folder}/cache` };
    assert.match(
      (await findTemporalProblem(env)) ?? "",
      /github\.com does not answer.*no Go to build it.*TEMPORAL_CLI/s,
    );
    for (const more of [
      { TEMPORAL_ADDRESS: "127.0.0.1:7233" },
      { TEMPORAL_CLI: "temporal" },
      { HTTPS_PROXY: "http://proxy" },
    ])
      assert.equal(await findTemporalProblem({ ...env, ...more }), undefined);
    const program = put(`${bin}/go`, WORKS);
    assert.equal(await findTemporalProblem(env), undefined);
    rmSync(program);
    put(cached, WORKS);
    assert.equal(await findTemporalProblem(env), undefined);
  });

  it("uses TEMPORAL_CLI and nothing else", async () => {
    put(`${bin}/temporal`, WORKS);
    const own = put(`${folder}/own`, WORKS);
    assert.equal(await find(own), own);
    await assert.rejects(find(put(`${folder}/broken`, BROKEN)), /TEMPORAL_CLI.*broken/);
  });

  describe("by a download", () => {
    let url: string;
    let archive: Buffer;
    let status: number;
    const server = createServer((_request, response) => void response.writeHead(status).end(archive));
    before(async () => {
      url = `http://127.0.0.1:${await listenLocally(server)}/temporal.tar.gz`;
    });
    after(() => void server.close());
    beforeEach(() => {
      status = 200;
      put(`${folder}/release/temporal`, WORKS);
      put(`${folder}/release/LICENSE`, "MIT");
      archive = execFileSync("tar", ["-czf", "-", "-C", `${folder}/release`, "LICENSE", "temporal"]);
    });

    const sha256 = () => createHash("sha256").update(archive).digest("hex");

    it("unpacks an archive that has the expected digest", async () => {
      const made = await download(bin, {}, { url, sha256: sha256() });
      assert.deepEqual([made, readdirSync(bin)], [`${bin}/temporal`, ["temporal"]]);
      assert.equal(readFileSync(`${bin}/temporal`, "utf8"), WORKS);
    });

    it("keeps no archive with another digest, and takes no error page for it", async () => {
      const get = (sha256: string) => download(bin, {}, { url, sha256 });
      const expected = sha256();
      status = 404;
      await assert.rejects(get(expected), /answered with 404/);
      status = 200;
      archive = Buffer.concat([archive, Buffer.from("\0")]);
      await assert.rejects(get(expected), /has the SHA-256 digest/);
      assert.deepEqual(readdirSync(bin), []);
    });
  });
});
