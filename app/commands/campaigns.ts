import type { Command } from "commander";
import { attachAccounts, attachSegment } from "../../domain/sends/campaigns.ts";
import { createDraft } from "../../domain/sends/drafts.ts";
import { recordName, withTenant, words } from "../options.ts";
import { inTenant, ownerOf, type Run, type TenantOptions, tenantOf } from "../session.ts";

/** Commands for facts that the API cannot set: a campaign's segment and sending accounts, and drip sequences. */
export function campaignCommands(program: Command, run: Run): void {
  withTenant(program.command("campaign:create"))
    .description("draft a campaign; its content is written through the API")
    .requiredOption("--name <name>", "its name, for the team alone", recordName)
    .option("--drip", "a sequence of mails over time, which send-preview refuses")
    .action(({ name, drip = false, ...options }: TenantOptions & { name: string; drip?: boolean }) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        const fields = { name, subject: null, fromName: null, body: null, isDrip: drip };
        const draft = await inTenant(session, tenant, (em) =>
          createDraft(em, tenant, "campaign", fields, session.env.MAX_CAMPAIGNS),
        );
        return { text: `${draft.id} is drafted`, data: { campaign: draft.id, drip } };
      }),
    );

  interface SegmentOptions {
    campaign: string;
    segment: string;
  }
  program
    .command("campaign:attach-segment")
    .description("let a draft target the contacts of a segment, in place of the one before")
    .requiredOption("--campaign <id>", "the draft")
    .requiredOption("--segment <id>", "the segment")
    .action(({ campaign, segment }: SegmentOptions) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "campaigns", campaign);
        await inTenant(session, tenant, (em) => attachSegment(em, campaign, segment));
        return { text: `${campaign} targets ${segment}`, data: { campaign, segment } };
      }),
    );

  program
    .command("campaign:attach-accounts")
    .description("set the sending accounts that mail a draft, in place of those before")
    .requiredOption("--campaign <id>", "the draft")
    .requiredOption("--accounts <ids>", "comma-separated ids of sending accounts; an empty text takes all away", words)
    .action(({ campaign, accounts }: { campaign: string; accounts: string[] }) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "campaigns", campaign);
        const { accountIds } = await inTenant(session, tenant, (em) => attachAccounts(em, campaign, accounts));
        return {
          text:
            accountIds.length > 0 ? `${campaign} is mailed by ${accountIds.join(", ")}` : `${campaign} has no account`,
          data: { campaign, accounts: accountIds },
        };
      }),
    );
}
