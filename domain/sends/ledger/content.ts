import { sql } from "kysely";
import type { Env } from "../../../config/env.ts";
import type { AccountProvider } from "../../../db/entities/account.ts";
import type { MailFooter } from "../../../db/entities/team.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { type DkimSigner, dkimSigner, type SignedField } from "../../mail/dkim.ts";
import { prepareInThread } from "../../mail/examination.ts";
import { returnPath, trackingUrl, unsubscribeMailto, unsubscribeUrl, webUrl } from "../../mail/links.ts";
import { composeMessage, type FilledMessage, type MessageContent } from "../../mail/message.ts";
import { messageIdOf } from "../../mail/message-id.ts";
import { newPlaceholder } from "../../mail/tracked-body.ts";
import { providerHeaderOf } from "../../reports/providers.ts";
import type { Vault } from "../../secrets/crypto.ts";
import { domainOf, openKey, type SealedKey, signingKeys } from "../../sending-domains/keys.ts";
import { footerOf } from "../../teams/brand.ts";
import { mailToken, trackedUrls } from "../../tracking/links.ts";
import { footerOfNewsletter } from "../drafts/drafts.ts";
import type { MailResource } from "../resource.ts";
import type { AccountLimits } from "./account-capacity.ts";
import type { OpenedDispatch } from "./lanes.ts";
import type { StagedRecipient } from "./moves.ts";

interface LaneContent {
  subject: string;
  body: string;
  fromEmail: string;
  fromName: string;
  footer: MailFooter;
  listNames: ReadonlyMap<string, string>;
  provider: AccountProvider;
  /** None leaves the mails unsigned. */
  dkimKeys: readonly SealedKey[];
  limits: AccountLimits;
  accountFailed: boolean;
}

/**
 * It does not change once the resource is scheduled, or the wave claimed; of a wave only its footer may. A step is that of a test
 * mail. `fromEmail`: of a newsletter or sequence.
 */
export async function readResourceContent(
  em: EntityManager,
  tenant: Tenant,
  { type, id, stepId }: MailResource,
  sendId: string,
) {
  const { rows } = await sql<
    Record<"subject" | "body" | "from_email" | "from_name", string | null> & { footer: MailFooter }
  >`
    select coalesce(v.subject, d.subject) as subject, coalesce(v.body, d.body) as body, d.from_name,
      coalesce(s.footer, ${type === "newsletter" ? footerOfNewsletter() : footerOf(sql`q.list_id is not null`)}) as footer,
      ${type === "newsletter" ? sql`d.from_email` : sql`q.from_email`}
    from ${sql.table(`${type}s`)} d join teams t on t.id = d.team_id left join sequences q on q.campaign_id = d.id
    left join sends s on s.id = ${sendId} and ${ofTenant(tenant, "s")}
    left join sequence_step_versions v on v.id = coalesce(
      (select version_id from sequence_steps where campaign_id = d.id and step_id = ${stepId ?? null}), s.step_version_id)
    where d.id = ${id} and ${ofTenant(tenant, "d")}`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw new Error(`the ${type} of a send is gone`);
  const { rows: lists } = await sql<{ id: string; name: string }>`
    select l.id, l.name from lists l where ${ofTenant(tenant, "l")} and l.id in (
      select list_id from newsletter_lists where newsletter_id = ${id}
      union all select list_id from sends where id = ${sendId} and ${ofTenant(tenant)}
      union all select list_id from sequences where campaign_id = ${id} and ${ofTenant(tenant)})`.execute(kysely(em));
  return {
    subject: row.subject ?? "",
    body: row.body ?? "",
    fromEmail: row.from_email,
    fromName: row.from_name,
    footer: row.footer,
    listNames: new Map(lists.map((list) => [list.id, list.name])),
  };
}

type Lane = Pick<OpenedDispatch, "teamId" | "environment" | "accountId" | "sendId"> & { resource: MailResource };

export async function readContent(em: EntityManager, dispatch: Lane): Promise<LaneContent> {
  const { resource, accountId } = dispatch;
  const { fromEmail, fromName, ...content } = await readResourceContent(em, dispatch, resource, dispatch.sendId);
  const account = await kysely(em)
    .selectFrom("email_accounts")
    .select(["email", "hourly_limit", "daily_limit", "display_name", "status", "provider"])
    .where("id", "=", accountId)
    .where(ofTenant(dispatch))
    .executeTakeFirstOrThrow();
  const from = fromEmail ?? account.email;
  return {
    ...content,
    fromEmail: from,
    fromName: fromName ?? account.display_name,
    provider: account.provider,
    dkimKeys: await signingKeys(em, dispatch, domainOf(from)),
    limits: { hourly: account.hourly_limit, daily: account.daily_limit },
    accountFailed: account.status === "ERROR",
  };
}

/**
 * A signature over fields that a provider replaces would break. Amazon SES, by which Resend sends:
 * https://docs.aws.amazon.com/ses/latest/dg/send-email-authentication-dkim-manual.html
 */
const REPLACED_FIELDS: Partial<Record<AccountProvider, readonly SignedField[]>> = {
  SMTP_AMAZON_SES: ["Message-ID", "Date"],
  SMTP_RESEND: ["Message-ID", "Date"],
};

function signerOf(vault: Vault, { dkimKeys, provider }: LaneContent): DkimSigner | undefined {
  if (dkimKeys.length === 0) return undefined;
  const sign = dkimSigner(
    dkimKeys.map((key) => openKey(vault, key)),
    REPLACED_FIELDS[provider],
  );
  return (message) => {
    const signature = sign(message);
    // Not awaited when the server refuses the recipient: its rejection must not count as unhandled.
    signature.catch(() => {});
    return signature;
  };
}

/** @returns a function that fills in a recipient's part of a lane's mails */
export async function composeMails(
  { vault, env }: { vault: Vault; env: Env },
  lane: Pick<OpenedDispatch, "teamId" | "sendId" | "tracking">,
  laneContent: LaneContent,
): Promise<(recipient: StagedRecipient) => FilledMessage> {
  const { subject, body, fromEmail, fromName, footer, listNames, provider } = laneContent;
  const { teamId, sendId } = lane;
  const { RETURN_PATH_DOMAIN: domain } = env;
  const isTracking = lane.tracking !== "OFF";
  const tracking = isTracking ? { ownUrl: env.PUBLIC_URL } : undefined;
  const content: MessageContent = { subject, html: body, fromEmail, fromName, footer, tracking };
  const urls = isTracking ? trackedUrls(vault, env.PUBLIC_URL, sendId, newPlaceholder()) : undefined;
  const message = composeMessage(content, await prepareInThread(teamId, content), urls);
  const messageIdDomain = domainOf(fromEmail);
  const sign = signerOf(vault, laneContent);
  const providerHeader = providerHeaderOf(provider);
  return ({ seq, email, firstName, lastName, listId, fields, tracked }) => {
    const mail = { sendId, seq };
    const filled = message.fill({
      email,
      firstName,
      lastName,
      listName: listId === null ? undefined : listNames.get(listId),
      fields: fields ?? undefined,
      unsubscribeUrl: unsubscribeUrl(vault, env.PUBLIC_URL, mail),
      trackingUrl: isTracking || body.includes("tracking_url") ? trackingUrl(vault, env.PUBLIC_URL, mail) : undefined,
      webUrl: body.includes("web_url") || footer.isOnWeb ? webUrl(vault, env.PUBLIC_URL, mail) : undefined,
      unsubscribeMailto: domain === undefined ? undefined : unsubscribeMailto(vault, domain, mail),
      envelopeFrom: domain === undefined ? undefined : returnPath(vault, domain, mail),
      mailToken: tracked ? mailToken(vault, mail) : undefined,
      messageId: messageIdOf(mail, messageIdDomain),
      date: new Date(),
      providerHeader: providerHeader?.(mail),
    });
    return sign ? { ...filled, signature: sign(filled.message) } : filled;
  };
}
