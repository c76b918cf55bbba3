import { createPublicKey } from "node:crypto";
import { ZodError } from "zod";
import type { ReportProvider } from "../../db/entities/engagement.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError, notFound } from "../errors.ts";
import { idOfSuffix, newId, suffixOfId } from "../ids.ts";
import type { MailRef } from "../mail/links.ts";
import { equalConstantTime, type Vault } from "../secrets/crypto.ts";
import type { MailReport, ReportFinding } from "./record.ts";

/** A provider's webhook about a tenant's mails. */
export interface SourceRow extends Tenant {
  id: string;
  provider: ReportProvider;
  /** The SNS topic of a webhook of SES; null until its subscription is confirmed. */
  topicArn: string | null;
  /** The key of a webhook of SendGrid, base64 of SPKI in DER; null until it is set. */
  publicKey: string | null;
}

/** A request to a provider's webhook. */
export interface ProviderRequest {
  body: Buffer;
  /** @returns the header's first value */
  header(name: string): string | undefined;
}

/** An event that a provider has signed and this version cannot read. */
export interface UnreadableEvent {
  /** The fields that are not as the provider documents them; safe to log. */
  unreadable: string;
}
export type ParsedReport = MailReport | UnreadableEvent;

/**
 * Reads an event about a mail of this service; none about another mail.
 * @param read gives what it reports, and throws a ZodError where its fields are not as documented
 */
export function readEvent(mail: MailRef | undefined, read: () => ReportFinding | undefined): ParsedReport[] {
  if (!mail) return [];
  try {
    const finding = read();
    return finding ? [{ ...mail, ...finding }] : [];
  } catch (error) {
    if (!(error instanceof ZodError)) throw error;
    return [{ unreadable: error.issues.map(({ path }) => path.join(".")).join(", ") }];
  }
}

/** Verifies and reads the requests of a provider's webhook. */
export interface ReportSource<Message = unknown> {
  /**
   * Reads a request that the provider has signed for this webhook.
   * @throws {ApiError} 401 for one that it has not signed, 503 while the signature cannot be checked
   */
  verify(request: ProviderRequest, source: SourceRow): Promise<Message>;
  /** The reports in a message; none in one about something else. A field that is null counts as absent. */
  parse(message: Message): ParsedReport[];
  /** Confirms the subscription of the webhook, where the message asks for that. */
  confirm?(em: EntityManager, message: Message, source: SourceRow): Promise<void>;
}

/**
 * The refusal of a request that its provider has not signed, or not for this webhook. It is counted as a failed
 * authentication. It has no error code of its own, because a provider reads the status alone.
 */
export const forged = (problem: string): ApiError => new ApiError("api_key_invalid", problem);

/** The refusal of a signed request that no version can read: it is not the JSON that the provider documents. */
export const noJson = (): ApiError => new ApiError("validation_failed", "The message is not JSON as documented.");

/** Paths of the webhooks, without their tokens. */
export const SOURCE_PATHS = { SES: "/hooks/ses", SENDGRID: "/hooks/sendgrid" } as const satisfies Record<
  ReportProvider,
  string
>;

/** No rotation of SIGNING_SECRET changes the token: a provider keeps the URL for years. */
const signatureOf = (vault: Vault, id: string): string => vault.hash("report-source", id);

/** The path of a provider's webhook: a signed token in it names the webhook. Keep it secret. */
export const pathOfSource = (vault: Vault, { id, provider }: Pick<SourceRow, "id" | "provider">): string =>
  `${SOURCE_PATHS[provider]}/${suffixOfId("reportSource", id)}.${signatureOf(vault, id)}`;

const sourceRows = (em: EntityManager) =>
  kysely(em)
    .selectFrom("report_sources")
    .select(["id", "team_id as teamId", "environment", "provider", "topic_arn as topicArn", "public_key as publicKey"]);

const TOKEN = /^[0-9a-z]{26}\.[\w-]{43}$/;

/** The id of the webhook that a token was made for; undefined for a token that was not made here. */
export function readSourceToken(vault: Vault, token: string): string | undefined {
  if (!TOKEN.test(token)) return undefined;
  const [suffix = "", signature = ""] = token.split(".");
  const id = idOfSuffix("reportSource", suffix);
  return equalConstantTime(signature, signatureOf(vault, id)) ? id : undefined;
}

/** A webhook of a provider by its id, for a request whose token names it. */
export async function findSource(
  em: EntityManager,
  provider: ReportProvider,
  id: string,
): Promise<SourceRow | undefined> {
  const row = await sourceRows(em).where("id", "=", id).executeTakeFirst();
  return row?.provider === provider ? row : undefined;
}

export interface SourceFields {
  topicArn?: string | undefined;
  /** PEM or base64 of SPKI in DER */
  publicKey?: string | undefined;
}

/** Adds a provider's webhook to a tenant. @throws {ApiError} `validation_failed` */
export async function addSource(
  em: EntityManager,
  tenant: Tenant,
  provider: ReportProvider,
  fields: SourceFields,
): Promise<SourceRow> {
  const row = { id: newId("reportSource"), provider, topicArn: null, publicKey: null, ...checked(provider, fields) };
  await kysely(em)
    .insertInto("report_sources")
    .values({
      id: row.id,
      team_id: tenant.teamId,
      environment: tenant.environment,
      provider,
      topic_arn: row.topicArn,
      public_key: row.publicKey,
    })
    .execute();
  return { ...row, ...tenant };
}

/** Replaces the topic or the public key of a webhook. @throws {ApiError} `not_found`, `validation_failed` */
export async function changeSource(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  fields: SourceFields,
): Promise<SourceRow> {
  const row = await sourceRows(em).where("id", "=", id).where(ofTenant(tenant)).executeTakeFirst();
  if (!row) throw notFound();
  const changed = { ...row, ...checked(row.provider, fields) };
  await kysely(em)
    .updateTable("report_sources")
    .set({ topic_arn: changed.topicArn, public_key: changed.publicKey })
    .where("id", "=", id)
    .where(ofTenant(tenant))
    .execute();
  return changed;
}

/** The webhooks of a tenant, in the order in which they were added. */
export const listSources = (em: EntityManager, tenant: Tenant): Promise<SourceRow[]> =>
  sourceRows(em).where(ofTenant(tenant)).orderBy("id").execute();

/** Removes a webhook: its URL is refused from the next request on. */
export async function removeSource(em: EntityManager, tenant: Tenant, id: string): Promise<void> {
  await kysely(em).deleteFrom("report_sources").where("id", "=", id).where(ofTenant(tenant)).execute();
}

/** `arn:aws:sns:eu-west-1:123456789012:name`, of a region of one of AWS's three public partitions. */
const TOPIC_ARN = /^arn:(aws|aws-cn|aws-us-gov):sns:([a-z]{2}(?:-[a-z]+)+-\d{1,2}):\d{12}:[\w-]{1,256}(?:\.fifo)?$/;

/** The host of Amazon SNS that a topic belongs to; undefined for a text that names no topic. */
export function hostOfTopic(topicArn: string): string | undefined {
  const [, partition, region] = TOPIC_ARN.exec(topicArn) ?? [];
  if (region === undefined) return undefined;
  return `sns.${region}.amazonaws.com${partition === "aws-cn" ? ".cn" : ""}`;
}

/** @throws {ApiError} `validation_failed` for a field that the provider does not have, or that cannot be used */
function checked(provider: ReportProvider, { topicArn, publicKey }: SourceFields): Partial<SourceRow> {
  const invalid = (message: string) => new ApiError("validation_failed", message);
  if (topicArn !== undefined && (provider !== "SES" || hostOfTopic(topicArn) === undefined))
    throw invalid("The topic is the ARN of an SNS topic, of a webhook of SES.");
  const key = publicKey === undefined ? undefined : readPublicKey(publicKey);
  if (publicKey !== undefined && (provider !== "SENDGRID" || key === undefined))
    throw invalid("The public key is an EC key on the curve P-256, of a webhook of SendGrid.");
  return { ...(topicArn === undefined ? {} : { topicArn }), ...(key === undefined ? {} : { publicKey: key }) };
}

/** @returns base64 of SPKI in DER; undefined for another text than such a key of an EC on P-256 */
function readPublicKey(text: string): string | undefined {
  try {
    const der = { key: Buffer.from(text, "base64"), format: "der", type: "spki" } as const;
    const key = createPublicKey(text.includes("-----") ? text : der);
    if (key.asymmetricKeyDetails?.namedCurve !== "prime256v1") return undefined;
    return key.export({ format: "der", type: "spki" }).toString("base64");
  } catch {
    return undefined;
  }
}
