import { z } from "zod";
import { RESOURCE_TYPES } from "../../../db/entities/send.ts";
import { OWN_TEMPLATES } from "../../../domain/mail/templates/own.ts";
import {
  deleteTemplate,
  draftFromTemplate,
  listTemplates,
  renameTemplate,
  saveAsTemplate,
} from "../../../domain/sends/drafts/templates.ts";
import { name } from "../../fields.ts";
import { idParam, router } from "../../rest/route.ts";
import { bodyOf, consoleMutation, consoleQuery, noInput } from "../procedure.ts";

const type = z.enum(RESOURCE_TYPES);
const ofTemplate = z.strictObject({ params: z.strictObject({ templateId: idParam }) });

export const templatesRouter = router({
  /** The service's, and the team's by name. */
  list: consoleQuery({ role: "VIEWER", input: noInput }, async ({ ctx }) => ({
    own: [...OWN_TEMPLATES].map(([id, { name, description }]) => ({ id, name, description })),
    team: (await listTemplates(ctx.em)).map(({ id, name, subject = null, updatedAt }) => ({
      ...{ id, name, subject },
      updated_at: updatedAt.toISOString(),
    })),
  })),

  /** @param template_id the template whose place the content takes */
  save: consoleMutation(
    { role: "EDITOR", input: bodyOf(z.strictObject({ type, id: idParam, name, template_id: idParam.optional() })) },
    async ({ ctx, input: { body } }) => {
      const { type, id, name, template_id: replaces } = body;
      const template = await saveAsTemplate(ctx.em, ctx.tenant, { type, id }, { name, replaces });
      return { id: template.id, name: template.name };
    },
  ),

  rename: consoleMutation(
    { role: "EDITOR", input: ofTemplate.extend({ body: z.strictObject({ name }) }) },
    async ({ ctx, input: { params, body } }) => {
      await renameTemplate(ctx.em, params.templateId, body.name);
      return { id: params.templateId, name: body.name };
    },
  ),

  remove: consoleMutation({ role: "EDITOR", input: ofTemplate }, async ({ ctx, input: { params } }) => {
    await deleteTemplate(ctx.em, ctx.tenant, params.templateId);
    return { id: params.templateId };
  }),

  /** @param template_id of the service's or of the team's */
  makeDraft: consoleMutation(
    {
      role: "EDITOR",
      isHeavy: true,
      ownCommit: true,
      input: bodyOf(z.strictObject({ type, name, template_id: idParam })),
    },
    async ({ ctx, input: { body } }) => {
      const limit = body.type === "newsletter" ? ctx.env.MAX_NEWSLETTERS : ctx.env.MAX_CAMPAIGNS;
      const draft = { type: body.type, name: body.name, template: body.template_id };
      const { id, name } = await draftFromTemplate(ctx.em, ctx.tenant, draft, limit);
      return { id, name };
    },
  ),
});
