import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, codes, expiring, holding, instant, tenancy, tenantFilters, text, timestamps } from "./shared.ts";

/**
 * CHECKING is a dry run, RUNNING the import. FAILED can be checked again, as one that is CHECKED, and then imports the rest.
 * UNDO_FAILED can be undone again, which takes back the rest.
 */
export type ImportState =
  | ("UPLOADING" | "UPLOADED" | "CHECKING" | "CHECKED" | "RUNNING" | "DONE" | "FAILED")
  | ("UNDOING" | "UNDONE" | "UNDO_FAILED");

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
    /** Of what is under way, in per cent. */
    progress: p.integer().default(0),
    /** Rows that were read, written or taken back; the total is null while the file is read. */
    rowsDone: p.integer().default(0),
    rowsTotal: p.integer().nullable(),
    /** As `StoredOutcome` there: counts, the place of an import under way, and the first refused lines with their addresses. */
    outcome: holding("searched", p.json<unknown>()).nullable(),
    expiresAt: expiring("0 s", instant()),
    /** Of an import that has made rows and ended. */
    undoableUntil: instant().nullable(),
    ...timestamps,
  },
});

/** The ids of the rows that a step of an import has made, until an undo has taken them back. */
export const ImportStepSchema = defineEntity({
  name: "import_steps",
  indexes: [{ properties: ["importId"] }, { properties: ["madeAt"] }],
  properties: {
    seq: p.bigint().primary().autoincrement(),
    importId: code(),
    kind: code(),
    listId: code().nullable(),
    /** Subscribers or contacts. */
    people: codes(),
    /** Subscribers whose subscriptions to the list were made. */
    members: codes(),
    /** Contacts with the custom fields of subscribers. */
    contacts: codes(),
    /** As `created_at` and `updated_at` of those rows. Kept for longer than an import can be undone. */
    madeAt: expiring("9 days", instant().defaultRaw("now()")),
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
