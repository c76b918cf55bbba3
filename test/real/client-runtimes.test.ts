import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { signatureHeader, signerOf } from "../../domain/webhooks/request.ts";
import { installClient } from "../client/install.ts";
import { makeTeam } from "../support/factories.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { needs } from "../support/programs.ts";
import { SECRET } from "../support/signature-cases.ts";
import { stack } from "../support/stack.ts";

const run = promisify(execFile);
const BODY = '{"type":"unsubscribe.created","data":{"object":{"email":"zoë@example.com"}}}';

/** Uses each part of the client that stands on a runtime's own functions, and prints what came of it. */
const PROGRAM = `
const { API: baseUrl, KEY: apiKey, BODY: body, HEADER: signature, SECRET: secret, SILENT } = process.env;
const mailkeel = new Mailkeel({ apiKey, baseUrl });
const nameOf = (failing) => failing.then(() => "none", (error) => error.name);
async function main() {
  const { data: list } = await mailkeel.lists.create({ name: "Readers", optin: "SINGLE" });
  const emails = ["ada@example.com", "grace@example.com", "zoë@example.com"];
  for (const email of emails) {
    const { data } = await mailkeel.subscribers.create({ email });
    await mailkeel.lists.addSubscribers(list.id, { subscriber_ids: [data.id] });
  }
  const readers = [];
  for await (const { email } of mailkeel.lists.listSubscribers(list.id, { limit: 2 })) readers.push(email);
  let tries = 0;
  const busy = async (...request) =>
    tries++ < 2 ? new Response("busy", { status: 503, headers: { "retry-after": "1" } }) : fetch(...request);
  const { data: me } = await new Mailkeel({ apiKey, baseUrl, fetch: busy }).me.retrieve();
  const late = new Mailkeel({ apiKey, baseUrl: SILENT, timeoutMs: 100, maxRetries: 0 });
  const event = await Mailkeel.unwrapWebhook({ body: new TextEncoder().encode(body), signature, secret });
  return {
    readers: readers.sort(),
    tries,
    environment: me.environment,
    impact: (await mailkeel.lists.delete(list.id, { dryRun: true })).meta.impact.object,
    missing: await nameOf(mailkeel.lists.retrieve("list_none")),
    late: await nameOf(late.me.retrieve()),
    event: event.data.object.email,
    forged: await nameOf(verifyWebhook({ body: body + " ", signature, secret })),
  };
}
main().then((result) => console.log(JSON.stringify(result)));
`;
const NAMES = "{ Mailkeel, verifyWebhook }";
const MODULE = "program.mjs";
const COMMON = "program.cjs";

describe("The client's package", () => {
  let project: string;
  /** A server that takes requests and answers none. */
  const silent = createServer();
  let SILENT: string;
  before(async function () {
    this.timeout(0);
    SILENT = `http://127.0.0.1:${await listenLocally(silent)}`;
    project = await mkdtemp(join(tmpdir(), "mailkeel-runtimes-"));
    await installClient(project);
    await writeFile(join(project, MODULE), `import ${NAMES} from "@mailkeel/client";${PROGRAM}`);
    await writeFile(join(project, COMMON), `const ${NAMES} = require("@mailkeel/client");${PROGRAM}`);
  });
  after(async () => {
    silent.closeAllConnections();
    silent.close();
    await rm(project, { recursive: true, force: true });
  });

  async function resultOf(command: string, ...args: string[]) {
    const { keys } = await makeTeam();
    const HEADER = signatureHeader([signerOf(SECRET)], Math.floor(Date.now() / 1_000), BODY);
    const { PATH, HOME } = process.env;
    const env = { PATH, HOME, API: (await stack()).api, KEY: keys.test, BODY, HEADER, SECRET, SILENT };
    return JSON.parse((await run(command, args, { cwd: project, env })).stdout);
  }

  const RUNTIMES = {
    "Node 22": ["node22", []],
    Bun: ["bun", ["run"]],
    Deno: ["deno", ["run", "--allow-all", "--no-lock"]],
    "Node 24": [undefined, []],
  } as const;
  for (const [name, [program, args]] of Object.entries(RUNTIMES)) {
    describe(`in ${name}`, function () {
      this.timeout(120_000);
      const path = program === undefined ? () => process.execPath : needs(program);

      for (const file of [MODULE, COMMON])
        it(`calls the API, waits, is cut off and verifies a webhook, in ${file}`, async () => {
          assert.deepEqual(await resultOf(path(), ...args, file), {
            readers: ["ada@example.com", "grace@example.com", "zoë@example.com"],
            tries: 3,
            environment: "TEST",
            impact: "impact",
            missing: "NotFoundError",
            late: "TimeoutError",
            event: "zoë@example.com",
            forged: "WebhookSignatureError",
          });
        });
    });
  }
});
