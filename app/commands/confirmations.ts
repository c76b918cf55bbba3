import type { Command } from "commander";
import { countWithheld } from "../../domain/audience/confirmation-mails.ts";
import { withTenant } from "../options.ts";
import { inTenant, type Run, type TenantOptions, tenantOf } from "../session.ts";

/** Confirmation mails of double opt-ins. */
export function confirmationCommands(program: Command, run: Run): void {
  withTenant(program.command("confirmation:withheld"))
    .description("count the confirmation mails that are withheld until the next UTC day, by list and reason")
    .action((options: TenantOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        const withheld = await inTenant(session, tenant, (em) => countWithheld(em, tenant));
        const lines = withheld.map(({ listId, reason, mails }) => `${listId}  ${reason}  ${mails}`);
        return {
          text: lines.join("\n") || "No confirmation mail is withheld",
          data: { withheld: withheld.map(({ listId, reason, mails }) => ({ list_id: listId, reason, mails })) },
        };
      }),
    );
}
