import { z } from "zod";
import { FORM_FIELDS } from "../../../db/entities/form.ts";
import { MAX_CONSENT_WORDS } from "../../../domain/audience/rules.ts";
import { orNotFound } from "../../../domain/errors.ts";
import { createForm, deleteForm, findForm, updateForm } from "../../../domain/forms/forms.ts";
import { wordsOf } from "../../../domain/languages/words.ts";
import { brandOf } from "../../../domain/teams/brand.ts";
import { name, oneLine, orNull } from "../../fields.ts";
import { readForm } from "../../forms/routes.ts";
import { formHtml } from "../../public/forms.ts";
import { idParam, router } from "../../rest/route.ts";
import { bodyOf, consoleMutation, consoleQuery } from "../procedure.ts";

const MAX_SITES = 20;
const MAX_URL_LENGTH = 2_000;

const formParams = z.strictObject({ formId: idParam });
const words = oneLine(MAX_CONSENT_WORDS).trim();
const isPage = (text: string) => /^https?:$/.test(URL.parse(text)?.protocol ?? "");
const site = z
  .string()
  .refine((text) => isPage(text) && URL.parse(text)?.origin === text, "must be like https://www.example.com");
const formBody = z.strictObject({
  name,
  list_id: idParam,
  fields: z.array(z.enum(FORM_FIELDS)).max(FORM_FIELDS.length),
  consent_text: words.min(1),
  tracking_text: words.transform(orNull).nullable(),
  thank_you_url: z
    .string()
    .max(MAX_URL_LENGTH)
    .refine(isPage, "must be a URL such as https://example.com/thanks")
    .nullable(),
  sites: z.array(site).max(MAX_SITES),
  is_open: z.boolean(),
});

export const formsRouter = router({
  create: consoleMutation({ role: "EDITOR", input: bodyOf(formBody) }, async ({ ctx, input: { body } }) => ({
    id: await createForm(ctx.em, ctx.vault, ctx.tenant, body),
  })),
  update: consoleMutation(
    { role: "EDITOR", input: z.strictObject({ params: formParams, body: formBody }) },
    async ({ ctx, input: { params, body } }) => {
      await updateForm(ctx.em, ctx.tenant, params.formId, body);
      return (await readForm(ctx.em, ctx.tenant, ctx.env.PUBLIC_URL, params.formId)).toJSON();
    },
  ),
  remove: consoleMutation(
    { role: "EDITOR", input: z.strictObject({ params: formParams }) },
    async ({ ctx, input: { params } }) => {
      await deleteForm(ctx.em, ctx.tenant, params.formId);
      return { id: params.formId };
    },
  ),
  /** The texts of its page that a form does not bring, in the brand's language; "{list}" stands for the list's name. */
  words: consoleQuery({ role: "VIEWER", input: z.strictObject({}) }, async ({ ctx: { em, tenant } }) => {
    const { language, teamName } = await brandOf(em, tenant.teamId);
    const { signUp, confirm } = wordsOf(language);
    const { email, first_name, last_name, button } = signUp;
    const ofList = { title: confirm.title("{list}"), intro: signUp.intro("{list}", teamName) };
    return { ...ofList, team: teamName, email, first_name, last_name, button };
  }),
  /** The link, the HTML and the script that the owner of a website copies. */
  embed: consoleQuery(
    { role: "VIEWER", input: z.strictObject({ params: formParams }) },
    async ({ ctx: { em, tenant, env }, input: { params } }) => {
      const { url: link } = (await readForm(em, tenant, env.PUBLIC_URL, params.formId)).toJSON();
      const form = orNotFound(await findForm(em, params.formId));
      const html = formHtml(link, form, wordsOf(form.language));
      return { link, html, script: `<script src="${env.PUBLIC_URL}/f/form.js" async></script>` };
    },
  ),
});
