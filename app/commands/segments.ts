import { readFile } from "node:fs/promises";
import { type Command, Option } from "commander";
import type { Segment } from "../../db/entities/contact.ts";
import { forTenant } from "../../db/orm.ts";
import {
  countSegment,
  createSegment,
  deleteSegment,
  readSegment,
  readSegments,
} from "../../domain/audience/segments/segments.ts";
import { ApiError } from "../../domain/errors.ts";
import { withTenant } from "../options.ts";
import { inTenant, ownerOf, type Run, type Session, type TenantOptions, tenantOf } from "../session.ts";

interface CreateOptions extends TenantOptions {
  conditions?: string;
  file?: string;
}

/** Segments: stored conditions that select contacts. */
export function segmentCommands(program: Command, run: Run): void {
  withTenant(program.command("segment:create"))
    .description("store conditions that select contacts")
    .argument("<name>", "for people")
    .addOption(new Option("--conditions <json>", 'such as {"field": "fields.city", "op": "eq", "value": "Rome"}'))
    .addOption(new Option("--file <file>", "a file with the conditions as JSON").conflicts("conditions"))
    .action((name: string, options: CreateOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        const definition = parseJson(await readConditions(options));
        const segment = await inTenant(session, tenant, (em) => createSegment(em, tenant, { name, definition }));
        return { text: `Segment ${segment.id} is stored`, data: { segment: toJson(segment) } };
      }),
    );

  program
    .command("segment:show")
    .description("show a segment with its conditions, also one that was deleted")
    .argument("<id>", "the segment")
    .action((id: string) =>
      run(async (session) => {
        const segment = toJson(await readSegment(await ownersEm(session, id), id));
        return { text: JSON.stringify(segment, undefined, 2), data: { segment } };
      }),
    );

  program
    .command("segment:count")
    .description("count the contacts that a segment selects now, and show the addresses of some")
    .argument("<id>", "the segment")
    .action((id: string) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "segments", id);
        const { contacts, sample } = await countSegment(forTenant(session.orm.em, tenant), tenant, id);
        return { text: [`${contacts} contacts`, ...sample].join("\n"), data: { segment: id, contacts, sample } };
      }),
    );

  withTenant(program.command("segment:list"))
    .description("list the segments")
    .action((options: TenantOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        const segments = (await readSegments(forTenant(session.orm.em, tenant))).map(toJson);
        const lines = segments.map(({ id, name }) => `${id}: ${name}`);
        return { text: lines.join("\n") || "There is no segment", data: { segments } };
      }),
    );

  program
    .command("segment:delete")
    .description("delete a segment; a draft that targets it then has no segment, campaigns that were scheduled keep it")
    .argument("<id>", "the segment")
    .action((id: string) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "segments", id);
        await inTenant(session, tenant, (em) => deleteSegment(em, id));
        return { text: `The segment ${id} is deleted`, data: { segment: { id, deleted: true } } };
      }),
    );
}

const ownersEm = async (session: Session, id: string) =>
  forTenant(session.orm.em, await ownerOf(session, "segments", id));

async function readConditions({ conditions, file }: CreateOptions): Promise<string> {
  if (conditions !== undefined) return conditions;
  if (file !== undefined) return readFile(file, "utf8");
  throw new ApiError("validation_failed", "Give the conditions with --conditions or --file.");
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError("validation_failed", "The conditions are not valid JSON.");
  }
}

const toJson = ({ id, name, version, conditions, deletedAt, createdAt, updatedAt }: Segment) => ({
  id,
  name,
  version,
  conditions,
  ...(deletedAt && { deleted_at: deletedAt.toISOString() }),
  created_at: createdAt.toISOString(),
  updated_at: updatedAt.toISOString(),
});
