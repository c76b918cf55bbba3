import { REPORT_PROVIDERS, type Source } from "../../db/entities/engagement.ts";
import { addSource, changeSource, listSources, pathOfSource, removeSource } from "../../domain/reports/source.ts";
import { type Commands, command, OF_TENANT, option, required } from "../command.ts";
import { oneOf } from "../options.ts";
import { table } from "../output.ts";
import { inOwnersTenant, inTenantOf, type Outcome, type Session } from "../session.ts";

const SOURCE = { source: required("<id>", "the webhook") };
const FIELDS = {
  topic: option("<arn>", "SES: the SNS topic; unless given, the first one that asks to be confirmed"),
  publicKey: option("<key>", "SendGrid: the verification key of its event webhook"),
};

/** Webhooks by which providers report bounces and complaints. */
export const commands: Commands = {
  "provider:add": command(
    "add a webhook by which a provider reports bounces and complaints, and show its path",
    {
      ...OF_TENANT,
      provider: required("<name>", REPORT_PROVIDERS.join(", ").toLowerCase(), oneOf(REPORT_PROVIDERS)),
      ...FIELDS,
    },
    async (session, { provider, topic: topicArn, publicKey, ...options }) =>
      shown(session, [
        await inTenantOf(session, options, (em, tenant) => addSource(em, tenant, provider, { topicArn, publicKey })),
      ]),
  ),

  "provider:set": command(
    "set the topic or the public key of a provider's webhook anew",
    { ...SOURCE, ...FIELDS },
    async (session, { source: id, topic: topicArn, publicKey }) =>
      shown(session, [
        await inOwnersTenant(session, "report_sources", id, (em) => changeSource(em, id, { topicArn, publicKey })),
      ]),
  ),

  "provider:list": command("list the webhooks of providers", OF_TENANT, async (session, options) =>
    shown(session, await inTenantOf(session, options, listSources)),
  ),

  "provider:remove": command(
    "remove a provider's webhook: its URL is refused from now on",
    SOURCE,
    async (session, { source: id }) => {
      await inOwnersTenant(session, "report_sources", id, (em) => removeSource(em, id));
      return { text: `${id} is removed`, data: { source: { id, removed: true } } };
    },
  ),
};

/** The path below PUBLIC_URL, which the command line need not know. */
function shown({ vault }: Session, sources: readonly Source[]): Outcome {
  return {
    text: table(sources, "There is none; provider:add adds one", {
      SOURCE: ({ id }) => id,
      PROVIDER: ({ provider }) => provider,
      URL: (source) => `PUBLIC_URL${pathOfSource(vault, source)}`,
    }),
    data: {
      sources: sources.map((source) => ({
        id: source.id,
        provider: source.provider,
        path: pathOfSource(vault, source),
        topic: source.topicArn ?? null,
        public_key: source.publicKey ?? null,
      })),
    },
  };
}
