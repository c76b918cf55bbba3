import { Readable } from "node:stream";
import { setInterval } from "node:timers";
import { sql } from "kysely";
import type { ImportState } from "../../db/entities/import.ts";
import type { Environment } from "../../db/entities/shared.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { transaction } from "../../db/transaction.ts";
import { csvLine, originalText, withoutFormula } from "../../lib/csv.ts";
import { toJson } from "../../lib/json-object.ts";
import { lookupAddress, MAX_ADDRESS_LENGTH } from "../address.ts";
import { readFieldTypes, suggestField } from "../audience/contact-fields.ts";
import type { FieldTypes } from "../audience/field-values.ts";
import { readList } from "../audience/lists.ts";
import { EditedMeanwhile } from "../edits.ts";
import { addressesIn } from "../erasure/mentions.ts";
import { ApiError, notFound, orNotFound } from "../errors.ts";
import { newId } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";
import { holdPlace, type LimitedRecords } from "../teams/record-limit.ts";
import { COLUMNS, columnKey, REFUSAL_COLUMN, statesConsent } from "./columns.ts";
import { type ColumnUse, findUses, ImportError, readStart } from "./file.ts";
import {
  findErased,
  type ImportPlace,
  importContacts,
  importSubscribers,
  importSuppressions,
  inStep,
  type ReadingOptions,
  wouldAsk,
} from "./import.ts";
import { type RefusedLine, textOf, withoutPerson } from "./refused.ts";
import { countMade, noteMade, type UndoReport, undoStep } from "./undo.ts";

/*
 * Imports of files that the console uploads, part by part, into Postgres. The rules of an import are those of `import.ts`. The
 * state of a row is the command: CHECKING, RUNNING and UNDOING are carried out by a workflow, which the reconciler starts where
 * it is missing.
 */

/** Of every part of a file but its last. As base64 it fits into a request. */
export const PART_BYTES = 1024 * 1024;
export const MAX_FILE_BYTES = 100 * 1024 * 1024;
/** Files of a tenant that are uploaded, and not imported yet. */
const MAX_WAITING = 5;
const WAITING_FILES: LimitedRecords = {
  table: "imports",
  name: "files that wait to be imported",
  condition: sql`state not in ('DONE', 'UNDOING', 'UNDONE', 'UNDO_FAILED')`,
  remedy: "import or delete one of them first",
};
export const MAX_COLUMNS = 1_000;
const MAX_REFUSED = 1_000;
/** Of the cells of refused lines, in characters. */
const MAX_REFUSED_TEXT = 1_000_000;
const SAMPLE_ROWS = 5;
/** By whose texts the type of a new field is suggested. */
const TYPED_ROWS = 200;
const PROGRESS_MS = 1_000;
/** Of the progress, in per cent. */
const READING_SHARE = 50;

/** Until the next part arrives; until it is imported; after its end. */
const UPLOADING_KEPT = "1 hour";
const FILE_KEPT = "1 day";
const REPORT_KEPT = "30 days";
/** After its end; a file that failed can be undone for as long as it is kept. */
const UNDOABLE = "7 days";

export const IMPORT_KINDS = ["subscribers", "contacts", "suppressions"] as const;
export type ImportKind = (typeof IMPORT_KINDS)[number];

export interface StoredOptions {
  kind: ImportKind;
  /** Of subscribers alone. */
  listId?: string | undefined;
  confirmed?: boolean | undefined;
  asks?: boolean | undefined;
  entersSequences?: boolean | undefined;
  /** One for each column. */
  uses: ColumnUse[];
}

export interface StoredOutcome {
  /** As `ImportReport` or `SuppressionReport`, in snake case. */
  report?: Record<string, unknown>;
  /** The first of them; the report counts all. */
  refused?: RefusedLine[];
  /** The header of the file, where lines are refused; null or empty for a cell that named an erased person. */
  header?: (string | null)[];
  /** Counts of the rows that were taken back so far. */
  undone?: UndoReport;
  /** Why the import ended, and how many people it has written. */
  failure?: string;
  /** While the import is under way. */
  place?: ImportPlace;
}

const inDays = (kept: string) => sql<string>`now() + ${kept}::interval`;

/** Reasons quote cells, and a column may be taken for another. */
const withoutAddresses = (text: string): string => text.replace(/[^\s"]*@[^\s"]*/g, "…@…");

/** jsonb takes no NUL, and no half of a character. */
const storable = (text: string): string => text.replaceAll("\0", "").toWellFormed();

/**
 * The first refused lines as a file to mend and bring again: the file's columns behind one with the reasons, which no import reads.
 * Lines of erased people, and those whose cells could not be read, are not in it. @throws {ApiError} `not_found`
 */
export async function refusedFile(em: EntityManager, tenant: Tenant, id: string): Promise<string> {
  const { refused = [], header = [] } = (await readImport(em, tenant, id)).outcome ?? {};
  // Of a file of refused lines that was brought again.
  const isKept = (_: unknown, at: number) => columnKey(header[at] ?? "") !== columnKey(REFUSAL_COLUMN);
  const lineOf = (first: string, cells: (string | null)[]) =>
    csvLine([first, ...cells.filter(isKept)].map((text) => withoutFormula(originalText(text ?? ""))));
  const lines = refused.flatMap(({ line, reason, cells }) => (cells ? [lineOf(`Line ${line}: ${reason}`, cells)] : []));
  return [lineOf(REFUSAL_COLUMN, header), ...lines].join("");
}

/** Begins an upload. @throws {ApiError} `resource_limit_reached` */
export async function beginUpload(
  em: EntityManager,
  tenant: Tenant,
  memberId: string,
  { name, size }: { name: string; size: number },
): Promise<string> {
  const db = kysely(em);
  await holdPlace(em, tenant, WAITING_FILES, MAX_WAITING);
  const id = newId("import");
  await db
    .insertInto("imports")
    .values({
      id,
      team_id: tenant.teamId,
      environment: tenant.environment,
      member_id: memberId,
      name,
      size,
      state: "UPLOADING",
      expires_at: inDays(UPLOADING_KEPT),
    })
    .execute();
  return id;
}

/**
 * Stores a part of a file, in the caller's transaction; again the same changes nothing. The last one to arrive ends the upload.
 * @throws {ApiError} `not_found`; `validation_failed` for another length than the part must have, or too many columns
 */
export async function storePart(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  n: number,
  bytes: Buffer,
): Promise<void> {
  const db = kysely(em);
  const upload = orNotFound(
    await db
      .selectFrom("imports")
      .select(["size", "state"])
      .where(ofTenant(tenant))
      .where("id", "=", id)
      .forUpdate()
      .executeTakeFirst(),
  );
  if (upload.state !== "UPLOADING") return;
  if (bytes.length === 0 || bytes.length !== Math.min(PART_BYTES, upload.size - n * PART_BYTES)) {
    throw new ApiError("validation_failed", "The part does not have the expected length; upload the file again.", {
      param: "bytes",
    });
  }
  if (n === 0) await refuseTooManyColumns(bytes);
  await db
    .insertInto("import_parts")
    .values({ import_id: id, n, bytes })
    .onConflict((conflict) => conflict.columns(["import_id", "n"]).doUpdateSet({ bytes }))
    .execute();
  const { parts } = await db
    .selectFrom("import_parts")
    .select(sql<number>`count(*)::int`.as("parts"))
    .where("import_id", "=", id)
    .executeTakeFirstOrThrow();
  const isWhole = parts === Math.ceil(upload.size / PART_BYTES);
  await db
    .updateTable("imports")
    .set({
      state: isWhole ? "UPLOADED" : "UPLOADING",
      expires_at: inDays(isWhole ? FILE_KEPT : UPLOADING_KEPT),
    })
    .where(ofTenant(tenant))
    .where("id", "=", id)
    .execute();
}

/** Before the whole file is uploaded, which may take minutes. A header that cannot be read is refused by the check. */
async function refuseTooManyColumns(start: Buffer): Promise<void> {
  const { names } = await readStart(Readable.from([start]), 0).catch((error) => {
    if (error instanceof ImportError) return { names: [] };
    throw error;
  });
  if (names.length <= MAX_COLUMNS) return;
  const most = MAX_COLUMNS.toLocaleString("en");
  const message = `The file has more than ${most} columns; leave out those that you do not need.`;
  throw new ApiError("validation_failed", message, { param: "file" });
}

/** @param onRead called with the bytes that were read so far */
function readFile(em: EntityManager, id: string, onRead: (bytes: number) => void = () => {}): Readable {
  return Readable.from(
    (async function* () {
      for (let n = 0, read = 0; ; n++) {
        const part = await kysely(em.fork())
          .selectFrom("import_parts")
          .select("bytes")
          .where("import_id", "=", id)
          .where("n", "=", n)
          .executeTakeFirst();
        if (!part) return;
        read += part.bytes.length;
        onRead(read);
        yield part.bytes;
      }
    })(),
    { objectMode: true, highWaterMark: 1 },
  );
}

export interface FoundColumns {
  /** `field`: what a new field for the column would be. */
  columns: { name: string; samples: string[]; use: ColumnUse; field: ReturnType<typeof suggestField> }[];
  /** Further uses of a column, besides `none`, `ignored` and `consent`. */
  uses: string[];
}

/** The columns of an uploaded file, and what each is by its name. @throws {ApiError} `not_found`, `validation_failed` */
export async function findColumns(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  kind: ImportKind,
): Promise<FoundColumns> {
  await readImport(em, tenant, id);
  const fields: FieldTypes = kind === "suppressions" ? new Map() : await readFieldTypes(em, tenant);
  const input = readFile(em, id);
  try {
    const { names, rows } = await readStart(input, TYPED_ROWS);
    const found = findUses(names, { fields, isBlockList: kind === "suppressions" });
    const columns = names.map((name, at) => {
      const texts = rows.map((row) => row[at] ?? "");
      const samples = texts.slice(0, SAMPLE_ROWS);
      const byName = found[at] ?? "none";
      // A member sees the choice, and read as a consent it mails fewer people.
      const use = byName === "none" && statesConsent(name, texts) ? "consent" : byName;
      return { name, samples, use, field: suggestField(name, texts) };
    });
    return { columns, uses: kind === "suppressions" ? ["email"] : [...COLUMNS, ...fields.keys()] };
  } catch (error) {
    if (error instanceof ImportError) throw new ApiError("validation_failed", error.message);
    throw error;
  } finally {
    input.destroy();
  }
}

export interface StoredImport {
  id: string;
  name: string;
  size: number;
  state: ImportState;
  options: StoredOptions | null;
  progress: number;
  /** The total is null while the file is read. */
  rows: { done: number; total: number | null };
  /** Counts of the rows that an undo may take back; null where no undo is possible. */
  undo: { until: string; people: number; subscriptions: number; contacts: number } | null;
  outcome: StoredOutcome | null;
  createdAt: string;
  updatedAt: string;
  expiresAt: string;
}

const importsOf = (em: EntityManager, tenant: Tenant) =>
  kysely(em)
    .selectFrom("imports")
    .where(ofTenant(tenant))
    .select(["id", "name", "size", "state", "progress"])
    .select(sql<StoredImport["rows"]>`json_build_object('done', rows_done, 'total', rows_total)`.as("rows"))
    .select([isoInstant(sql.ref("created_at")).as("createdAt"), isoInstant(sql.ref("expires_at")).as("expiresAt")])
    .select(isoInstant(sql.ref("updated_at")).as("updatedAt"));

/** @throws {ApiError} `not_found` */
export async function readImport(em: EntityManager, tenant: Tenant, id: string): Promise<StoredImport> {
  const row = await importsOf(em, tenant)
    .select([sql<StoredOptions | null>`options`.as("options"), sql<StoredOutcome | null>`outcome`.as("outcome")])
    .select(
      sql<
        StoredImport["undo"]
      >`case when ${IS_UNDOABLE} then json_build_object('until', ${isoInstant(sql.ref("undoable_until"))},
        'people', ${countMade("people")}, 'subscriptions', ${countMade("members")}, 'contacts', ${countMade("contacts")}) end`.as(
        "undo",
      ),
    )
    .where("id", "=", id)
    .executeTakeFirst();
  return orNotFound(row);
}

/** The newest first, each with the name of its list and of the member who began it. */
export const listImports = (em: EntityManager, tenant: Tenant, limit: number) =>
  importsOf(em, tenant)
    .select([
      sql<ImportKind | null>`options ->> 'kind'`.as("kind"),
      sql<string | null>`options ->> 'listId'`.as("list_id"),
      sql<
        string | null
      >`(select l.name from lists l where ${ofTenant(tenant, "l")} and l.id = options ->> 'listId')`.as("list_name"),
      sql<number | null>`(outcome -> 'report' ->> 'rows')::int`.as("reported_rows"),
      sql<string | null>`(select m.name from members m where m.team_id = ${tenant.teamId} and m.id = member_id)`.as(
        "by",
      ),
    ])
    .orderBy("id", "desc")
    .limit(limit)
    .execute();

interface Command {
  from: readonly ImportState[];
  to: "CHECKING" | "RUNNING" | "UNDOING";
  options?: StoredOptions;
  /** Options that are added. */
  chosen?: Partial<StoredOptions> | undefined;
  /** The `updatedAt` that the import must still have. */
  seen?: string | undefined;
}

/** Moves an import to a state that a workflow carries out; one that is there already stays. */
async function command(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  { from, to, options, chosen = {}, seen }: Command,
): Promise<void> {
  const isUndo = to === "UNDOING";
  const set = {
    ...{
      state: to,
      progress: 0,
      rows_done: 0,
      rows_total: isUndo
        ? sql<number>`${countMade("people")} + ${countMade("members")} + ${countMade("contacts")}`
        : null,
    },
    expires_at: inDays(isUndo ? REPORT_KEPT : FILE_KEPT),
    options: sql<string>`options || ${JSON.stringify(chosen)}::jsonb`,
  };
  const { numUpdatedRows } = await kysely(em)
    .updateTable("imports")
    .set(options ? { ...set, options: JSON.stringify(options), outcome: null } : set)
    .where(ofTenant(tenant))
    .where("id", "=", id)
    .where("state", "in", from)
    .where(isUndo ? IS_UNDOABLE : sql<boolean>`true`)
    .where(seen === undefined ? sql<boolean>`true` : sql<boolean>`updated_at = ${seen}::timestamptz`)
    .executeTakeFirstOrThrow();
  if (numUpdatedRows > 0n) return;
  const { state, updatedAt } = await readImport(em, tenant, id);
  if (from.includes(state) && !isUndo) throw new EditedMeanwhile({ by: null, at: updatedAt });
  if (state === to || state === REACHED[to]) return;
  throw new ApiError("resource_state_invalid", REFUSED[to]);
}

const UNDOABLE_STATES: ImportState[] = ["DONE", "FAILED", "UNDO_FAILED"];
const IS_UNDOABLE = sql<boolean>`(state = any(${UNDOABLE_STATES}::text[]) and undoable_until > now())`;
const REACHED = { CHECKING: "", RUNNING: "DONE", UNDOING: "UNDONE" };
const REFUSED = {
  CHECKING: "The file is being imported, or was imported already.",
  RUNNING: "Check the file first.",
  UNDOING: "There is nothing to undo: an import can be undone for seven days after its end.",
};

/** Orders a dry run. @throws {ApiError} `not_found`, also for the list; `resource_state_invalid` */
export async function orderCheck(em: EntityManager, tenant: Tenant, id: string, options: StoredOptions): Promise<void> {
  if (options.listId !== undefined) await readList(em, options.listId);
  await command(em, tenant, id, { from: ["UPLOADED", "CHECKED", "FAILED"], to: "CHECKING", options });
}

/**
 * Orders the import as it was checked. @param seen the `updatedAt` of the report that the member has seen
 * @param choice for the people who would be asked by mail to confirm that they come onto the list
 * @throws {ApiError} `not_found`, `resource_state_invalid`, also when it was checked again since; `validation_failed` without a
 * choice, when people would be asked by mail
 */
export async function orderImport(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  seen?: string,
  choice?: "ask" | "confirm",
): Promise<void> {
  const { state, outcome } = await readImport(em, tenant, id);
  const { asked = 0 } = (outcome?.report?.["list"] ?? {}) as { asked?: number };
  if (state === "CHECKED" && asked > 0 && choice === undefined) {
    const message = `${wouldAsk(asked)} Choose whether they are asked.`;
    throw new ApiError("validation_failed", message, { param: "unconfirmed" });
  }
  const chosen = choice && (choice === "ask" ? { asks: true } : { confirmed: true });
  await command(em, tenant, id, { from: ["CHECKED"], to: "RUNNING", seen, chosen });
}

/**
 * Orders that the rows which the import made are taken back, in the caller's transaction; a second order changes nothing. A file
 * that failed is deleted. @throws {ApiError} `not_found`, `resource_state_invalid`
 */
export async function orderUndo(em: EntityManager, tenant: Tenant, id: string): Promise<void> {
  await command(em, tenant, id, { from: UNDOABLE_STATES, to: "UNDOING" });
  await kysely(em).deleteFrom("import_parts").where("import_id", "=", id).execute();
}

/** Deletes the file and its report; people who were imported stay. @throws {ApiError} as `orderImport` */
export async function deleteImport(em: EntityManager, tenant: Tenant, id: string): Promise<void> {
  const { numDeletedRows } = await kysely(em)
    .deleteFrom("imports")
    .where(ofTenant(tenant))
    .where("id", "=", id)
    .where("state", "not in", ["RUNNING", "UNDOING"])
    .executeTakeFirstOrThrow();
  if (numDeletedRows > 0n) return;
  await readImport(em, tenant, id);
  throw new ApiError("resource_state_invalid", "The import, or its undo, is under way; it ends by itself.");
}

const UNDER_WAY = ["CHECKING", "RUNNING", "UNDOING"] as const;

/** Carried out by no workflow for a minute, or so it may be. */
export const readUnfinishedImports = (em: EntityManager) =>
  kysely(em)
    .selectFrom("imports")
    .select(["id", "team_id as teamId", sql<Environment>`environment`.as("environment")])
    .where("state", "in", UNDER_WAY)
    .where("updated_at", "<", sql<string>`now() - interval '1 minute'`)
    .execute();

/** @param state that the import must still have; nothing happens else */
async function setOutcome(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  { state, to, outcome }: { state: ImportState; to: ImportState; outcome: StoredOutcome },
): Promise<void> {
  const db = kysely(em);
  const hasFile = to === "CHECKED" || to === "FAILED";
  await db
    .updateTable("imports")
    .set({
      state: to,
      progress: 100,
      outcome: JSON.stringify(outcome),
      expires_at: inDays(hasFile ? FILE_KEPT : REPORT_KEPT),
      // A step is kept for little longer.
      undoable_until: sql<string>`(
        select min(made_at) + ${UNDOABLE}::interval from import_steps where import_id = ${id})`,
    })
    .where(ofTenant(tenant))
    .where("id", "=", id)
    .where("state", "=", state)
    .execute();
  if (to === "DONE") await db.deleteFrom("import_parts").where("import_id", "=", id).execute();
}

/** Ends an import that cannot go on. Those whom it has written stay, and the failure says how many they are. */
export const failImport = (em: EntityManager, tenant: Tenant, id: string, failure: string): Promise<void> =>
  transaction(em, async (tx) => {
    const found = await importsOf(tx, tenant)
      .select(sql<number>`coalesce((outcome #>> '{place,people}')::int, 0)`.as("written"))
      .select(sql<StoredOutcome | null>`outcome`.as("outcome"))
      .where("id", "=", id)
      .forUpdate()
      .executeTakeFirst();
    const { state, written = 0, outcome } = found ?? {};
    if (state === "UNDOING") {
      const failed = `${failure} What is not undone yet stays; undo the import again.`;
      return setOutcome(tx, tenant, id, { state, to: "UNDO_FAILED", outcome: { ...outcome, failure: failed } });
    }
    if (state !== "CHECKING" && state !== "RUNNING") return;
    const rest =
      written === 0
        ? "Nothing was imported."
        : `${written.toLocaleString("en")} people of the file were imported, and stay. Check the file again and import it: the others follow.`;
    const reasons = [withoutAddresses(failure), ...(state === "RUNNING" ? [rest] : [])];
    await setOutcome(tx, tenant, id, { state, to: "FAILED", outcome: { failure: reasons.join(" ") } });
  });

/** Another process has continued the import, or ended it. */
class SupersededError extends Error {}

/** In the transaction of a step, whose people are written once by it. @throws {SupersededError} */
async function keepPlace(em: EntityManager, tenant: Tenant, id: string, place: ImportPlace, before: ImportPlace) {
  const { numUpdatedRows } = await kysely(em)
    .updateTable("imports")
    .set({ outcome: sql<string>`outcome || ${JSON.stringify({ place })}::jsonb` })
    .where(ofTenant(tenant))
    .where("id", "=", id)
    .where("state", "=", "RUNNING")
    .where(sql<number>`coalesce((outcome #>> '{place,line}')::int, 0)`, "=", before.line)
    .executeTakeFirstOrThrow();
  if (numUpdatedRows === 0n) throw new SupersededError();
}

/** Takes the import back step by step; of two processes each takes other steps. */
async function carryOutUndo(em: EntityManager, tenant: Tenant, id: string, stopping: AbortSignal): Promise<void> {
  const step = async (tx: EntityManager) => {
    const found = await importsOf(tx, tenant)
      .select(sql<StoredOutcome | null>`outcome`.as("outcome"))
      .where("id", "=", id)
      .where("state", "=", "UNDOING")
      .forUpdate()
      .executeTakeFirst();
    if (!found) return false;
    const { failure: _, ...outcome } = found.outcome ?? {};
    const taken = await undoStep(tx, tenant, id, outcome.undone);
    if (!taken) {
      await setOutcome(tx, tenant, id, { state: "UNDOING", to: "UNDONE", outcome });
      return false;
    }
    const done = found.rows.done + taken.rows;
    await kysely(tx)
      .updateTable("imports")
      .set({
        outcome: JSON.stringify({ ...outcome, undone: taken.undone }),
        ...{ rows_done: done, progress: Math.floor((done / (found.rows.total ?? done)) * 100) },
      })
      .where(ofTenant(tenant))
      .where("id", "=", id)
      .execute();
    return true;
  };
  while (await inStep(em, step)) stopping.throwIfAborted();
}

/**
 * Checks, imports or undoes the file, as the import's state orders. A repetition continues behind the last step, and one that finds
 * the report does nothing.
 * @param stopping the work is given up, for another process to repeat @returns the state at the end
 */
export async function carryOutImport(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  id: string,
  stopping: AbortSignal,
): Promise<ImportState | "DELETED"> {
  const stateNow = async () =>
    (await importsOf(em, tenant).where("id", "=", id).executeTakeFirst())?.state ?? "DELETED";
  const state = await stateNow();
  if (state === "UNDOING") await carryOutUndo(em, tenant, id, stopping);
  if (state !== "CHECKING" && state !== "RUNNING") return stateNow();
  const { options, size, outcome: known } = await readImport(em, tenant, id);
  if (!options) throw notFound();

  let now = { progress: 0, rows: { done: 0, total: null } as StoredImport["rows"] };
  const input = readFile(em, id, (read) => {
    now = { ...now, progress: Math.floor((read / size) * READING_SHARE) };
  });
  const giveUp = () => void input.destroy(new Error("the worker stops"));
  stopping.addEventListener("abort", giveUp);
  let written = now;
  const timer = setInterval(() => {
    if (now === written) return;
    written = now;
    // The next one shows more.
    void setProgress(em, tenant, id, now).catch(() => {});
  }, PROGRESS_MS);

  const refused: RefusedLine[] = [];
  let left = MAX_REFUSED_TEXT;
  const reading: ReadingOptions = {
    uses: options.uses,
    isDryRun: state === "CHECKING",
    place: known?.place,
    onRefused: (line, reason, row) => {
      if (refused.length >= MAX_REFUSED) return;
      const address = storable(lookupAddress(row?.address ?? "").slice(0, MAX_ADDRESS_LENGTH)) || null;
      const cells = row?.cells?.map(storable);
      left -= cells?.join().length ?? 0;
      refused.push({ line, address, reason: withoutAddresses(reason), cells: left < 0 ? undefined : cells });
    },
    onProgress: ({ phase, done, total }) => {
      stopping.throwIfAborted();
      now = { ...now, rows: { done, total: total ?? null } };
      if (phase === "writing" && total)
        now.progress = READING_SHARE + Math.floor((done / total) * (100 - READING_SHARE));
    },
    onStep: async (tx, place, before, made) => {
      await keepPlace(tx, tenant, id, place, before);
      await noteMade(tx, id, options, made);
    },
  };
  try {
    const report = await importFile(em, vault, tenant, input, options, reading);
    const to = state === "CHECKING" ? "CHECKED" : "DONE";
    const { names: header } = refused.length > 0 ? await readStart(readFile(em, id), 0) : { names: [] };
    await transaction(em, async (tx) => {
      // An erasure waits for this transaction, and then searches what it has written.
      const erasedIn = (texts: string[]) => {
        const named = texts.flatMap((text, line) => addressesIn(text).map((email) => ({ line, email })));
        return findErased(tx, vault, tenant, named);
      };
      const withoutErased = async (names: string[]) => {
        const shown = names.map(storable);
        const erased = await erasedIn(shown);
        return shown.map((name, at) => (erased.has(at) ? "" : name));
      };
      const erased = await erasedIn(refused.map(textOf));
      const { notes } = report;
      notes.ignoredColumns = await withoutErased(notes.ignoredColumns);
      notes.statusColumns = await withoutErased(notes.statusColumns);
      const outcome = {
        report: toJson(report),
        refused: refused.map((one, at) => (erased.has(at) ? withoutPerson(one) : one)),
        header: await withoutErased(header),
      };
      await setOutcome(tx, tenant, id, { state, to, outcome });
    });
  } catch (error) {
    if (error instanceof ImportError || error instanceof ApiError) await failImport(em, tenant, id, error.message);
    else if (!(error instanceof SupersededError)) throw error;
  } finally {
    clearInterval(timer);
    stopping.removeEventListener("abort", giveUp);
    input.destroy();
  }
  return stateNow();
}

const importFile = (
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  input: Readable,
  { kind, listId, confirmed, asks, entersSequences }: StoredOptions,
  reading: ReadingOptions,
) => {
  if (kind === "suppressions") return importSuppressions(em, vault, tenant, input, reading);
  const options = { ...reading, entersSequences };
  return kind === "contacts"
    ? importContacts(em, vault, tenant, input, options)
    : importSubscribers(em, vault, tenant, input, { ...options, listId, confirmed, asks });
};

const setProgress = (
  em: EntityManager,
  tenant: Tenant,
  id: string,
  { progress, rows }: Pick<StoredImport, "progress" | "rows">,
) =>
  kysely(em.fork())
    .updateTable("imports")
    // A repetition reads the file once more.
    .set({ progress: sql<number>`greatest(progress, ${progress})`, rows_done: rows.done, rows_total: rows.total })
    .where(ofTenant(tenant))
    .where("id", "=", id)
    .where("state", "in", ["CHECKING", "RUNNING"])
    .execute();
