import { createPublicKey } from "node:crypto";
import { ZodError, type ZodType } from "zod";
import { type ReportProvider, Source } from "../../db/entities/engagement.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { isObject } from "../../lib/json-object.ts";
import { ApiError, orNotFound } from "../errors.ts";
import { idOfSuffix, newId, suffixOfId } from "../ids.ts";
import type { MailRef } from "../mail/links.ts";
import { readMailId } from "../mail/message-id.ts";
import { equalConstantTime, sealContext, type Vault } from "../secrets/crypto.ts";
import type { ReportedHit } from "../tracking/record.ts";
import { namesOfThoseWith, PROVIDERS } from "./providers.ts";
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
export type ParsedReport = MailReport | ReportedHit | UnreadableEvent;

/** The report in an event about a mail; undefined where the event does not concern its mail. */
export type Finding = ReportFinding | Omit<ReportedHit, keyof MailRef> | undefined;

/** @param read throws a ZodError where the fields are not as documented */
export function readEvent(mail: MailRef | undefined, read: () => Finding): ParsedReport[] {
  if (!mail) return [];
  try {
    const finding = read();
    return finding ? [{ ...mail, ...finding }] : [];
  } catch (error) {
    if (!(error instanceof ZodError)) throw error;
    return [{ unreadable: error.issues.map(({ path }) => path.join(".")).join(", ") }];
  }
}

function propertyOf(value: unknown, name: string): unknown {
  if (isObject(value)) return value[name];
  // Headers, each with its name and its value.
  const named = Array.isArray(value) ? value.filter(isObject) : [];
  return named.find((header) => String(header["name"]).toLowerCase() === name)?.["value"];
}

/** A text or a number below these names; empty where there is none. A step through a list is a header's name in lower case. */
export function textAt(given: unknown, path: readonly string[]): string {
  const found = path.reduce(propertyOf, given);
  return typeof found === "string" || typeof found === "number" ? String(found) : "";
}

type Paths = readonly (readonly string[])[];

/** The mail whose id is at one of these places. */
export const mailAt = (given: unknown, paths: Paths): MailRef | undefined =>
  paths.map((path) => readMailId(textAt(given, path))).find((mail) => mail !== undefined);

/** @param ids where an event holds the mail's id */
export const eventReader =
  <Event>(ids: Paths, schema: ZodType<Event>, read: (event: Event) => Finding) =>
  (events: readonly unknown[]): ParsedReport[] =>
    events.flatMap((given) => readEvent(mailAt(given, ids), () => read(schema.parse(given))));

/** An array of events, or one alone. @throws {ApiError} `validation_failed` for other texts */
export function readEvents(body: Buffer): unknown[] {
  try {
    const events: unknown = JSON.parse(body.toString("utf8"));
    if (Array.isArray(events)) return events;
    if (isObject(events)) return [events];
  } catch {
    // Refused below.
  }
  throw noJson();
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

/** @param timestamp in seconds @throws {ApiError} 401 */
export function refuseOld(timestamp: string, maxAgeSeconds: number): void {
  const seconds = /^\d{1,12}$/.test(timestamp) ? Number(timestamp) : 0;
  const age = Math.abs(Date.now() / 1_000 - seconds);
  if (age > maxAgeSeconds) throw forged("The request is too old, or from the future.");
}

/** Signed, and not the JSON that the provider documents. */
export const noJson = (): ApiError => new ApiError("validation_failed", "The message is not JSON as documented.");

export const pathOfProvider = (provider: ReportProvider): string => `/hooks/${provider.toLowerCase()}`;

/** No rotation of SIGNING_SECRET changes the token: a provider keeps the URL for years. */
const signatureOf = (vault: Vault, id: string): string => vault.hash("report-source", id);

/** Keep it secret: a signed token names the webhook. */
export const pathOfSource = (vault: Vault, { id, provider }: Pick<Source, "id" | "provider">): string =>
  `${pathOfProvider(provider)}/${suffixOfId("reportSource", id)}.${signatureOf(vault, id)}`;

const TOKEN = /^[0-9a-z]{26}\.[\w-]{43}$/;

/** Undefined for a token that was not made here. */
export function readSourceToken(vault: Vault, token: string): string | undefined {
  if (!TOKEN.test(token)) return undefined;
  const [suffix = "", signature = ""] = token.split(".");
  const id = idOfSuffix("reportSource", suffix);
  return equalConstantTime(signature, signatureOf(vault, id)) ? id : undefined;
}

/** The login name of every webhook with a password. */
export const SOURCE_USER = "mailkeel";

/** Undefined for a webhook that proves its requests by a signature. Like the token it is stored nowhere. */
export const passwordOf = (vault: Vault, { id, provider }: Pick<Source, "id" | "provider">): string | undefined =>
  PROVIDERS[provider].needs === "password" ? vault.hash("report-source", id, "password") : undefined;

/** Verifies basic authentication. @returns the events of the body */
export const byPassword =
  (vault: Vault): ReportSource<unknown[]>["verify"] =>
  async ({ body, header }, source) => {
    const [, given = ""] = /^Basic +([A-Za-z0-9+/=]{1,400})$/i.exec(header("authorization") ?? "") ?? [];
    const login = `${SOURCE_USER}:${passwordOf(vault, source)}`;
    if (!equalConstantTime(Buffer.from(given, "base64").toString("utf8"), login)) {
      throw forged("The user name and the password are not those of the webhook.");
    }
    return readEvents(body);
  };

export const findSource = (em: EntityManager, provider: ReportProvider, id: string): Promise<Source | null> =>
  em.findOne(Source, { id, provider }, { filters: false });

export interface SourceFields {
  topicArn?: string | undefined;
  /** PEM, or base64 of SPKI in DER. */
  publicKey?: string | undefined;
  signingKey?: string | undefined;
}

export async function addSource(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  provider: ReportProvider,
  fields: SourceFields,
): Promise<Source> {
  const id = newId("reportSource");
  const source = em.create(Source, { id, ...tenant, provider, ...checked(vault, { id, provider }, fields) });
  await em.flush();
  return source;
}

/** @throws {ApiError} `not_found` */
export async function changeSource(em: EntityManager, vault: Vault, id: string, fields: SourceFields): Promise<Source> {
  const source = orNotFound(await em.findOne(Source, { id }));
  em.assign(source, checked(vault, source, fields));
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

const signingKeyContext = (id: string): string => sealContext("report_sources", "encrypted_signing_key", id);

/** @throws {ApiError} 401 for a webhook without one */
export function signingKeyOf(vault: Vault, source: Pick<Source, "id" | "encryptedSigningKey">): string {
  const { id, encryptedSigningKey } = source;
  if (encryptedSigningKey == null) throw forged("The webhook has no signing key yet; set it with provider:set.");
  return vault.decrypt(encryptedSigningKey, signingKeyContext(id));
}

/** The forms of the fields, by the provider's need. Each returns the text to store; undefined for another text. */
const FORMS = {
  topicArn: ["The topic is the ARN of an SNS topic", (text) => hostOfTopic(text) && text],
  publicKey: ["The public key is an EC key on the curve P-256", readPublicKey],
  signingKey: ["The signing key is the provider's own", (text, form) => (form?.test(text) ? text : undefined)],
} as const satisfies Record<keyof SourceFields, [string, (text: string, form?: RegExp) => string | undefined]>;

/** @throws {ApiError} `validation_failed` for a field that the provider does not need, or that is not in its form */
function checked(vault: Vault, { id, provider }: Pick<Source, "id" | "provider">, fields: SourceFields) {
  const { needs, signingKey: form } = PROVIDERS[provider];
  const read = (field: keyof typeof FORMS): string | undefined => {
    const text = fields[field];
    const [what, readForm] = FORMS[field];
    const value = text !== undefined && needs === field ? readForm(text, form) : undefined;
    if (text === undefined || value !== undefined) return value;
    throw new ApiError("validation_failed", `${what}, of a webhook of ${namesOfThoseWith(field)}.`);
  };
  const [topicArn, publicKey, signingKey] = [read("topicArn"), read("publicKey"), read("signingKey")];
  return {
    ...(topicArn && { topicArn }),
    ...(publicKey && { publicKey }),
    ...(signingKey && { encryptedSigningKey: vault.encrypt(signingKey, signingKeyContext(id)) }),
  };
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
