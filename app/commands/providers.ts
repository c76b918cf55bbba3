import { type Command, Option } from "commander";
import { REPORT_PROVIDERS, type ReportProvider } from "../../db/entities/engagement.ts";
import {
  addSource,
  changeSource,
  listSources,
  pathOfSource,
  removeSource,
  type SourceFields,
  type SourceRow,
} from "../../domain/reports/source.ts";
import { oneOf, withTenant } from "../options.ts";
import { inTenant, type Outcome, ownerOf, type Run, type Session, type TenantOptions, tenantOf } from "../session.ts";

interface FieldOptions {
  topic?: string;
  publicKey?: string;
}

const withFields = (command: Command): Command =>
  command
    .option("--topic <arn>", "SES: the SNS topic; unless given, the first one that asks to be confirmed")
    .option("--public-key <key>", "SendGrid: the verification key of its event webhook");

const fieldsOf = ({ topic, publicKey }: FieldOptions): SourceFields => ({ topicArn: topic, publicKey });

/** Webhooks by which providers report bounces and complaints. */
export function providerCommands(program: Command, run: Run): void {
  withFields(
    withTenant(program.command("provider:add"))
      .description("add a webhook by which a provider reports bounces and complaints, and show its path")
      .addOption(
        new Option("--provider <name>", REPORT_PROVIDERS.join(", ").toLowerCase())
          .makeOptionMandatory()
          .argParser(oneOf(REPORT_PROVIDERS)),
      ),
  ).action((options: TenantOptions & FieldOptions & { provider: ReportProvider }) =>
    run(async (session) => {
      const tenant = await tenantOf(session, options);
      const source = await inTenant(session, tenant, (em) =>
        addSource(em, tenant, options.provider, fieldsOf(options)),
      );
      return shown(session, [source]);
    }),
  );

  withFields(
    program
      .command("provider:set")
      .description("set the topic or the public key of a provider's webhook anew")
      .requiredOption("--source <id>", "the webhook"),
  ).action(({ source: id, ...fields }: FieldOptions & { source: string }) =>
    run(async (session) => {
      const tenant = await ownerOf(session, "report_sources", id);
      return shown(session, [await inTenant(session, tenant, (em) => changeSource(em, tenant, id, fieldsOf(fields)))]);
    }),
  );

  withTenant(program.command("provider:list"))
    .description("list the webhooks of providers")
    .action((options: TenantOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        return shown(session, await inTenant(session, tenant, (em) => listSources(em, tenant)));
      }),
    );

  program
    .command("provider:remove")
    .description("remove a provider's webhook: its URL is refused from now on")
    .requiredOption("--source <id>", "the webhook")
    .action(({ source: id }: { source: string }) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "report_sources", id);
        await inTenant(session, tenant, (em) => removeSource(em, tenant, id));
        return { text: `${id} is removed`, data: { source: { id, removed: true } } };
      }),
    );
}

/** The path below PUBLIC_URL, which the command line need not know. */
function shown({ vault }: Session, sources: readonly SourceRow[]): Outcome {
  const lines = sources.map((source) => `${source.id} ${source.provider} PUBLIC_URL${pathOfSource(vault, source)}`);
  return {
    text: lines.join("\n") || "There is none; provider:add adds one",
    data: {
      sources: sources.map((source) => ({
        id: source.id,
        provider: source.provider,
        path: pathOfSource(vault, source),
        topic: source.topicArn,
        public_key: source.publicKey,
      })),
    },
  };
}
