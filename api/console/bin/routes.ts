import { z } from "zod";
import { listBin } from "../../../domain/bin/bin.ts";
import { restoreRecord } from "../../../domain/bin/restore.ts";
import { idParam, router } from "../../rest/route.ts";
import { consoleMutation, consoleQuery } from "../procedure.ts";

const PAGE = 50;

export const binRouter = router({
  page: consoleQuery(
    { role: "VIEWER", input: z.strictObject({ query: z.strictObject({ cursor: idParam.optional() }) }) },
    async ({ ctx, input: { query } }) => {
      const records = await listBin(ctx.em, ctx.tenant, PAGE, query.cursor);
      return { records, next_cursor: records[PAGE - 1]?.id ?? null };
    },
  ),

  /** All of them are deleted by an EDITOR, too. */
  restore: consoleMutation(
    { role: "EDITOR", isPatient: true, input: z.strictObject({ params: z.strictObject({ recordId: idParam }) }) },
    ({ ctx, input: { params } }) => restoreRecord(ctx.em, ctx.vault, ctx.tenant, params.recordId, ctx.env),
  ),
});
