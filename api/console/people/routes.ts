import { z } from "zod";
import type { PersonRequestKind } from "../../../db/entities/person-request.ts";
import { transaction } from "../../../db/transaction.ts";
import { lookupAddress, MAX_ADDRESS_LENGTH } from "../../../domain/address.ts";
import { exportPage } from "../../../domain/erasure/export.ts";
import { orderRequest, readExport, readRequests } from "../../../domain/erasure/requests.ts";
import { ApiError } from "../../../domain/errors.ts";
import type { RequestContext } from "../../context.ts";
import { address } from "../../fields.ts";
import { idParam, router } from "../../rest/route.ts";
import { bodyOf, consoleMutation, consoleQuery } from "../procedure.ts";
import { startOrdered } from "../start.ts";

const email = z.string().max(MAX_ADDRESS_LENGTH);

/** The answer, which is remembered, and the audit log name the request alone. */
async function order(ctx: RequestContext, kind: PersonRequestKind, email: string) {
  const asked = { kind, email: lookupAddress(email), memberId: ctx.access.caller.memberId };
  const id = await transaction(ctx.em, (em) => orderRequest(em, ctx.vault, ctx.tenant, asked));
  await startOrdered(ctx, "person", id);
  return { id };
}

/** Exports and erasures of people. */
export const peopleRouter = router({
  requests: consoleQuery(
    { role: "VIEWER", input: z.strictObject({ query: z.strictObject({ email }) }) },
    ({ ctx, input: { query } }) => readRequests(ctx.em, ctx.vault, ctx.tenant, lookupAddress(query.email)),
  ),
  exportPerson: consoleMutation(
    { role: "ADMIN", isHeavy: true, ownCommit: true, input: bodyOf(z.strictObject({ email: address })) },
    ({ ctx, input: { body } }) => order(ctx, "EXPORT", body.email),
  ),
  erasePerson: consoleMutation(
    {
      role: "ADMIN",
      isHeavy: true,
      ownCommit: true,
      /** `typed`: the address once more, by hand. */
      input: bodyOf(z.strictObject({ email: address, typed: email })),
    },
    async ({ ctx, input: { body } }) => {
      if (lookupAddress(body.typed) === lookupAddress(body.email)) return order(ctx, "ERASURE", body.email);
      throw new ApiError("validation_failed", "Type the address of this person.", { param: "typed" });
    },
  ),
  /** An export, for programs or as a page to read. */
  file: consoleQuery(
    {
      role: "ADMIN",
      isHeavy: true,
      audit: "daily",
      input: z.strictObject({
        params: z.strictObject({ requestId: idParam }),
        query: z.strictObject({ as: z.enum(["json", "html"]) }),
      }),
    },
    async ({ ctx, input: { params, query } }) => {
      const json = await readExport(ctx.em, ctx.tenant, params.requestId);
      return { text: query.as === "json" ? json : exportPage(json) };
    },
  ),
});
