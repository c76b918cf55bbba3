import assert from "node:assert/strict";
import { errorJson } from "../../app/output.ts";
import { inProcess, runApp } from "../support/command.ts";
import { makeTeam } from "../support/factories.ts";

/** Commands, and an id that no record has. */
const MISSING: [id: string, ...args: string[]][] = [
  ["acct_none", "account:show", "acct_none"],
  ["acct_none", "account:resume", "--account", "acct_none"],
  ["acct_none", "account:suspend", "--account", "acct_none"],
  ["cmp_none", "campaign:attach-segment", "--campaign", "cmp_none", "--segment", "seg_none"],
  ["cmp_none", "campaign:send-days", "--campaign", "cmp_none", "--days", "mon"],
  ["nl_none", "newsletter:tracking", "on", "--newsletter", "nl_none"],
  ["nl_none", "complaint:record", "--newsletter", "nl_none", "--email", "a@example.com"],
  [
    ...(["nl_none", "complaint:withdraw", "--newsletter", "nl_none"] as const),
    ...["--email", "a@example.com", "--reason", "x"],
  ],
  ["nl_none", "credits:show", "--send", "nl_none"],
  ["dlv_none", "delivery:show", "dlv_none"],
  ["dlv_none", "delivery:retry", "dlv_none"],
  ["whk_none", "delivery:retry", "--webhook", "whk_none"],
  ["whk_none", "webhook:replay", "--since", "2020-01-01T00:00:00Z", "--webhook", "whk_none"],
  ["team_none", "webhook:replay", "--since", "2020-01-01T00:00:00Z", "--team", "team_none"],
  ["whk_none", "webhook:show", "whk_none"],
  ["whk_none", "webhook:probe", "whk_none"],
  ["whk_none", "webhook:give-up", "whk_none"],
  ["whk_none", "webhook:rotate-secret", "whk_none"],
  ["dkim_none", "domain:activate", "--key", "dkim_none"],
  ["dkim_none", "domain:remove", "--key", "dkim_none"],
  ["rps_none", "provider:remove", "--source", "rps_none"],
  ["seg_none", "segment:show", "seg_none"],
  ["seg_none", "segment:count", "seg_none"],
  ["seg_none", "segment:delete", "seg_none"],
  ["send_none", "send:recipients", "send_none"],
  ["send_none", "send:cancel", "send_none"],
  ["nl_none", "send:show", "nl_none"],
  ["cmp_none", "send:show", "cmp_none"],
  ["team_none", "send:list", "--team", "team_none"],
  ["team_none", "account:list", "--team", "team_none"],
  ["team_none", "domain:list", "--team", "team_none"],
  ["team_none", "confirmation:withheld", "--team", "team_none"],
  ["whk_none", "delivery:list", "--webhook", "whk_none"],
  ["team_none", "plan:set", "--team", "team_none", "--plan", "FREE"],
];

/** Commands with a file that is not there, or a time that does not fit. */
const UNFIT: [why: RegExp, ...args: string[]][] = [
  [/There is no file none\.csv\./, "import", "none.csv"],
  [/There is no file none\.json\./, "segment:create", "x", "--file", "none.json"],
  [/a point in time that has passed/, "webhook:replay", "--since", "2099-01-01T00:00:00Z"],
  [
    /--until is not after --since\./,
    ..."webhook:replay --since 2026-01-02T00:00:00Z --until 2026-01-01T00:00:00Z".split(" "),
  ],
];

describe("The app's commands", () => {
  async function errorOf(args: readonly string[]): Promise<{ code: string; message: string }> {
    const { code, stdout, stderr } = await runApp([...args, "--json"]);
    assert.deepEqual([code, stdout], [1, ""], `${args.join(" ")}: ${stdout}${stderr}`);
    return JSON.parse(stderr).error;
  }

  it("refuse an id that no record has with a sentence that names it", async () => {
    for (const [id, ...args] of MISSING) {
      const refusal = await inProcess(...args).catch((error: unknown) => error);
      const { code, message } = errorJson(refusal).error;
      assert.ok(["not_found", "validation_failed"].includes(code), `${args.join(" ")}: ${code}`);
      assert.match(message, new RegExp(`^[A-Z][^\n]*\\b${id}\\b[^\n]*\\.`), args.join(" "));
    }
  });

  it("refuse a file that is not there, and a time that does not fit, with a sentence", async () => {
    const { team } = await makeTeam();
    for (const [why, ...args] of UNFIT) assert.match((await errorOf([...args, "--team", team.id])).message, why);
  });
});
