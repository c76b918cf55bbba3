import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, expiring, holding, instant, tenancy, tenantFilters, text, timestamps } from "./shared.ts";

export type PersonRequestKind = "EXPORT" | "ERASURE";
export type PersonRequestState = "RUNNING" | "DONE" | "FAILED";

/** The command of an ADMIN to export or to erase a person. An erasure deletes the exports of its person. */
export const PersonRequestSchema = defineEntity({
  name: "person_requests",
  filters: tenantFilters,
  indexes: [{ properties: ["teamId", "environment", "addressHash"] }, { properties: ["expiresAt"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    kind: code().$type<PersonRequestKind>(),
    /** As addresses are compared; null once the erasure has ended. */
    email: text("person").nullable(),
    /** See `hashAddress`: finds the requests of a person who is erased. */
    addressHash: code(),
    memberId: code(),
    state: code().$type<PersonRequestState>().default("RUNNING"),
    /** Of what is under way, in words; why it failed. */
    step: code().nullable(),
    /** As `ErasureOutcome` of `domain/erasure/requests.ts`. */
    outcome: holding("none", p.json<unknown>()).nullable(),
    /** The export, as JSON. */
    file: text("person").nullable(),
    expiresAt: expiring("0 s", instant()),
    ...timestamps,
  },
});
