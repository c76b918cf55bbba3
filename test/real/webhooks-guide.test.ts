import { LANGUAGES, type Language, verifyEveryCase } from "../docs/webhook-languages.ts";
import { needs } from "../support/programs.ts";

/** Programs of Debian; the languages of the machine itself are tested with the other examples. */
const OF_DEBIAN = { PHP: "php", Ruby: "ruby", "C#": "mcs" } as const;

/** The clock stands at the time of the recorded deliveries. */
const ASK_STRIPE = [
  "import json, time",
  "import verify",
  'given = json.load(open("cases.json", encoding="utf-8"))',
  'time.time = lambda: given["now"]',
  "def ask(case):",
  "    try:",
  '        verify.verify_webhook(given["secret"], case["header"], case["body"].encode())',
  "        return True",
  "    except Exception:",
  "        return False",
  'print(json.dumps([ask(case) for case in given["cases"]]))',
].join("\n");

const stripeIn = (python: string): Language => ({
  fence: "python",
  version: [python, "--version"],
  snippet: "verify.py",
  files: { "ask.py": ASK_STRIPE },
  commands: [[python, "ask.py"]],
});

for (const [name, program] of Object.entries(OF_DEBIAN))
  describe(`The ${name} in the webhooks guide, by Debian's ${program}`, () => {
    needs(program);
    verifyEveryCase(name, () => LANGUAGES[name]);
  });

describe("Stripe's library for Python, as the webhooks guide uses it", () => {
  const python = needs("stripe");
  verifyEveryCase("Stripe's libraries", () => stripeIn(python()));
});
