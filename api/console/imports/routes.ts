import { z } from "zod";
import { SUBSCRIPTION_STATUSES } from "../../../db/entities/audience.ts";
import type { EntityManager, Tenant } from "../../../db/orm.ts";
import { transaction } from "../../../db/transaction.ts";
import { MAX_ADDRESS_LENGTH } from "../../../domain/address.ts";
import { PERSON_STATUSES } from "../../../domain/audience/listed-people.ts";
import { ApiError } from "../../../domain/errors.ts";
import { exportPage, exportPeople } from "../../../domain/import/export.ts";
import {
  beginUpload,
  deleteImport,
  findColumns,
  IMPORT_KINDS,
  listImports,
  MAX_COLUMNS,
  MAX_FILE_BYTES,
  orderCheck,
  orderImport,
  orderUndo,
  PART_BYTES,
  readImport,
  refusedFile,
  type StoredImport,
  storePart,
} from "../../../domain/import/stored.ts";
import { idParam, router } from "../../rest/route.ts";
import { bodyOf, consoleMutation, consoleQuery } from "../procedure.ts";
import { startOrdered } from "../start.ts";

const LISTED = 100;

const importParams = z.strictObject({ importId: idParam });
const ofImport = z.strictObject({ params: importParams });
const kind = z.enum(IMPORT_KINDS);

const present = ({ options, outcome, createdAt, updatedAt, expiresAt, ...shown }: StoredImport) => ({
  ...shown,
  kind: options?.kind ?? null,
  list_id: options?.listId ?? null,
  confirmed: options?.confirmed ?? false,
  enters_sequences: options?.entersSequences ?? false,
  uses: options?.uses ?? null,
  report: (outcome?.report ?? null) as ImportFigures | null,
  refused: (outcome?.refused ?? []).map(({ cells: _, ...line }) => line),
  undone: outcome?.undone ?? null,
  failure: outcome?.failure ?? null,
  created_at: createdAt,
  updated_at: updatedAt,
  expires_at: expiresAt,
});

/** Those that the kind of the import has. */
export interface ImportFigures {
  rows: number;
  refused: number;
  duplicates?: number;
  created?: number;
  updated?: number;
  unchanged?: number;
  suppressed: number;
  already_suppressed?: number;
  list?: {
    added: number;
    asked: number;
    confirmed: number;
    already_subscribed: number;
    newly_opted_out: number;
    opted_out: number;
  };
  fields?: { contacts_created: number; contacts_updated: number; fields_not_stored: number };
  notes: { ignored_columns: string[]; status_columns: string[]; windows_1252_lines: number };
}

const show = async (em: EntityManager, tenant: Tenant, importId: string) =>
  present(await readImport(em, tenant, importId));

export const importsRouter = router({
  list: consoleQuery({ role: "VIEWER", input: z.strictObject({}) }, async ({ ctx }) =>
    (await listImports(ctx.em, ctx.tenant, LISTED)).map(({ createdAt, updatedAt: _at, expiresAt: _, ...shown }) => ({
      ...shown,
      created_at: createdAt,
    })),
  ),
  retrieve: consoleQuery({ role: "EDITOR", input: ofImport }, ({ ctx, input }) =>
    show(ctx.em, ctx.tenant, input.params.importId),
  ),
  /** Begins an upload. @returns where the parts go, and their length in bytes */
  begin: consoleMutation(
    { role: "EDITOR", input: bodyOf(z.strictObject({ name: z.string().min(1).max(255), size: z.int().min(1) })) },
    async ({ ctx, input: { body } }) => {
      if (body.size > MAX_FILE_BYTES) {
        const most = `${MAX_FILE_BYTES / 1024 / 1024} MiB`;
        throw new ApiError("payload_too_large", `A file may have ${most}; divide it into several.`, { param: "file" });
      }
      const id = await beginUpload(ctx.em, ctx.tenant, ctx.access.caller.memberId, body);
      return { id, part_bytes: PART_BYTES };
    },
  ),
  part: consoleMutation(
    {
      role: "EDITOR",
      audit: "none",
      input: z.strictObject({
        params: importParams,
        body: z.strictObject({
          n: z
            .int()
            .min(0)
            .max(MAX_FILE_BYTES / PART_BYTES),
          base64: z.string(),
        }),
      }),
    },
    async ({ ctx, input: { params, body } }) => {
      await storePart(ctx.em, ctx.tenant, params.importId, body.n, Buffer.from(body.base64, "base64"));
      return {};
    },
  ),
  columns: consoleQuery(
    { role: "EDITOR", input: z.strictObject({ params: importParams, query: z.strictObject({ kind }) }) },
    ({ ctx, input }) => findColumns(ctx.em, ctx.tenant, input.params.importId, input.query.kind),
  ),
  /** Orders a dry run; the import then has its report. */
  check: consoleMutation(
    {
      role: "EDITOR",
      audit: "none",
      ownCommit: true,
      input: z.strictObject({
        params: importParams,
        body: z.strictObject({
          kind,
          list_id: idParam.optional(),
          confirmed: z.boolean().default(false),
          enters_sequences: z.boolean().default(false),
          uses: z.array(z.string().max(100)).max(MAX_COLUMNS),
        }),
      }),
    },
    async ({ ctx, input: { params, body } }) => {
      const { list_id: listId, enters_sequences: entersSequences, ...options } = body;
      const ofKind = body.kind === "subscribers" ? { ...options, listId } : { ...options, confirmed: false };
      await orderCheck(ctx.em, ctx.tenant, params.importId, { ...ofKind, entersSequences });
      await startOrdered(ctx, "import", params.importId);
      return show(ctx.em, ctx.tenant, params.importId);
    },
  ),
  run: consoleMutation(
    {
      role: "EDITOR",
      ownCommit: true,
      input: z.strictObject({
        params: importParams,
        /** Whether people who would be asked by mail to confirm are asked; required where the report counts some. */
        body: z.strictObject({ unconfirmed: z.enum(["ask", "confirm"]).optional() }).default({}),
      }),
    },
    async ({ ctx, input: { params, body } }) => {
      await orderImport(ctx.em, ctx.tenant, params.importId, ctx.edit?.began?.updatedAt, body.unconfirmed);
      await startOrdered(ctx, "import", params.importId);
      return show(ctx.em, ctx.tenant, params.importId);
    },
  ),
  /** Orders that the rows which the import made are taken back. */
  undo: consoleMutation(
    { role: "EDITOR", ownCommit: true, audit: "daily", input: ofImport },
    async ({ ctx, input: { params } }) => {
      await transaction(ctx.em, (em) => orderUndo(em, ctx.tenant, params.importId));
      await startOrdered(ctx, "import", params.importId);
      return show(ctx.em, ctx.tenant, params.importId);
    },
  ),
  /** The refused lines as CSV. */
  refused: consoleQuery({ role: "EDITOR", audit: "daily", input: ofImport }, async ({ ctx, input }) => ({
    csv: await refusedFile(ctx.em, ctx.tenant, input.params.importId),
  })),
  remove: consoleMutation({ role: "EDITOR", input: ofImport }, async ({ ctx, input }) => {
    await deleteImport(ctx.em, ctx.tenant, input.params.importId);
    return {};
  }),
  /** A page of CSV. */
  export: consoleQuery(
    {
      role: "EDITOR",
      isHeavy: true,
      audit: "daily",
      input: z.strictObject({
        query: z.strictObject({
          of: z.enum(["contacts", "suppressions", "list", "people"]),
          list_id: idParam.optional(),
          /** Of people. */
          segment_id: idParam.optional(),
          status: z.enum(PERSON_STATUSES).optional(),
          /** Of a list. */
          subscription: z.enum(SUBSCRIPTION_STATUSES).optional(),
          after: z.string().max(MAX_ADDRESS_LENGTH).default(""),
        }),
      }),
    },
    ({ ctx, input: { query } }) => {
      const { of, list_id: listId, segment_id: segmentId, status, subscription, after } = query;
      if (of === "people") return exportPeople(ctx.em, ctx.tenant, { listId, segmentId, status }, after);
      return exportPage(ctx.em, ctx.tenant, of === "list" ? { listId: listId ?? "", status: subscription } : of, after);
    },
  ),
});
