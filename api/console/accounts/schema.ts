import { domainToASCII } from "node:url";
import { z } from "zod";
import { ACCOUNT_PROVIDERS, type SmtpSecurity } from "../../../db/entities/account.ts";
import { lookupAddress, normaliseDomain } from "../../../domain/address.ts";
import { DKIM_ALGORITHMS } from "../../../domain/mail/dkim.ts";
import { address, name, oneLine } from "../../fields.ts";
import { idParamOf } from "../../rest/route.ts";

const SECURITIES = ["starttls", "tls", "none"] as const satisfies readonly SmtpSecurity[];
/** Larger than any limit of a provider, and what the column holds. */
const MOST_MAILS = 2_147_483_647;
const MAX_SECRET_LENGTH = 8_192;

export const accountParams = z.strictObject({ accountId: idParamOf("account", "The id of the sending account.") });
export const keyParams = z.strictObject({ keyId: idParamOf("dkimKey", "The id of the key.") });

const domain = z
  .string()
  .max(253)
  .refine((text) => normaliseDomain(text) !== undefined, {
    error: "must be a domain name, such as example.com",
    abort: true,
  })
  .transform((text) => normaliseDomain(text) ?? text);
const asciiDomain = domain.transform(domainToASCII);

const secret = z.string().min(1).max(MAX_SECRET_LENGTH);
const mails = z.int().min(1).max(MOST_MAILS).nullable();

/** By a password, by an OAuth refresh token, or without a login. */
const credentials = {
  username: oneLine(320).min(1).nullable(),
  password: secret.nullable().default(null),
  client_id: oneLine(1_000).min(1).optional(),
  client_secret: secret.nullable().default(null),
  refresh_token: secret.optional(),
  /** That of the provider unless given. */
  token_url: z.url().max(2_048).optional(),
};
const server = {
  host: z.string().trim().min(1).max(253),
  port: z.int().min(1).max(65_535),
  security: z.enum(SECURITIES),
};
/** A server comes with its login: a login that is stored would be told to any server that a member names. */
export const loginBody = z.strictObject({ ...server, ...credentials });
export type GivenCredentials = Omit<z.output<typeof loginBody>, keyof typeof server>;

const limits = {
  max_connections: z.int().min(1).max(1_000),
  hourly_limit: mails,
  daily_limit: mails,
};

export const connectBody = z.strictObject({
  email: address.transform(lookupAddress),
  display_name: name.optional(),
  provider: z.enum(ACCOUNT_PROVIDERS),
  allowed_domains: z.array(domain).max(100).default([]),
  ...server,
  ...limits,
  ...credentials,
});

export const limitsBody = z.strictObject(limits);

export const domainBody = z.strictObject({ domain: asciiDomain });
export const newKeyBody = z.strictObject({
  domain: asciiDomain,
  algorithm: z.enum(DKIM_ALGORITHMS).default("rsa"),
  /** False makes the next key of a domain that has one. */
  is_first: z.boolean(),
});
