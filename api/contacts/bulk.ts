import type { ContactUpsert } from "../../domain/audience/contact-bulk.ts";
import { lockFieldTypes } from "../../domain/audience/contact-fields.ts";
import type { FieldTypes } from "../../domain/audience/field-values.ts";
import { ApiError } from "../../domain/errors.ts";
import { mapInSlices } from "../../lib/slices.ts";
import type { RequestContext } from "../context.ts";
import { parseItem } from "../rest/input.ts";
import { checkFields } from "./fields.ts";
import { contactUpsert } from "./schema.ts";

/** An item of a bulk call: a contact to write, or why it cannot be used. */
export type CheckedItem = { contact: ContactUpsert } | { email: string | null; error: ApiError };

/** Items with 50 fields are parsed in some milliseconds. */
const SLICE = 50;

/** A field of an item, which may be no object. */
const given = (item: unknown, name: "email" | "fields"): unknown =>
  item !== null && typeof item === "object" ? Reflect.get(item, name) : undefined;

export async function checkItems(
  { em, tenant }: Pick<RequestContext, "em" | "tenant">,
  items: readonly unknown[],
): Promise<CheckedItem[]> {
  const hasFields = items.some((item) => given(item, "fields") !== undefined);
  const types: FieldTypes = hasFields ? await lockFieldTypes(em, tenant) : new Map();
  return mapInSlices(items, SLICE, (item, index) => {
    try {
      const path = ["contacts", index];
      const parsed = parseItem(contactUpsert, item, path);
      const { email, first_name: firstName, last_name: lastName, fields, tracking_consent: consent } = parsed;
      if (fields) checkFields(types, fields, [...path, "fields"]);
      return { contact: { email, firstName, lastName, fields, consent } };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const email = given(item, "email");
      return { email: typeof email === "string" ? email : null, error };
    }
  });
}
