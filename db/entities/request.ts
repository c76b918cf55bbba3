import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, expiring, instant } from "./shared.ts";

/**
 * Requests of a caller, or failed authentications of an address, in a window. The table is unlogged: a crash of Postgres
 * empties it. A window has rows of its own, so that old versions of a count do not pile up while a long transaction keeps
 * Postgres from removing them.
 */
const RequestCountSchema = defineEntity({
  name: "RequestCount",
  tableName: "request_counts",
  properties: {
    /** The start of the window. */
    startsAt: expiring("2 minutes", instant()).primary(),
    /** An API key's id, or a name that `domain/access/request-limit.ts` makes. */
    callerId: code().primary(),
    count: p.integer(),
  },
});

export const requestEntities = [RequestCountSchema] as const;
