import { z } from "zod";
import { CONTACT_FIELD_TYPES, EMAIL_STATUSES } from "../../db/entities/contact.ts";
import { MAX_FIELD_NUMBER } from "../../domain/audience/rules.ts";
import { exampleId } from "../../domain/ids.ts";
import { address, deleted, idOf, orNull, text, textOrNull } from "../fields.ts";
import { shownAs } from "../openapi/schemas.ts";
import { personBody, personPatch, shownPerson } from "../people.ts";
import { idParamOf } from "../rest/route.ts";

export const contactParams = z.strictObject({ contactId: idParamOf("contact", "The id of the contact.") });

const fieldValue = z.union([z.string(), z.number(), z.boolean()]);
const givenText = z.string().trim().transform(orNull);

/** The team's own fields in a body. Their names and types are checked when the declared ones are read. */
const givenFields = z
  .record(
    z.string(),
    z.union([givenText, z.number(), z.boolean(), z.null()], { error: "must be a text, a number, true, false or null" }),
  )
  .meta({
    description: `Values of the team's custom fields by name, each of the type that the app declared: a text of one line, a number, \`true\` or \`false\`, or a date such as \`2026-01-31\`. Spaces around a text are removed. A field that is left out stays as it is, and \`null\` or an empty text takes its value away. A number beyond ±${MAX_FIELD_NUMBER} is refused, because it would not be kept exactly: declare a text field for such numbers.`,
    examples: [{ city: "London", member_since: "2026-01-31" }],
  });

export const contactBody = z.strictObject({ ...personBody, fields: givenFields.default({}) });

export const contactPatch = z.strictObject({ ...personPatch, fields: givenFields.optional() });

export const emailStatus = z.enum(EMAIL_STATUSES).meta({
  description: "`INVALID` while the address is suppressed by a hard bounce: no campaign mails it.",
  examples: ["ACTIVE"],
});

export const contact = z
  .object({
    object: z.literal("contact"),
    id: idOf("contact"),
    ...shownPerson,
    fields: z.record(z.string(), fieldValue).meta({
      description: "Values of the team's custom fields; one without a value is left out.",
      examples: [{ city: "London", member_since: "2026-01-31" }],
    }),
    email_status: emailStatus,
  })
  .meta({ id: "Contact", description: "A person whom campaigns mail." });

/** The id of a custom field is its name. */
export const contactField = z
  .object({
    object: z.literal("contact_field"),
    id: text("The name.", "city"),
    name: text("The key in `fields` of a contact.", "city"),
    type: z.enum(CONTACT_FIELD_TYPES).meta({ description: "The type of its values.", examples: ["text"] }),
  })
  .meta({ id: "ContactField", description: "A custom field of the team's contacts." });

/** Contacts that one call may make or change. */
export const MAX_BULK = 1_000;

export const contactUpsert = z.strictObject({ ...personPatch, email: address, fields: givenFields.optional() });

export const bulkBody = z.strictObject({
  contacts: z
    .array(
      // Each is parsed on its own, so that one that is no contact at all fails alone.
      z.unknown().meta({
        ...shownAs(contactUpsert),
        id: "ContactUpsert",
        description: "A contact by its address; a field that is left out stays as it is.",
      }),
    )
    .min(1)
    .max(MAX_BULK)
    .describe("Contacts to make or to change."),
});

export const contactBatch = z
  .object({
    object: z.literal("contact_batch"),
    results: z
      .array(
        z
          .object({
            index: z
              .int()
              .min(0)
              .meta({ description: "The place of the item in `contacts`, from 0.", examples: [0] }),
            email: textOrNull(
              "The address of the item; null if it has none, or if its person was erased.",
              "ada@example.com",
            ),
            status: z.enum(["created", "updated", "unchanged", "failed"]).meta({
              description: "`unchanged`: the contact had every given value already. `failed`: see `error`.",
              examples: ["created"],
            }),
            id: textOrNull("The id of the contact; null if the item failed.", exampleId("contact")),
            error: z
              .object({
                code: text("As the `code` of an error.", "validation_failed"),
                message: z.string().meta({ examples: ["contacts[0].email is required."] }),
                param: textOrNull("The field at fault, by its place in the body.", "contacts[0].email"),
              })
              .meta({ id: "ContactBatchError", description: "Why an item of a bulk call failed." })
              .nullable()
              .meta({ description: "Why the item failed; null if it did not.", examples: [null] }),
          })
          .meta({ id: "ContactBatchResult", description: "The outcome of one item of a bulk call." }),
      )
      .describe("One result per item, in their order."),
  })
  .meta({ id: "ContactBatch", description: "The outcome of a bulk call." });

export const deletedContact = deleted("contact", "contact", "DeletedContact");
