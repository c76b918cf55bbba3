import { createPublicKey } from "node:crypto";
import { ZodError } from "zod";
import { type ReportProvider, Source } from "../../db/entities/engagement.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { ApiError, orNotFound } from "../errors.ts";
import { idOfSuffix, newId, suffixOfId } from "../ids.ts";
import type { MailRef } from "../mail/links.ts";
import { equalConstantTime, type Vault } from "../secrets/crypto.ts";
import type { MailReport, ReportFinding } from "./record.ts";

export interface ProviderRequest {
  body: Buffer;
  header(name: string): string | undefined;
}

/** Signed, and not as the provider documents it. */
export interface UnreadableEvent {
  /** Names of fields; safe to log. */
  unreadable: string;
}
export type ParsedReport = MailReport | UnreadableEvent;

/** @param read throws a ZodError where the fields are not as documented */
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

export interface ReportSource<Message = unknown> {
  /**
   * @throws {ApiError} 401 for a request that the provider has not signed for this webhook, 503 while that cannot be checked
   */
  verify(request: ProviderRequest, source: Source): Promise<Message>;
  /** None in a message about something else. A field that is null counts as absent. */
  parse(message: Message): ParsedReport[];
  confirm?(em: EntityManager, message: Message, source: Source): Promise<void>;
}

/** Counted as a failed authentication. It has no code of its own, because a provider reads the status alone. */
export const forged = (problem: string): ApiError => new ApiError("api_key_invalid", problem);

/** Signed, and not the JSON that the provider documents. */
export const noJson = (): ApiError => new ApiError("validation_failed", "The message is not JSON as documented.");

export const SOURCE_PATHS = { SES: "/hooks/ses", SENDGRID: "/hooks/sendgrid" } as const satisfies Record<
  ReportProvider,
  string
>;

/** No rotation of SIGNING_SECRET changes the token: a provider keeps the URL for years. */
const signatureOf = (vault: Vault, id: string): string => vault.hash("report-source", id);

/** Keep it secret: a signed token names the webhook. */
export const pathOfSource = (vault: Vault, { id, provider }: Pick<Source, "id" | "provider">): string =>
  `${SOURCE_PATHS[provider]}/${suffixOfId("reportSource", id)}.${signatureOf(vault, id)}`;

const TOKEN = /^[0-9a-z]{26}\.[\w-]{43}$/;

/** Undefined for a token that was not made here. */
export function readSourceToken(vault: Vault, token: string): string | undefined {
  if (!TOKEN.test(token)) return undefined;
  const [suffix = "", signature = ""] = token.split(".");
  const id = idOfSuffix("reportSource", suffix);
  return equalConstantTime(signature, signatureOf(vault, id)) ? id : undefined;
}

export const findSource = (em: EntityManager, provider: ReportProvider, id: string): Promise<Source | null> =>
  em.findOne(Source, { id, provider }, { filters: false });

export interface SourceFields {
  topicArn?: string | undefined;
  /** PEM, or base64 of SPKI in DER. */
  publicKey?: string | undefined;
}

export async function addSource(
  em: EntityManager,
  tenant: Tenant,
  provider: ReportProvider,
  fields: SourceFields,
): Promise<Source> {
  const source = em.create(Source, { id: newId("reportSource"), ...tenant, provider, ...checked(provider, fields) });
  await em.flush();
  return source;
}

/** @throws {ApiError} `not_found` */
export async function changeSource(em: EntityManager, id: string, fields: SourceFields): Promise<Source> {
  const source = orNotFound(await em.findOne(Source, { id }));
  em.assign(source, checked(source.provider, fields));
  await em.flush();
  return source;
}

export const listSources = (em: EntityManager): Promise<Source[]> => em.find(Source, {}, { orderBy: { id: "asc" } });

/** Its URL is refused from the next request on. */
export const removeSource = (em: EntityManager, id: string): Promise<number> => em.nativeDelete(Source, { id });

/** Of a region of one of AWS's three public partitions. */
const TOPIC_ARN = /^arn:(aws|aws-cn|aws-us-gov):sns:([a-z]{2}(?:-[a-z]+)+-\d{1,2}):\d{12}:[\w-]{1,256}(?:\.fifo)?$/;

/** Undefined for a text that names no topic. */
export function hostOfTopic(topicArn: string): string | undefined {
  const [, partition, region] = TOPIC_ARN.exec(topicArn) ?? [];
  if (region === undefined) return undefined;
  return `sns.${region}.amazonaws.com${partition === "aws-cn" ? ".cn" : ""}`;
}

function checked(
  provider: ReportProvider,
  { topicArn, publicKey }: SourceFields,
): Partial<Pick<Source, "topicArn" | "publicKey">> {
  const invalid = (message: string) => new ApiError("validation_failed", message);
  if (topicArn !== undefined && (provider !== "SES" || hostOfTopic(topicArn) === undefined))
    throw invalid("The topic is the ARN of an SNS topic, of a webhook of SES.");
  const key = publicKey === undefined ? undefined : readPublicKey(publicKey);
  if (publicKey !== undefined && (provider !== "SENDGRID" || key === undefined))
    throw invalid("The public key is an EC key on the curve P-256, of a webhook of SendGrid.");
  return { ...(topicArn === undefined ? {} : { topicArn }), ...(key === undefined ? {} : { publicKey: key }) };
}

/** @returns base64 of SPKI in DER; undefined for another text than a key on P-256 */
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
