import { CONTACT_FIELD_TYPES } from "../../db/entities/contact.ts";
import { forTenant } from "../../db/orm.ts";
import { createField, deleteField, readFields } from "../../domain/audience/contact-fields.ts";
import { argument, type Commands, command, OF_TENANT, required } from "../command.ts";
import { oneOf } from "../options.ts";
import { table } from "../output.ts";
import { inTenantOf, tenantOf } from "../session.ts";

/** Custom fields of contacts. */
export const commands: Commands = {
  "field:create": command(
    "declare a custom field that contacts may have",
    {
      name: argument("lower-case letters, digits and underscores, such as favourite_colour"),
      ...OF_TENANT,
      type: required("<type>", CONTACT_FIELD_TYPES.join(", "), oneOf(CONTACT_FIELD_TYPES)),
    },
    async (session, { name, type, ...options }) => {
      await inTenantOf(session, options, (em, tenant) => createField(em, tenant, name, type));
      return { text: `Contacts may have the ${type} field ${name}`, data: { field: { name, type } } };
    },
  ),

  "field:list": command("list the custom fields that are declared", OF_TENANT, async (session, options) => {
    const fields = await readFields(session.orm.em.fork(), await tenantOf(session, options));
    const text = table(fields, "No custom field is declared", { FIELD: ({ name }) => name, TYPE: ({ type }) => type });
    return { text, data: { fields } };
  }),

  "field:delete": command(
    "delete a custom field, and its values from all contacts",
    { name: argument("the field"), ...OF_TENANT },
    async (session, { name, ...options }) => {
      const tenant = await tenantOf(session, options);
      const contacts = await deleteField(forTenant(session.orm.em, tenant), tenant, name);
      return {
        text: `The field ${name} is deleted; ${contacts} contacts had a value`,
        data: { field: { name, deleted: true }, contacts },
      };
    },
  ),
};
