import { isIPv4, isIPv6 } from "node:net";
import { domainToASCII } from "node:url";
import type { AccountProvider } from "../../db/entities/account.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { domainOf, type SendingKey } from "./keys.ts";

export interface DnsRecord {
  purpose: "DKIM" | "SPF" | "DMARC" | "return path" | "return path SPF";
  /** Without the dot at its end. */
  name: string;
  type: "TXT" | "MX";
  value: string;
}

export interface DomainRecords {
  records: DnsRecord[];
  keys: SendingKey[];
  /** Mechanisms that an SPF record needs. Without any, there is no SPF record to publish yet. */
  spfTerms: string[];
}

/** Other relays are named by their host. */
const PROVIDER_TERMS: Partial<Record<AccountProvider, string>> = {
  GOOGLE: "include:_spf.google.com",
  MICROSOFT: "include:spf.protection.outlook.com",
  SMTP_AMAZON_SES: "include:amazonses.com",
  SMTP_BREVO: "include:spf.brevo.com",
  SMTP_MAILGUN: "include:mailgun.org",
  SMTP_MAILJET: "include:spf.mailjet.com",
  SMTP_POSTMARK: "include:spf.mtasv.net",
  SMTP_RESEND: "include:amazonses.com",
  SMTP_SENDGRID: "include:sendgrid.net",
  SMTP_SPARKPOST: "include:sparkpostmail.com",
};

function hostTerm(host: string): string {
  if (isIPv4(host)) return `ip4:${host}`;
  return isIPv6(host) ? `ip6:${host}` : `a:${domainToASCII(host)}`;
}

async function spfTermsOf(em: EntityManager, tenant: Tenant, domain: string): Promise<string[]> {
  const accounts = await kysely(em)
    .selectFrom("email_accounts")
    .select(["email", "allowed_domains", "provider", "host"])
    .where(ofTenant(tenant))
    .where("status", "<>", "REVOKED")
    .orderBy("id")
    .execute();
  const terms = accounts
    .filter(
      ({ email, allowed_domains }) =>
        domainOf(email) === domain || allowed_domains.some((allowed) => domainToASCII(allowed) === domain),
    )
    .map(({ provider, host }) => PROVIDER_TERMS[provider] ?? hostTerm(host));
  return [...new Set(terms)];
}

/** RFC 6376, section 3.6.1. */
export const dkimRecord = ({ selector, domain, algorithm, publicKey }: SendingKey): DnsRecord => ({
  purpose: "DKIM",
  name: `${selector}._domainkey.${domain}`,
  type: "TXT",
  value: `v=DKIM1; k=${algorithm}; p=${publicKey}`,
});

/** `~all`: mail from other servers fails softly, so that forwarded mail may still pass DMARC by its signature. */
const spfValue = (terms: readonly string[]): string => ["v=spf1", ...terms, "~all"].join(" ");

const INTAKE_SERVER = "<the mail server in front of the intake>";

/** @param returnPathDomain RETURN_PATH_DOMAIN, where it is set */
export async function recordsOf(
  em: EntityManager,
  tenant: Tenant,
  domain: string,
  keys: SendingKey[],
  returnPathDomain: string | undefined,
): Promise<DomainRecords> {
  const spfTerms = await spfTermsOf(em, tenant, domain);
  // A record that names no server would let every mail of the domain fail.
  const spf = (purpose: "SPF" | "return path SPF", name: string): DnsRecord[] =>
    spfTerms.length === 0 ? [] : [{ purpose, name, type: "TXT", value: spfValue(spfTerms) }];
  const records: DnsRecord[] = [
    ...keys.map(dkimRecord),
    ...spf("SPF", domain),
    { purpose: "DMARC", name: `_dmarc.${domain}`, type: "TXT", value: "v=DMARC1; p=none" },
  ];
  if (returnPathDomain !== undefined) {
    records.push({ purpose: "return path", name: returnPathDomain, type: "MX", value: `10 ${INTAKE_SERVER}` });
    // SPF is checked for the envelope sender. Where its domain is the sending domain, the record above serves.
    if (returnPathDomain !== domain) records.push(...spf("return path SPF", returnPathDomain));
  }
  return { records, keys, spfTerms };
}

/** Longest string of a TXT record (RFC 1035, section 3.3). */
const TXT_STRING_BYTES = 255;

export function zoneLine({ name, type, value }: DnsRecord): string {
  if (type === "MX") return `${name}. MX ${value}`;
  const strings = value.match(new RegExp(`.{1,${TXT_STRING_BYTES}}`, "g")) ?? [];
  return `${name}. TXT ${strings.map((text) => `"${text}"`).join(" ")}`;
}
