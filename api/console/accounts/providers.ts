import { z } from "zod";
import { REPORT_PROVIDERS, type Source } from "../../../db/entities/engagement.ts";
import { orNotFound } from "../../../domain/errors.ts";
import { PROVIDERS } from "../../../domain/reports/providers.ts";
import {
  addSource,
  changeSource,
  listSources,
  passwordOf,
  pathOfSource,
  removeSource,
  SOURCE_USER,
} from "../../../domain/reports/source.ts";
import type { RequestContext } from "../../context.ts";
import { idParamOf, router } from "../../rest/route.ts";
import { bodyOf, consoleMutation, consoleQuery, noInput } from "../procedure.ts";

const sourceParams = z.strictObject({ sourceId: idParamOf("reportSource", "The id of the webhook.") });
const text = z.string().trim().min(1).max(2_048).optional();
const proofs = z.strictObject({ topic: text, public_key: text, signing_key: text });

const fieldsOf = ({ topic, public_key, signing_key }: z.output<typeof proofs>) => ({
  topicArn: topic,
  publicKey: public_key,
  signingKey: signing_key,
});

/** With the address to paste at the provider, which is secret. */
function presentSource({ vault, env }: RequestContext, source: Source) {
  const { id, provider, topicArn, publicKey, encryptedSigningKey } = source;
  const { name, needs, events, account } = PROVIDERS[provider];
  const password = passwordOf(vault, source);
  const url = new URL(`${env.PUBLIC_URL}${pathOfSource(vault, source)}`);
  if (password) Object.assign(url, { username: SOURCE_USER, password });
  return {
    ...{ id, provider, name, needs, events, account_provider: account, url: url.href },
    ...{ user: password && SOURCE_USER, password, topic: topicArn ?? null },
    /** Whether it has what proves a request. */
    is_ready: password !== undefined || (topicArn ?? publicKey ?? encryptedSigningKey) != null,
  };
}

/** The webhooks by which providers report bounces and complaints. */
export const providersRouter = router({
  list: consoleQuery({ role: "ADMIN", input: noInput }, async ({ ctx }) => ({
    sources: (await listSources(ctx.em)).map((source) => presentSource(ctx, source)),
    providers: REPORT_PROVIDERS.map((provider) => ({
      provider,
      name: PROVIDERS[provider].name,
      needs: PROVIDERS[provider].needs,
    })),
  })),

  add: consoleMutation(
    { role: "ADMIN", input: bodyOf(proofs.extend({ provider: z.enum(REPORT_PROVIDERS) })) },
    async ({ ctx: { em, vault, tenant }, input: { body } }) => {
      const { id } = await addSource(em, vault, tenant, body.provider, fieldsOf(body));
      return { id };
    },
  ),

  change: consoleMutation(
    { role: "ADMIN", input: z.strictObject({ params: sourceParams, body: proofs }) },
    async ({ ctx: { em, vault }, input: { params, body } }) => {
      const { id } = await changeSource(em, vault, params.sourceId, fieldsOf(body));
      return { id };
    },
  ),

  remove: consoleMutation(
    { role: "ADMIN", input: z.strictObject({ params: sourceParams }) },
    async ({ ctx: { em }, input: { params } }) => {
      orNotFound((await removeSource(em, params.sourceId)) || null);
      return { id: params.sourceId };
    },
  ),
});
