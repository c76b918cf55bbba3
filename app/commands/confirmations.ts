import { countWithheld } from "../../domain/audience/confirmation-mails.ts";
import { type Commands, command, OF_TENANT } from "../command.ts";
import { table } from "../output.ts";
import { inTenantOf } from "../session.ts";

/** Confirmation mails of double opt-ins. */
export const commands: Commands = {
  "confirmation:withheld": command(
    "count the confirmation mails that are withheld or that the relay does not take, by list and reason",
    OF_TENANT,
    async (session, options) => {
      const withheld = await inTenantOf(session, options, countWithheld);
      return {
        text: table(withheld, "No confirmation mail is withheld", {
          LIST: ({ listId }) => listId,
          REASON: ({ reason }) => reason,
          MAILS: ({ mails }) => mails,
        }),
        data: { withheld: withheld.map(({ listId, reason, mails }) => ({ list_id: listId, reason, mails })) },
      };
    },
  ),
};
