import { text } from "node:stream/consumers";
import { REPORT_PROVIDERS, type ReportProvider, type Source } from "../../db/entities/engagement.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { namesOfThoseWith, PROVIDERS } from "../../domain/reports/providers.ts";
import {
  addSource,
  changeSource,
  listSources,
  passwordOf,
  pathOfSource,
  removeSource,
  SOURCE_USER,
} from "../../domain/reports/source.ts";
import { type Commands, command, flag, OF_TENANT, option, required } from "../command.ts";
import { oneOf } from "../options.ts";
import { table } from "../output.ts";
import { inOwnersTenant, inTenantOf, type Outcome, type Session } from "../session.ts";

const SOURCE = { source: required("<id>", "the webhook") };
/** An argument would show in the list of processes. */
const KEY_VARIABLE = "PROVIDER_SIGNING_KEY";
const FIELDS = {
  topic: option("<arn>", "SES: the SNS topic; unless given, the first one that asks to be confirmed"),
  publicKey: option("<key>", "SendGrid: the verification key of its event webhook"),
  signingKeyStdin: flag(
    `${namesOfThoseWith("signingKey")}: read the key that signs its requests from standard input, or from ${KEY_VARIABLE}`,
  ),
};

interface Fields {
  topic: string | undefined;
  publicKey: string | undefined;
  signingKeyStdin: boolean;
}

async function fieldsOf(
  { terminal }: Session,
  { topic: topicArn, publicKey, signingKeyStdin }: Fields,
  provider?: ReportProvider,
) {
  // The variable may be left from another provider.
  const isInVariable = provider === undefined || PROVIDERS[provider].needs === "signingKey";
  const inVariable = isInVariable ? terminal.env[KEY_VARIABLE] || undefined : undefined;
  const signingKey = signingKeyStdin ? (await text(terminal.stdin)).trim() : inVariable;
  return { topicArn, publicKey, signingKey };
}

/** Webhooks by which providers report bounces and complaints. */
export const commands: Commands = {
  "provider:add": command(
    "add a webhook by which a provider reports bounces and complaints, and show what to enter there",
    {
      ...OF_TENANT,
      provider: required("<name>", REPORT_PROVIDERS.join(", ").toLowerCase(), oneOf(REPORT_PROVIDERS)),
      ...FIELDS,
    },
    async (session, { provider, ...options }) => {
      const fields = await fieldsOf(session, options, provider);
      const add = (em: EntityManager, tenant: Tenant) => addSource(em, session.vault, tenant, provider, fields);
      return shown(session, [await inTenantOf(session, options, add)]);
    },
  ),

  "provider:set": command(
    "set the topic or the key of a provider's webhook anew",
    { ...SOURCE, ...FIELDS },
    async (session, { source: id, ...options }) => {
      const fields = await fieldsOf(session, options);
      const change = (em: EntityManager) => changeSource(em, session.vault, id, fields);
      return shown(session, [await inOwnersTenant(session, "report_sources", id, change)]);
    },
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
      "USER NAME AND PASSWORD": (source) => {
        const password = passwordOf(vault, source);
        return password ? `${SOURCE_USER} ${password}` : "";
      },
    }),
    data: {
      sources: sources.map((source) => ({
        id: source.id,
        provider: source.provider,
        path: pathOfSource(vault, source),
        topic: source.topicArn ?? null,
        public_key: source.publicKey ?? null,
        has_signing_key: source.encryptedSigningKey != null,
        password: passwordOf(vault, source) ?? null,
      })),
    },
  };
}
