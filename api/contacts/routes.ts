import { z } from "zod";
import { EMAIL_STATUSES } from "../../db/entities/contact.ts";
import type { EntityManager } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { upsertContacts } from "../../domain/audience/contact-bulk.ts";
import { readFields } from "../../domain/audience/contact-fields.ts";
import { createContact, deleteContact, updateContact } from "../../domain/audience/contacts.ts";
import { setConsents } from "../../domain/audience/tracking-consents.ts";
import { contactRecord } from "../../domain/webhooks/records.ts";
import { addressFilter } from "../fields.ts";
import { slotQuota } from "../quota.ts";
import { defineList } from "../rest/list.ts";
import { readRecord } from "../rest/record.ts";
import { deleteImpact, impact, ok, paragraphs, route, router, updateImpact } from "../rest/route.ts";
import { checkItems } from "./bulk.ts";
import { checkContactFields } from "./fields.ts";
import { presentBatch } from "./present.ts";
import {
  bulkBody,
  contact,
  contactBatch,
  contactBody,
  contactField,
  contactParams,
  contactPatch,
  deletedContact,
  emailStatus,
} from "./schema.ts";

const contacts = defineList({
  table: "contacts",
  sorts: ["updated_at", "created_at"],
  filters: { email: addressFilter, email_status: emailStatus.optional() },
  ranges: { filter: "email_status", values: EMAIL_STATUSES },
  largeColumn: "fields",
});

const create = route("POST /contacts", {
  status: 201,
  scope: "contacts:write",
  ownCommit: true,
  operationId: "createContact",
  summary: "Create a contact",
  description: paragraphs(
    "Creates a contact. The address is trimmed and lower-cased. An address that a contact of the team has already is 409 `resource_already_exists`: change that contact with `PATCH`, or use the bulk upsert. A subscriber may have the same address; a new one takes a contact slot of the plan, and without one left it is 402 `quota_exceeded`.",
    "`fields` takes the custom fields that the team declared in the app, which `GET /contacts/fields` lists; any other is 400 `validation_failed`, and `param` names it.",
  ),
  errors: ["quota_exceeded", "resource_already_exists"],
})
  .input(z.strictObject({ body: contactBody }))
  .output(contact)
  .mutation(async ({ ctx, input }) => {
    const { email, first_name: firstName, last_name: lastName, fields, tracking_consent: consent } = input.body;
    const make = async (em: EntityManager) => {
      await setConsents(em, ctx.vault, ctx.tenant, consent ? [{ email, ...consent }] : [], "API");
      await checkContactFields({ em, tenant: ctx.tenant }, fields);
      const given = { email, firstName, lastName, fields: fields ?? {} };
      return createContact(em, ctx.vault, ctx.tenant, given, ctx.idempotency);
    };
    // The declarations of the fields stay locked until the contact is committed.
    const { record, slots } = await (fields || consent ? transaction(ctx.em, make) : make(ctx.em));
    const quota = await slotQuota(ctx, slots);
    return ok(record, { impact: impact({ would_create: 1, quota }), requestId: ctx.requestId });
  });

const upsert = route("POST /contacts/bulk", {
  scope: "contacts:write",
  idempotency: "required",
  itemsIn: "contacts",
  isPatient: true,
  isHeavy: true,
  operationId: "upsertContacts",
  summary: "Create or change up to 1,000 contacts by their addresses",
  description: paragraphs(
    "Creates a contact for each address that is new, and changes those that exist. A field that an item leaves out stays as it is, custom fields too. The answer has a result per item, in their order: `created`, `updated`, `unchanged` or `failed`.",
    "An item that cannot be used fails alone, with the code, message and `param` of its `error`; the others are written. Items with the same address are settled in their order, so that the last one wins. A contact keeps the spelling of its address. New addresses take contact slots of the plan, the first ones first; where none is left, an item fails with `quota_exceeded`.",
  ),
})
  .input(z.strictObject({ body: bulkBody }))
  .output(contactBatch)
  .mutation(async ({ ctx, input }) => {
    const items = await checkItems(ctx, input.body.contacts);
    const { outcomes, created, updated, slots } = await upsertContacts(
      ctx.em,
      ctx.vault,
      ctx.tenant,
      items.flatMap((item) => ("contact" in item ? [item.contact] : [])),
    );
    // New contacts have no ids to name yet.
    const effect = {
      would_create: created,
      would_update: updated.length,
      affected_ids: updated,
      quota: await slotQuota(ctx, slots),
    };
    return ok(presentBatch(items, outcomes), { impact: impact(effect) });
  });

const page = route("GET /contacts", {
  scope: "contacts:read",
  isHeavy: true,
  operationId: "listContacts",
  summary: "List the contacts",
  description:
    "Pages through the contacts of the team. With `email` it finds the one with that address, with `email_status` those that campaigns can mail or cannot.",
})
  .input(z.strictObject({ query: contacts.query }))
  .output(z.array(contact))
  .query(({ ctx, input }) => contacts.pageRecords(ctx, input.query, { record: contactRecord }));

const listFields = route("GET /contacts/fields", {
  scope: "contacts:read",
  operationId: "listContactFields",
  summary: "List the custom fields of contacts",
  description:
    "Answers every custom field that the team declared in the app, in the order of their names, in one page.",
})
  .input(z.strictObject({}))
  .output(z.array(contactField))
  .query(async ({ ctx }) => {
    const fields = await readFields(ctx.em, ctx.tenant);
    const data = fields.map(({ name, type }) => ({ object: "contact_field" as const, id: name, name, type }));
    return ok(data, { meta: { has_more: false, next_cursor: null } });
  });

const retrieve = route("GET /contacts/{contactId}", {
  scope: "contacts:read",
  operationId: "retrieveContact",
  summary: "Retrieve a contact",
  description: "Answers one contact.",
})
  .input(z.strictObject({ params: contactParams }))
  .output(contact)
  .query(async ({ ctx, input }) => ok(await readRecord(ctx.em, "contacts", contactRecord, input.params.contactId)));

const update = route("PATCH /contacts/{contactId}", {
  scope: "contacts:write",
  operationId: "updateContact",
  summary: "Change a contact",
  description: paragraphs(
    "Changes the fields that the body holds and leaves the others as they are, custom fields too. An address that another contact has is 409 `resource_already_exists`.",
    "The `email_status` of a changed address is that of the new one. It takes the contact slot of the one before it, unless a subscriber has that: then it needs a slot of its own, and without one left it is 402 `quota_exceeded`.",
  ),
  errors: ["quota_exceeded", "resource_already_exists"],
})
  .input(z.strictObject({ params: contactParams, body: contactPatch }))
  .output(contact)
  .mutation(async ({ ctx, input }) => {
    const { email, first_name: firstName, last_name: lastName, fields, tracking_consent: consent } = input.body;
    await checkContactFields(ctx, fields);
    const patch = { email, firstName, lastName, fields };
    const { record, isChanged, slots } = await updateContact(
      ctx.em,
      ctx.vault,
      ctx.tenant,
      input.params.contactId,
      patch,
    );
    const given = consent ? [{ email: record.email, ...consent }] : [];
    const stored = await setConsents(ctx.em, ctx.vault, ctx.tenant, given, "API");
    const quota = slots === 0 ? null : await slotQuota(ctx, slots);
    const shown = await readRecord(ctx.em, "contacts", contactRecord, record.id);
    return ok(shown, { impact: { ...updateImpact(record.id, isChanged || stored.size > 0), quota } });
  });

const remove = route("DELETE /contacts/{contactId}", {
  scope: "contacts:write",
  operationId: "deleteContact",
  summary: "Delete a contact",
  description:
    "Deletes a contact with its custom fields. A subscriber with the same address stays, and so do suppressions and opt-outs.",
})
  .input(z.strictObject({ params: contactParams }))
  .output(deletedContact)
  .mutation(async ({ ctx, input }) => {
    const id = input.params.contactId;
    await deleteContact(ctx.em, ctx.tenant, id);
    return ok({ object: "contact", id, deleted: true }, { impact: deleteImpact(id) });
  });

export const contactsRouter = router({ create, upsert, page, listFields, retrieve, update, remove });
