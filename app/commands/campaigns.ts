import { attachAccounts, attachSegment, createDraft } from "../../domain/sends/drafts/drafts.ts";
import { type Commands, command, OF_TENANT, required } from "../command.ts";
import { recordName, words } from "../options.ts";
import { inOwnersTenant, inTenantOf } from "../session.ts";

const CAMPAIGN = { campaign: required("<id>", "the draft") };

/** Facts of campaigns that the API cannot set: segment and sending accounts. */
export const commands: Commands = {
  "campaign:create": command(
    "draft a campaign; its content is written through the API",
    {
      ...OF_TENANT,
      name: required("<name>", "its name, for the team alone", recordName),
    },
    async (session, { name, ...options }) => {
      const fields = { name, subject: null, fromName: null, body: null };
      const { id } = await inTenantOf(session, options, (em, tenant) =>
        createDraft(em, tenant, "campaign", fields, session.env.MAX_CAMPAIGNS),
      );
      return { text: `${id} is drafted`, data: { campaign: id } };
    },
  ),

  "campaign:attach-segment": command(
    "let a draft target the contacts of a segment, in place of the one before",
    { ...CAMPAIGN, segment: required("<id>", "the segment") },
    async (session, { campaign, segment }) => {
      await inOwnersTenant(session, "campaigns", campaign, (em) => attachSegment(em, campaign, segment));
      return { text: `${campaign} targets ${segment}`, data: { campaign, segment } };
    },
  ),

  "campaign:attach-accounts": command(
    "set the sending accounts that mail a draft, in place of those before",
    {
      ...CAMPAIGN,
      accounts: required("<ids>", "comma-separated ids of sending accounts; an empty text takes all away", words),
    },
    async (session, { campaign, accounts }) => {
      const { accountIds } = await inOwnersTenant(session, "campaigns", campaign, (em) =>
        attachAccounts(em, campaign, accounts),
      );
      const names = accountIds.join(", ");
      return {
        text: names === "" ? `${campaign} has no account` : `${campaign} is mailed by ${names}`,
        data: { campaign, accounts: accountIds },
      };
    },
  ),
};
