import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, expiring, holding, instant, tenancy, tenantFilters, text, timestamps } from "./shared.ts";

/** CHECKING is a dry run, RUNNING the import. FAILED can be checked again, as one that is CHECKED, and then imports the rest. */
export type ImportState = "UPLOADING" | "UPLOADED" | "CHECKING" | "CHECKED" | "RUNNING" | "DONE" | "FAILED";

/** A CSV file that a member has uploaded. */
export const ImportSchema = defineEntity({
  name: "imports",
  filters: tenantFilters,
  indexes: [{ properties: ["teamId", "environment", "id"] }, { properties: ["expiresAt"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    memberId: code(),
    /** Of the file. */
    name: text("team"),
    /** In bytes. */
    size: p.integer(),
    state: code().$type<ImportState>(),
    /** As `StoredOptions` of `domain/import/stored.ts`; null until the first check. */
    options: holding("team", p.json<unknown>()).nullable(),
    /** Of the dry run or the import that is under way, in per cent. */
    progress: p.integer().default(0),
    /** As `StoredOutcome` there: counts, the place of an import under way, and the first refused lines with their addresses. */
    outcome: holding("searched", p.json<unknown>()).nullable(),
    expiresAt: expiring("0 s", instant()),
    ...timestamps,
  },
});

/**
 * The bytes of a file, part by part. No erasure searches them: they are deleted with the import's end, a day after the upload
 * at the latest, and an import refuses the addresses that were erased meanwhile.
 */
export const ImportPartSchema = defineEntity({
  name: "import_parts",
  properties: {
    importId: code().primary(),
    n: p.integer().primary(),
    bytes: p.blob(),
  },
});
