import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, expiring, instant, tenancy, tenantFilters } from "./shared.ts";

/** How an act came: by a member in the console, a key, an OAuth client for a member, or a command of the operator. */
export const AUDIT_WAYS = ["CONSOLE", "API_KEY", "OAUTH_CLIENT", "COMMAND"] as const;
export type AuditWay = (typeof AUDIT_WAYS)[number];

/** How long entries are kept. */
export const AUDIT_DAYS = 400;

/** An act that changed something of a team. It holds ids and codes alone: names are read with the records. */
export const AuditEntrySchema = defineEntity({
  name: "audit_entries",
  filters: tenantFilters,
  indexes: [{ properties: ["teamId", "environment", "createdAt", "id"] }, { properties: ["createdAt"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    way: code().$type<AuditWay>(),
    /** The member who acted, or for whom an OAuth client acted. */
    memberId: code().nullable(),
    /** The id of the API key, or `oauth_<client_id>`. */
    credential: code().nullable(),
    /** A stable word: the operation's id, the place of a procedure of the console, or the command's name. */
    act: code(),
    objectId: code().nullable(),
    /** Records that it touched. */
    count: p.integer().nullable(),
    requestId: code().nullable(),
    createdAt: expiring(`${AUDIT_DAYS} days`, instant()).defaultRaw("now()"),
  },
});
