import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, expiring, instant } from "./shared.ts";

/** The table is unlogged: a crash of Postgres empties it. */
const RequestCountSchema = defineEntity({
  name: "RequestCount",
  tableName: "request_counts",
  properties: {
    startsAt: expiring("2 minutes", instant()).primary(),
    /** An API key's id, or a name that `domain/access/request-limit.ts` makes. */
    callerId: code().primary(),
    count: p.integer(),
  },
});

export const requestEntities = [RequestCountSchema] as const;
