import { z } from "zod";
import { WITHHELD_REASONS } from "../db/entities/audience.ts";
import { lookupAddress, MAX_ADDRESS_LENGTH, normaliseAddress, spellingOf } from "../domain/address.ts";
import { hasControlCharacter, MAX_NAME_LENGTH, MAX_PERSON_NAME_LENGTH } from "../domain/audience/rules.ts";
import { exampleId, type IdKind } from "../domain/ids.ts";
import { itIs } from "./rest/messages.ts";

/** ISO 8601, UTC, milliseconds. */
export const timestamp = z.iso.datetime().meta({ examples: ["2026-11-21T17:00:00.000Z"] });

/** A field of an answer with what the document says of it; one that may be null shows that as its example unless given. */
export const text = (description: string, example: string) => z.string().meta({ description, examples: [example] });
export const textOrNull = (description: string, example: string | null = null) =>
  z
    .string()
    .nullable()
    .meta({ description, examples: [example] });
export const int = (description: string, example: number) => z.int().meta({ description, examples: [example] });
export const intOrNull = (description: string, example: number | null = null) =>
  z
    .int()
    .nullable()
    .meta({ description, examples: [example] });
export const timestampOrNull = (description: string) => timestamp.nullable().meta({ description, examples: [null] });

export const idOf = (kind: IdKind, description = "The id of the record.") => text(description, exampleId(kind));

/** @param example whether the example has one */
export const nullableIdOf = (kind: IdKind, description: string, example = true) =>
  textOrNull(description, example ? exampleId(kind) : null);

export const timestamps = {
  created_at: timestamp.describe("When the record was created."),
  updated_at: timestamp.describe("When the record was last changed."),
};

export const shownAddress = z.string().meta({ examples: ["ada@example.com"] });

export const shownNames = {
  first_name: z
    .string()
    .nullable()
    .meta({ examples: ["Ada"] }),
  last_name: z
    .string()
    .nullable()
    .meta({ examples: ["Lovelace"] }),
};

/** The check of a text of one line: a line break would break the header or the table that it is put in. */
const isOneLine = [
  (text: string) => !hasControlCharacter(text),
  "must not hold line breaks or control characters",
] as const;

export const oneLine = (max: number) =>
  z
    .string()
    .max(max)
    .refine(...isOneLine);

export const name = z
  .string()
  .trim()
  .min(1)
  .max(MAX_NAME_LENGTH)
  .refine(...isOneLine)
  .meta({ description: "The name; spaces around it are removed.", examples: ["Customers"] });

/** Forms send a field that was left empty as an empty text. */
export const orNull = (trimmed: string): string | null => trimmed || null;

/** A person's first or last name; null for none. */
export const personName = z
  .string()
  .trim()
  .max(MAX_PERSON_NAME_LENGTH)
  .refine(...isOneLine)
  .transform(orNull)
  .nullable()
  .meta({ description: "The name; spaces around it are removed, and an empty text is null.", examples: ["Ada"] });

/** A bad address is quoted, to the client that sent it: one of a hundred is hard to find by its number alone. */
const notAnAddress = (text: unknown) => `must be an email address, such as name@example.com${itIs(text)}`;

/** An email address, parsed to the spelling in which it comes back. */
export const address = z
  .string()
  .max(MAX_ADDRESS_LENGTH, {
    error: ({ input }) => `must be at most ${MAX_ADDRESS_LENGTH} characters long${itIs(input)}`,
    abort: true,
  })
  .refine((text) => normaliseAddress(text) !== undefined, { error: ({ input }) => notAnAddress(input), abort: true })
  .transform(spellingOf)
  .meta({ description: "An email address; it is trimmed and lower-cased.", examples: ["ada@example.com"] });

/** A filter by address, in any spelling; parsed to the one that is looked for. */
export const addressFilter = z
  .string()
  .max(MAX_ADDRESS_LENGTH)
  .transform(lookupAddress)
  .optional()
  .meta({ description: "Only records of this address.", examples: ["ada@example.com"] });

/** The mail that asks for the confirmation of a double opt-in: when it was sent, and why it is withheld at present. */
export const confirmationFields = {
  confirmation_sent_at: timestampOrNull(
    "When the mail that asks for the confirmation was last sent; null if none was.",
  ),
  confirmation_withheld: z
    .enum(WITHHELD_REASONS)
    .nullable()
    .meta({ description: "Why no such mail is sent at present.", examples: [null] }),
};

export const deleted = <Kind extends string>(object: Kind, kind: IdKind, id: string) =>
  z
    .object({ object: z.literal(object), id: idOf(kind), deleted: z.literal(true) })
    .meta({ id, description: "The answer to the deletion of a record." });
