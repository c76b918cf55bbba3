import { readFile } from "node:fs/promises";
import { forTenant } from "../../db/orm.ts";
import {
  countSegment,
  createSegment,
  deleteSegment,
  PATIENT_COUNT,
  readSegment,
  readSegments,
  segmentRecord,
} from "../../domain/audience/segments/segments.ts";
import { ApiError } from "../../domain/errors.ts";
import { argument, type Commands, command, OF_TENANT, option } from "../command.ts";
import { parseJson } from "../options.ts";
import { table } from "../output.ts";
import { inOwnersTenant, inTenantOf, ownerOf, tenantOf } from "../session.ts";

const SEGMENT = { id: argument("the segment") };

/** Segments: stored conditions that select contacts. */
export const commands: Commands = {
  "segment:create": command(
    "store conditions that select contacts",
    {
      name: argument("for people"),
      ...OF_TENANT,
      conditions: option("<json>", 'such as {"field": "fields.city", "op": "eq", "value": "Rome"}'),
      file: { ...option("<file>", "a file with the conditions as JSON"), conflicts: ["conditions"] },
    },
    async (session, { name, file, conditions, ...options }) => {
      const definition = readConditions(conditions ?? (file && (await readFile(file, "utf8"))));
      const segment = await inTenantOf(session, options, (em, tenant) =>
        createSegment(em, tenant, { name, conditions: definition }),
      );
      return { text: `Segment ${segment.id} is stored`, data: { segment: segmentRecord(segment) } };
    },
  ),

  "segment:show": command(
    "show a segment with its conditions, also one that was deleted",
    SEGMENT,
    async (session, { id }) => {
      const tenant = await ownerOf(session, "segments", id);
      const segment = segmentRecord(await readSegment(forTenant(session.orm.em, tenant), id));
      return { text: JSON.stringify(segment, undefined, 2), data: { segment } };
    },
  ),

  "segment:count": command(
    "count the contacts that a segment selects now, and show the addresses of some",
    SEGMENT,
    async (session, { id }) => {
      const tenant = await ownerOf(session, "segments", id);
      const counted = await countSegment(forTenant(session.orm.em, tenant), tenant, id, PATIENT_COUNT);
      const { contacts, is_estimate: isEstimate, sample } = counted;
      const text = [`${isEstimate ? "about " : ""}${contacts} contacts`, ...sample].join("\n");
      return { text, data: { segment: id, ...counted } };
    },
  ),

  "segment:list": command("list the segments", OF_TENANT, async (session, options) => {
    const tenant = await tenantOf(session, options);
    const segments = (await readSegments(forTenant(session.orm.em, tenant))).map(segmentRecord);
    const text = table(segments, "There is no segment", { SEGMENT: ({ id }) => id, NAME: ({ name }) => name });
    return { text, data: { segments } };
  }),

  "segment:delete": command(
    "delete a segment; a draft that targets it then has no segment, campaigns that were scheduled keep it",
    SEGMENT,
    async (session, { id }) => {
      await inOwnersTenant(session, "segments", id, (em) => deleteSegment(em, id));
      return { text: `The segment ${id} is deleted`, data: { segment: { id, deleted: true } } };
    },
  ),
};

function readConditions(text: string | undefined): unknown {
  if (text === undefined) {
    throw new ApiError("validation_failed", "Give the conditions with --conditions or --file.");
  }
  return parseJson(text, "The conditions are not valid JSON.");
}
