import { type Command, InvalidArgumentError } from "commander";
import { CURRENT_API_VERSION } from "../../domain/access/keys.ts";
import type { EventName } from "../../domain/webhooks/catalogue.ts";
import { createEndpoint } from "../../domain/webhooks/endpoints.ts";
import { rotateSecret } from "../../domain/webhooks/rotate.ts";
import { eventProblems, resolveEvents } from "../../domain/webhooks/subscription.ts";
import { wholeNumber, withTenant, words } from "../options.ts";
import { inTenant, ownerOf, type Run, type TenantOptions, tenantOf } from "../session.ts";

const DEFAULT_OVERLAP_HOURS = 24;
const MAX_OVERLAP_HOURS = 24 * 30;

interface ConnectOptions extends TenantOptions {
  url: string;
  event: EventName[];
  name?: string;
}

/** Webhook endpoints: those the app makes for itself, and the secrets of all. */
export function webhookCommands(program: Command, run: Run): void {
  withTenant(program.command("webhook:connect"))
    .description("make an endpoint of the app's own, which the API does not list; its secret is shown this once")
    .requiredOption("--url <url>", "where deliveries go", absoluteUrl)
    .requiredOption("--event <names>", "comma-separated events, or * for all there are now", eventNames)
    .option("--name <name>", "its name; the URL's host unless given")
    .action(({ url, event: events, name, ...options }: ConnectOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        await session.checkWebhookUrl(url);
        const registration = { ...tenant, origin: "APP", apiVersion: CURRENT_API_VERSION } as const;
        const { endpoint, secret } = await inTenant(session, tenant, (em) =>
          createEndpoint(em, session.vault, registration, { url, events, name, description: null, headers: {} }),
        );
        return {
          text: `${secret}\nWebhook endpoint ${endpoint.id}. Keep the secret: it is not shown again.`,
          data: { webhook: { id: endpoint.id, url, events: endpoint.events, secret } },
        };
      }),
    );

  program
    .command("webhook:rotate-secret")
    .description("give an endpoint a new secret; it is shown this once")
    .argument("<id>", "the webhook endpoint")
    .option(
      "--overlap-hours <hours>",
      "how long deliveries are signed with the old secret too; 0 for one that leaked",
      wholeNumber(0, MAX_OVERLAP_HOURS),
      DEFAULT_OVERLAP_HOURS,
    )
    .action((id: string, { overlapHours }: { overlapHours: number }) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "webhook_endpoints", id);
        const { secret, previousExpiresAt } = await inTenant(session, tenant, (em) =>
          rotateSecret(em, session.vault, tenant, id, overlapHours),
        );
        const until = previousExpiresAt?.toISOString() ?? null;
        const old = until === null ? "The old one no longer signs" : `The old one signs too until ${until}`;
        return {
          text: `${secret}\nKeep it: it is not shown again. ${old}.`,
          data: { webhook: { id, secret, previous_secret_expires_at: until } },
        };
      }),
    );
}

function absoluteUrl(text: string): string {
  if (!URL.canParse(text)) throw new InvalidArgumentError("It is not a URL.");
  return text;
}

function eventNames(text: string): EventName[] {
  const names = words(text);
  const [problem] = eventProblems(names);
  if (problem) throw new InvalidArgumentError(`${names[problem.index]} ${problem.message}.`);
  if (names.length === 0) throw new InvalidArgumentError("Name one event at least.");
  return resolveEvents(names);
}
