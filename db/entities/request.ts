import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, expiring, instant } from "./shared.ts";

/** The table is unlogged: a crash of Postgres empties it. */
export const RequestCountSchema = defineEntity({
  name: "request_counts",
  properties: {
    startsAt: expiring("2 hours", instant()).primary(),
    callerId: code().primary(),
    count: p.integer(),
  },
});
