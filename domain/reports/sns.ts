import { type KeyObject, verify, X509Certificate } from "node:crypto";
import { z } from "zod";
import type { FetchedText, FetchText } from "../../lib/fetch-text.ts";
import { ApiError } from "../errors.ts";
import { forged, hostOfTopic } from "./source.ts";

/**
 * https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html. `sns-validator` loads certificates without
 * a limit of time or size, keeps each for good, and takes any path of the host.
 */

const signed = {
  MessageId: z.string(),
  TopicArn: z.string(),
  Message: z.string(),
  Timestamp: z.iso.datetime(),
  SignatureVersion: z.enum(["1", "2"]),
  Signature: z.string(),
  SigningCertURL: z.string(),
};
const subscription = { ...signed, Token: z.string(), SubscribeURL: z.string() };

const snsMessage = z.discriminatedUnion("Type", [
  z.object({ Type: z.literal("Notification"), ...signed, Subject: z.string().nullish() }),
  z.object({ Type: z.literal("SubscriptionConfirmation"), ...subscription }),
  z.object({ Type: z.literal("UnsubscribeConfirmation"), ...subscription }),
]);

export type SnsMessage = z.infer<typeof snsMessage>;

/** In this order, where a message has them. */
const SIGNED_FIELDS = {
  Notification: ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"],
  SubscriptionConfirmation: ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"],
  UnsubscribeConfirmation: ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"],
} as const satisfies Record<SnsMessage["Type"], readonly string[]>;

export function signedText(message: Readonly<Record<string, unknown>> & Pick<SnsMessage, "Type">): string {
  const fields = SIGNED_FIELDS[message.Type].filter((field) => typeof message[field] === "string");
  return fields.map((field) => `${field}\n${message[field]}\n`).join("");
}

/** Version 1 is still the default of a topic. */
const ALGORITHMS = { "1": "RSA-SHA1", "2": "RSA-SHA256" } as const;

/** SNS delivers for an hour at most; the second hour is for clocks. */
const MAX_AGE_MS = 7_200_000;

/** SNS has a new certificate about once a year. */
const CERTIFICATE_LIFETIME_MS = 86_400_000;
/** Other paths of the host may answer with a text that a client of SNS has chosen. */
const CERTIFICATE_PATH = /^\/SimpleNotificationService-[0-9a-zA-Z]{16,64}\.pem$/;

const unavailable = (message: string, cause?: unknown): ApiError =>
  new ApiError("service_unavailable", message, { cause });

/** Answered with 503, because a provider does not repeat a request that got a 4xx. */
const PASSING: ReadonlySet<number> = new Set([403, 408, 429]);

export class SnsVerifier {
  readonly #fetchText: FetchText;
  readonly #keys = new Map<string, { key: Promise<KeyObject>; until: number }>();

  constructor(fetchText: FetchText) {
    this.#fetchText = fetchText;
  }

  /** @throws {ApiError} 401 unless SNS has signed it a short time ago; 503 when the certificate cannot be loaded */
  async verify(body: Buffer): Promise<SnsMessage> {
    const message = orForged(
      () => snsMessage.parse(JSON.parse(body.toString("utf8"))),
      "This is no message of Amazon SNS. Its raw message delivery must be off.",
    );
    const host = hostOfTopic(message.TopicArn);
    if (host === undefined) throw forged("The message is of no topic of Amazon SNS.");
    if (Math.abs(Date.now() - Date.parse(message.Timestamp)) > MAX_AGE_MS) {
      throw forged("The message is too old, or from the future.");
    }
    const url = urlOf(message.SigningCertURL, host);
    if (!CERTIFICATE_PATH.test(url.pathname) || url.search !== "")
      throw forged("This is no certificate of Amazon SNS.");
    const key = await this.#keyAt(url);
    const signature = Buffer.from(message.Signature, "base64");
    if (!verify(ALGORITHMS[message.SignatureVersion], Buffer.from(signedText(message)), key, signature)) {
      throw forged("The signature is not that of Amazon SNS.");
    }
    return message;
  }

  /** Opens the SubscribeURL. @throws {ApiError} 401 for a URL of another topic; 503 when SNS does not confirm */
  async confirm({ SubscribeURL, TopicArn }: SnsMessage & { Type: "SubscriptionConfirmation" }): Promise<void> {
    const url = urlOf(SubscribeURL, hostOfTopic(TopicArn));
    const isConfirmation =
      url.searchParams.get("Action") === "ConfirmSubscription" && url.searchParams.get("TopicArn") === TopicArn;
    if (!isConfirmation) throw forged("The SubscribeURL confirms no subscription to the message's topic.");
    const { status } = await this.#load(url);
    if (status !== 200) throw unavailable(`Amazon SNS answered the confirmation with ${status}.`);
  }

  /** Requests that need a certificate at once share one load. */
  #keyAt(url: URL): Promise<KeyObject> {
    const known = this.#keys.get(url.href);
    if (known && known.until > Date.now()) return known.key;
    const key = this.#loadKey(url);
    this.#keys.set(url.href, { key, until: Date.now() + CERTIFICATE_LIFETIME_MS });
    key.catch(() => this.#keys.delete(url.href));
    return key;
  }

  async #loadKey(url: URL): Promise<KeyObject> {
    const { status, text } = await this.#load(url);
    if (PASSING.has(status) || status >= 500) {
      throw unavailable(`Amazon SNS answered with ${status} for a certificate.`);
    }
    if (status !== 200) throw forged("There is no such certificate of Amazon SNS.");
    const certificate = orForged(() => new X509Certificate(text), "This is no certificate.");
    const now = Date.now();
    if (now < certificate.validFromDate.getTime() || now > certificate.validToDate.getTime()) {
      throw forged("The certificate is not valid today.");
    }
    return certificate.publicKey;
  }

  async #load(url: URL): Promise<FetchedText> {
    try {
      return await this.#fetchText(url);
    } catch (error) {
      throw unavailable("Amazon SNS cannot be reached.", error);
    }
  }
}

function orForged<T>(read: () => T, problem: string): T {
  try {
    return read();
  } catch {
    throw forged(problem);
  }
}

/** @throws {ApiError} 401 for another URL than one of this host by https */
function urlOf(text: string, host: string | undefined): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isOfHost = url?.protocol === "https:" && url.host === host && url.username === "" && url.password === "";
  if (!url || !isOfHost) throw forged("The message names a URL of another host than its topic's.");
  return url;
}
