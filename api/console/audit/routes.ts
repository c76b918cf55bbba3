import { z } from "zod";
import { AUDIT_DAYS, AUDIT_WAYS } from "../../../db/entities/audit.ts";
import { Member } from "../../../db/entities/team.ts";
import { readEntries } from "../../../domain/audit/read.ts";
import { ID_PREFIX } from "../../../domain/ids.ts";
import { csvLine, withoutFormula } from "../../../lib/csv.ts";
import { idParam, router } from "../../rest/route.ts";
import { consoleQuery, noInput } from "../procedure.ts";

const PAGE = 50;
const EXPORT_PAGE = 2_000;

const query = z
  .strictObject({
    member_id: idParam.optional(),
    way: z.enum(AUDIT_WAYS).optional(),
    /** The prefix of the id of the record that an act was about. */
    kind: z.enum(Object.values(ID_PREFIX)).optional(),
    days: z.int().min(1).max(AUDIT_DAYS).optional(),
    after: z.string().max(64).default(""),
  })
  .transform(({ member_id: memberId, ...filter }) => ({ memberId, ...filter }));
const filtered = z.strictObject({ query });

const nextOf = (entries: readonly { id: string }[], limit: number) => entries[limit - 1]?.id ?? null;

/** The audit log, which every member reads. */
export const auditRouter = router({
  page: consoleQuery({ role: "VIEWER", input: filtered }, async ({ ctx, input: { query } }) => {
    const entries = await readEntries(ctx.em, ctx.tenant, query, { after: query.after, limit: PAGE });
    return { entries, next_cursor: nextOf(entries, PAGE) };
  }),

  /** A page of CSV. */
  export: consoleQuery({ role: "VIEWER", isHeavy: true, input: filtered }, async ({ ctx, input: { query } }) => {
    const entries = await readEntries(ctx.em, ctx.tenant, query, { after: query.after, limit: EXPORT_PAGE });
    const names = ["at", "by", "way", "credential", "act", "object_id", "object_name", "count", "request_id"] as const;
    const lines = entries.map((entry) => csvLine(names.map((name) => withoutFormula(`${entry[name] ?? ""}`))));
    const csv = (query.after === "" ? csvLine(names) : "") + lines.join("");
    return { csv, rows: entries.length, after: nextOf(entries, EXPORT_PAGE) };
  }),

  /** Also those who have left. */
  members: consoleQuery({ role: "VIEWER", input: noInput }, async ({ ctx }) => {
    const found = await ctx.em.find(Member, { teamId: ctx.tenant.teamId }, { orderBy: { name: "asc", id: "asc" } });
    return found.map(({ id, name }) => ({ id, name }));
  }),
});
