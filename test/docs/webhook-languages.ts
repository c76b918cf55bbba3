/** The examples of the webhooks guide that verify a signature, and programs that run each. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { NOW, SECRET, SIGNATURE_CASES } from "../support/signature-cases.ts";

const run = promisify(execFile);

export interface Language {
  /** The word after the fence; the heading before it is the language's name. */
  fence: string;
  /** Succeeds when the machine has the language. */
  version: [command: string, ...args: string[]];
  /** Files beside the snippet that call it: they read cases.json or cases.txt and print a JSON array of booleans. */
  files: Record<string, string>;
  /** Name of the snippet's file */
  snippet: string;
  /** Each must succeed; the last one prints the answers. */
  commands: [command: string, ...args: string[]][];
}

export const LANGUAGES: Record<string, Language> = {
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
    commands: [[process.execPath, "ask.ts"]],
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
    commands: [["python3", "ask.py"]],
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
    commands: [["go", "run", "./ask"]],
  },
  PHP: {
    fence: "php",
    version: ["php", "--version"],
    snippet: "verify.php",
    files: {
      "ask.php": `<?php
        require "verify.php";
        $given = json_decode(file_get_contents("cases.json"));
        $ask = fn($case) => verify_webhook($given->secret, $case->header, $case->body, $given->now);
        echo json_encode(array_map($ask, $given->cases));`,
    },
    commands: [["php", "ask.php"]],
  },
  Ruby: {
    fence: "ruby",
    version: ["ruby", "--version"],
    snippet: "verify.rb",
    files: {
      "ask.rb": [
        'require "json"',
        'require_relative "verify"',
        'given = JSON.parse(File.read("cases.json", encoding: "UTF-8"))',
        'ask = ->(c) { verify_webhook(given["secret"], c["header"], c["body"], given["now"]) }',
        'puts JSON.generate(given["cases"].map(&ask))',
      ].join("\n"),
    },
    commands: [["ruby", "ask.rb"]],
  },
  Java: {
    fence: "java",
    version: ["javac", "-version"],
    snippet: "Webhooks.java",
    files: {
      "Ask.java": `
        import static java.nio.charset.StandardCharsets.UTF_8;
        import java.nio.file.*;
        import java.util.*;
        class Ask {
          static byte[] bytes(String base64) { return Base64.getDecoder().decode(base64); }
          public static void main(String[] args) throws Exception {
            List<Boolean> answers = new ArrayList<>();
            for (String line : Files.readAllLines(Path.of("cases.txt"))) {
              String[] given = line.split(" ", -1);
              answers.add(Webhooks.verify(given[0], new String(bytes(given[2]), UTF_8), bytes(given[3]), Long.parseLong(given[1])));
            }
            System.out.println(answers);
          }
        }`,
    },
    commands: [
      ["javac", "Ask.java", "Webhooks.java"],
      ["java", "Ask"],
    ],
  },
  // Mono's compiler: that of .NET is in none of the registries that tests install from.
  "C#": {
    fence: "csharp",
    version: ["mcs", "--version"],
    snippet: "Webhooks.cs",
    files: {
      "Ask.cs": `
        using System;
        using System.IO;
        using System.Linq;
        using System.Text;
        static class Ask {
          static bool Answer(string[] given) => Webhooks.Verify(given[0],
            Encoding.UTF8.GetString(Convert.FromBase64String(given[2])), Convert.FromBase64String(given[3]), long.Parse(given[1]));
          static void Main() {
            var answers = File.ReadAllLines("cases.txt").Select(line => Answer(line.Split(' ')));
            Console.WriteLine("[" + string.Join(",", answers).ToLowerInvariant() + "]");
          }
        }`,
    },
    commands: [
      ["mcs", "-out:ask.exe", "Ask.cs", "Webhooks.cs"],
      ["mono", "ask.exe"],
    ],
  },
};

export const GUIDE = await readFile(`${import.meta.dirname}/../../api/docs/guides/webhooks.md`, "utf8");

export function snippetOf(heading: string, fence: string): string {
  const [, section = ""] = GUIDE.split(`\n### ${heading}\n`);
  const [, code] = new RegExp(`^\`\`\`${fence}\\n(.*?)^\`\`\`$`, "ms").exec(section) ?? [];
  return code ?? assert.fail(`no ${heading} in the guide`);
}

export const isHere = ({ version: [command, ...args] }: Language): Promise<boolean> =>
  run(command, args).then(
    () => true,
    () => false,
  );

const base64 = (text: string): string => Buffer.from(text).toString("base64");

async function ask(name: string, language: Language | undefined): Promise<boolean[]> {
  assert.ok(language, name);
  const { fence, snippet, files, commands } = language;
  const folder = await mkdtemp(join(tmpdir(), "snippet-"));
  try {
    const given = {
      "cases.json": JSON.stringify({ secret: SECRET, now: NOW, cases: SIGNATURE_CASES }),
      // For languages that read no JSON by themselves.
      "cases.txt": SIGNATURE_CASES.map(({ header, body }) =>
        [SECRET, NOW, base64(header), base64(body)].join(" "),
      ).join("\n"),
    };
    for (const [file, content] of Object.entries({ ...files, [snippet]: snippetOf(name, fence), ...given })) {
      await mkdir(dirname(join(folder, file)), { recursive: true });
      await writeFile(join(folder, file), content);
    }
    // Go must download nothing.
    const env = { ...process.env, GOPROXY: "off", GOTOOLCHAIN: "local", GOFLAGS: "", GOWORK: "off" };
    let answers = "";
    for (const [command, ...args] of commands) answers = (await run(command, args, { cwd: folder, env })).stdout;
    return JSON.parse(answers);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Tests of each delivery, for a `describe`. @param name the heading in the guide */
export function verifyEveryCase(name: string, language: () => Language | undefined): void {
  let answers: boolean[];
  before(async function () {
    // The first run of a compiler takes long on a busy machine.
    this.timeout(300_000);
    answers = await ask(name, language());
  });

  for (const [index, { what, expected }] of SIGNATURE_CASES.entries()) {
    it(`${expected ? "accepts" : "refuses"} ${what}`, () => assert.equal(answers[index], expected));
  }
}
