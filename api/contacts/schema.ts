import { z } from "zod";
import { EMAIL_STATUSES } from "../../db/entities/contact.ts";
import { deleted, idOf } from "../fields.ts";
import { personBody, personPatch, shownPerson } from "../people.ts";
import { idParamOf } from "../rest/route.ts";

export const contactParams = z.strictObject({ contactId: idParamOf("contact", "The id of the contact.") });

const fieldValue = z.union([z.string(), z.number(), z.boolean()]);

/** The team's own fields in a body. Their names and types are checked when the declared ones are read. */
const givenFields = z
  .record(z.string(), z.union([fieldValue, z.null()], { error: "must be a text, a number, true, false or null" }))
  .meta({
    description:
      "Values of the team's custom fields by name, each of the type that the app declared: a text of one line, a number, `true` or `false`, or a date such as `2026-01-31`. A field that is left out stays as it is, and `null` takes its value away.",
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

export const deletedContact = deleted("contact", "contact", "DeletedContact");
