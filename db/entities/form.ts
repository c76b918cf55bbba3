import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, codes, edited, expiring, holding, instant, listIndexes, tenancy, tenantKey, text } from "./shared.ts";

/** The inputs that a form may have besides the address. */
export const FORM_FIELDS = ["first_name", "last_name"] as const;
export type FormField = (typeof FORM_FIELDS)[number];

/** A sign-up form of a list. */
export const FormSchema = defineEntity({
  name: "forms",
  indexes: listIndexes,
  properties: {
    id: code().primary(),
    ...tenancy,
    listId: code(),
    /** Its path below `/f/`: the id, and a signature of it. */
    reference: code(),
    name: text("team"),
    fields: codes().$type<FormField[]>(),
    /** The texts that it shows at present. */
    textId: code(),
    /** Where a person is led after the sign-up; null for a page of the service. */
    thankYouUrl: text("team").nullable(),
    /** The origins whose scripts may use it. */
    sites: holding("team", p.array()),
    isOpen: p.boolean(),
    ...edited,
  },
});

/** The texts of a form that a person sees: the proof of their consent. A row never changes, and stays as long as its team. */
export const FormTextSchema = defineEntity({
  name: "form_texts",
  indexes: [{ properties: ["formId"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    formId: code(),
    consent: text("team"),
    /** The question whether opens and clicks may be counted; null where none is asked. */
    tracking: text("team").nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

export const FormDaySchema = defineEntity({
  name: "form_days",
  properties: {
    ...tenantKey,
    formId: code().primary(),
    /** UTC. */
    day: expiring("400 days", p.date()).primary(),
    shown: p.integer().default(0),
    /** Sign-ups that were taken. */
    sent: p.integer().default(0),
    confirmed: p.integer().default(0),
  },
});
