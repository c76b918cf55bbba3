import type { Command } from "commander";
import { CONTACT_FIELD_TYPES, type ContactFieldType } from "../../db/entities/contact.ts";
import { forTenant } from "../../db/orm.ts";
import { createField, deleteField, readFields } from "../../domain/audience/contact-fields.ts";
import { oneOf, withTenant } from "../options.ts";
import { inTenant, type Run, type TenantOptions, tenantOf } from "../session.ts";

/** Custom fields of contacts. */
export function fieldCommands(program: Command, run: Run): void {
  withTenant(program.command("field:create"))
    .description("declare a custom field that contacts may have")
    .argument("<name>", "lower-case letters, digits and underscores, such as favourite_colour")
    .requiredOption("--type <type>", CONTACT_FIELD_TYPES.join(", "), oneOf(CONTACT_FIELD_TYPES))
    .action((name: string, { type, ...options }: TenantOptions & { type: ContactFieldType }) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        await inTenant(session, tenant, (em) => createField(em, tenant, name, type));
        return { text: `Contacts may have the ${type} field ${name}`, data: { field: { name, type } } };
      }),
    );

  withTenant(program.command("field:list"))
    .description("list the custom fields that are declared")
    .action((options: TenantOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        const fields = await readFields(session.orm.em.fork(), tenant);
        const lines = fields.map(({ name, type }) => `${name}: ${type}`);
        return { text: lines.join("\n") || "No custom field is declared", data: { fields } };
      }),
    );

  withTenant(program.command("field:delete"))
    .description("delete a custom field, and its values from all contacts")
    .argument("<name>", "the field")
    .action((name: string, options: TenantOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        const contacts = await deleteField(forTenant(session.orm.em, tenant), tenant, name);
        return {
          text: `The field ${name} is deleted; ${contacts} contacts had a value`,
          data: { field: { name, deleted: true }, contacts },
        };
      }),
    );
}
