import assert from "node:assert/strict";
import { accountCommands } from "../../app/commands/accounts.ts";
import { campaignCommands } from "../../app/commands/campaigns.ts";
import { confirmationCommands } from "../../app/commands/confirmations.ts";
import { deliveryCommands } from "../../app/commands/deliveries.ts";
import { domainCommands } from "../../app/commands/domains.ts";
import { newsletterCommands } from "../../app/commands/newsletters.ts";
import { planCommands } from "../../app/commands/plans.ts";
import { providerCommands } from "../../app/commands/providers.ts";
import { segmentCommands } from "../../app/commands/segments.ts";
import { sendCommands } from "../../app/commands/sends.ts";
import { webhookCommands } from "../../app/commands/webhooks.ts";
import { errorJson } from "../../app/output.ts";
import { inProcess, runApp } from "../support/command.ts";
import { makeTeam } from "../support/factories.ts";

/** Commands, their group, and an id that no record has. */
const MISSING: [add: Parameters<typeof inProcess>[0], id: string, ...args: string[]][] = [
  [accountCommands, "acct_none", "account:show", "acct_none"],
  [accountCommands, "acct_none", "account:resume", "--account", "acct_none"],
  [accountCommands, "acct_none", "account:suspend", "--account", "acct_none"],
  [campaignCommands, "cmp_none", "campaign:attach-segment", "--campaign", "cmp_none", "--segment", "seg_none"],
  [newsletterCommands, "cmp_none", "campaign:send-days", "--campaign", "cmp_none", "--days", "mon"],
  [newsletterCommands, "nl_none", "newsletter:tracking", "on", "--newsletter", "nl_none"],
  [newsletterCommands, "nl_none", "complaint:record", "--newsletter", "nl_none", "--email", "a@example.com"],
  [
    ...([newsletterCommands, "nl_none", "complaint:withdraw", "--newsletter", "nl_none"] as const),
    ...["--email", "a@example.com", "--reason", "x"],
  ],
  [newsletterCommands, "nl_none", "credits:show", "--send", "nl_none"],
  [deliveryCommands, "dlv_none", "delivery:where", "dlv_none"],
  [deliveryCommands, "dlv_none", "delivery:show", "dlv_none"],
  [deliveryCommands, "dlv_none", "delivery:retry", "dlv_none"],
  [deliveryCommands, "whk_none", "delivery:retry", "--webhook", "whk_none"],
  [deliveryCommands, "whk_none", "webhook:replay", "--since", "2020-01-01T00:00:00Z", "--webhook", "whk_none"],
  [deliveryCommands, "team_none", "webhook:replay", "--since", "2020-01-01T00:00:00Z", "--team", "team_none"],
  [deliveryCommands, "rpl_none", "webhook:replay", "--resume", "rpl_none"],
  [webhookCommands, "whk_none", "webhook:show", "whk_none"],
  [webhookCommands, "whk_none", "webhook:probe", "whk_none"],
  [webhookCommands, "whk_none", "webhook:give-up", "whk_none"],
  [webhookCommands, "whk_none", "webhook:rotate-secret", "whk_none"],
  [domainCommands, "dkim_none", "domain:activate", "--key", "dkim_none"],
  [domainCommands, "dkim_none", "domain:remove", "--key", "dkim_none"],
  [providerCommands, "rps_none", "provider:remove", "--source", "rps_none"],
  [segmentCommands, "seg_none", "segment:show", "seg_none"],
  [segmentCommands, "seg_none", "segment:count", "seg_none"],
  [segmentCommands, "seg_none", "segment:delete", "seg_none"],
  [sendCommands, "send_none", "send:recipients", "send_none"],
  [sendCommands, "send_none", "send:cancel", "send_none"],
  [sendCommands, "nl_none", "send:show", "nl_none"],
  [sendCommands, "cmp_none", "send:show", "cmp_none"],
  [sendCommands, "team_none", "send:list", "--team", "team_none"],
  [accountCommands, "team_none", "account:list", "--team", "team_none"],
  [domainCommands, "team_none", "domain:list", "--team", "team_none"],
  [confirmationCommands, "team_none", "confirmation:withheld", "--team", "team_none"],
  [planCommands, "team_none", "plan:set", "--team", "team_none", "--plan", "FREE"],
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
  /** The error that a command prints with --json. */
  async function errorOf(args: readonly string[]): Promise<{ code: string; message: string }> {
    const { code, stdout, stderr } = await runApp([...args, "--json"]);
    assert.deepEqual([code, stdout], [1, ""], `${args.join(" ")}: ${stdout}${stderr}`);
    return JSON.parse(stderr).error;
  }

  it("refuse an id that no record has with a sentence that names it", async () => {
    for (const [add, id, ...args] of MISSING) {
      const refusal = await inProcess(add, ...args).catch((error: unknown) => error);
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
