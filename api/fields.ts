import { z } from "zod";
import { WITHHELD_REASONS } from "../db/entities/audience.ts";
import { MAX_ADDRESS_LENGTH, normaliseAddress, spellingOf } from "../domain/address.ts";
import { hasControlCharacter, MAX_PERSON_NAME_LENGTH } from "../domain/audience/rules.ts";
import { itIs } from "./rest/messages.ts";

/** ISO 8601, UTC, milliseconds. */
export const timestamp = z.iso.datetime();

/** Longest name of a list or a newsletter, in characters. */
export const MAX_NAME_LENGTH = 200;

/** Text of one line: a line break would break the header or the table that it is put in. */
export const oneLine = (max: number) =>
  z
    .string()
    .max(max)
    .refine((text) => !hasControlCharacter(text), "must not hold line breaks or control characters");

/** The name of a record, trimmed. */
export const name = z
  .string()
  .trim()
  .min(1)
  .max(MAX_NAME_LENGTH)
  .refine((text) => !hasControlCharacter(text), "must not hold line breaks or control characters");

/** A person's first or last name; null for none. */
export const personName = oneLine(MAX_PERSON_NAME_LENGTH).nullable();

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
  .transform(spellingOf);

/** The mail that asks for the confirmation of a double opt-in: when it was sent, and why it is withheld at present. */
export const confirmationFields = {
  confirmation_sent_at: timestamp.nullable(),
  confirmation_withheld: z.enum(WITHHELD_REASONS).nullable(),
};

/** The answer to the deletion of a record. */
export const deleted = <Kind extends string>(object: Kind) =>
  z.object({ object: z.literal(object), id: z.string(), deleted: z.literal(true) });
