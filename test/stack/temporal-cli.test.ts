import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { StackError } from "../../stack/processes.ts";
import { findTemporalCli } from "../../stack/temporal-cli.ts";
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
  afterEach(() => rmSync(folder, { recursive: true }));

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

  it("takes the one on the PATH first", async () => {
    put(cached, WORKS);
    const installed = put(`${bin}/temporal`, WORKS);
    assert.equal(await find(), installed);
  });

  it("takes the cached one when the one on the PATH does not run", async () => {
    put(`${bin}/temporal`, BROKEN);
    put(cached, WORKS);
    assert.equal(await find(), cached);
  });

  it("builds it with Go when there is no download, once, and keeps it", async () => {
    putGo();
    assert.equal(await find(), cached);
    assert.equal(await find(), cached);
    assert.equal(readFileSync(`${folder}/calls`, "utf8"), "install github.com/temporalio/cli/cmd/temporal@v1.5.1\n");
    assert.deepEqual(readdirSync(`${folder}/cache/mailkeel`), ["temporal-1.5.1"]);
  });

  it("lets two clones look for it at the same time", async () => {
    putGo();
    assert.deepEqual(await Promise.all([find(), find(), find()]), [cached, cached, cached]);
    assert.deepEqual(readdirSync(`${folder}/cache/mailkeel`), ["temporal-1.5.1"]);
  });

  it("names every way when none works, and leaves nothing behind", async () => {
    put(`${bin}/go`, BROKEN);
    await assert.rejects(find(), (error: Error) => {
      assert.ok(error instanceof StackError);
      for (const way of ["PATH", "TEMPORAL_CLI", cached, "temporal.download", "go install", "TEMPORAL_ADDRESS"]) {
        assert.ok(error.message.includes(way), way);
      }
      return true;
    });
    assert.deepEqual(readdirSync(`${folder}/cache/mailkeel`), ["temporal-1.5.1"]);
    assert.equal(existsSync(cached), false);
  });

  it("uses TEMPORAL_CLI and nothing else", async () => {
    put(`${bin}/temporal`, WORKS);
    const own = put(`${folder}/own`, WORKS);
    assert.equal(await find(own), own);
    await assert.rejects(find(put(`${folder}/broken`, BROKEN)), /TEMPORAL_CLI.*broken/);
  });
});
