import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { promisify } from "node:util";
import { needs } from "../support/programs.ts";
import { makeSender } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

/** Of each run: its phases repeat until then. */
const MAX_SECONDS = 90;
/** Checks of the answers against the document, and of the requests that must be refused. */
const CHECKS = [
  "not_a_server_error",
  "status_code_conformance",
  "content_type_conformance",
  "response_headers_conformance",
  "response_schema_conformance",
  "negative_data_rejection",
  "unsupported_method",
  "ignored_auth",
];
/** A bulk call answers 200 and says of each bad item why it was refused. */
const CONFIG = `
[[operations]]
include-operation-id = "upsertContacts"
[operations.checks.negative_data_rejection]
expected-statuses = ["200", "4xx"]
`;

describe("Schemathesis", function () {
  this.timeout(4 * MAX_SECONDS * 1_000);
  const schemathesis = needs("schemathesis");

  /** Requests made from the document, good and bad, alone and along its links. */
  async function fuzz(key: string, ...choice: string[]): Promise<string> {
    const { api, origin } = await stack();
    const cwd = await mkdtemp(`${tmpdir()}/schemathesis-`);
    await writeFile(`${cwd}/schemathesis.toml`, CONFIG);
    const args = ["run", `${origin}/openapi.json`, "--url", api, "--header", `x-api-key: ${key}`, ...choice];
    const limits = [`--max-time=${MAX_SECONDS}`, "--max-examples=40", "--generation-database=none", "--no-color"];
    // The key comes with each request: another credential beside it would be a request that the document does not know.
    const security = "--generation-with-security-parameters=false";
    const { stdout } = await promisify(execFile)(
      schemathesis(),
      [...args, ...limits, security, `--checks=${CHECKS.join(",")}`, "--continue-on-failure", "--warnings=off"],
      { cwd, maxBuffer: 2 ** 26 },
    ).catch((failed: { stdout: string; stderr: string }) => assert.fail(`${failed.stdout}\n${failed.stderr}`));
    return stdout;
  }

  it("gets no 5xx and no answer outside of the document, with a key that holds every scope but one", async () => {
    const { keys } = await makeSender({ recipients: 3 });
    assert.match(await fuzz(keys.live, "--exclude-operation-id=deleteSuppression"), /No issues found/);
  });

  it("gets none for lifting suppressions, with a key that does not send", async () => {
    const { keys } = await makeSender({ recipients: 3 });
    assert.match(
      await fuzz(keys.cleanup, "--include-tag=Suppressions", "--phases=examples,coverage,fuzzing"),
      /No issues found/,
    );
  });
});
