import { z } from "zod";
import { ACCOUNT_PROVIDERS, ACCOUNT_STATUSES } from "../../db/entities/account.ts";
import { defineList } from "../rest/list.ts";
import { readRecord, recordOf } from "../rest/record.ts";
import { ok, route, router } from "../rest/route.ts";
import { accountParams, emailAccount } from "./schema.ts";

const accounts = defineList({
  table: "email_accounts",
  sorts: ["updated_at", "created_at"],
  filters: {
    status: z.enum(ACCOUNT_STATUSES).optional().describe("Only accounts with this status."),
    provider: z.enum(ACCOUNT_PROVIDERS).optional().describe("Only accounts of this provider."),
  },
});

const accountRecord = recordOf(emailAccount);

const page = route("GET /accounts", {
  scope: "accounts:read",
  operationId: "listAccounts",
  summary: "List the connected sending accounts",
  description: "Pages through the sending accounts of the team. No credential is shown.",
})
  .input(z.strictObject({ query: accounts.query }))
  .output(z.array(emailAccount))
  .query(({ ctx, input }) => accounts.pageRecords(ctx, input.query, { record: accountRecord }));

const retrieve = route("GET /accounts/{accountId}", {
  scope: "accounts:read",
  operationId: "retrieveAccount",
  summary: "Retrieve a sending account",
  description: "Answers one sending account. Only an `ACTIVE` one can send.",
})
  .input(z.strictObject({ params: accountParams }))
  .output(emailAccount)
  .query(async ({ ctx, input }) =>
    ok(await readRecord(ctx.em, "email_accounts", accountRecord, input.params.accountId)),
  );

export const accountsRouter = router({ page, retrieve });
