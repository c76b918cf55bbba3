import type { z } from "zod";
import type { Contact } from "../../db/entities/contact.ts";
import { presentPerson } from "../people.ts";
import type { contact } from "./schema.ts";

export const presentContact = (person: Contact): z.input<typeof contact> => ({
  object: "contact",
  ...presentPerson(person),
  fields: person.fields,
  email_status: person.emailStatus,
});
