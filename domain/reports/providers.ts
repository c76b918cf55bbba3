import type { AccountProvider } from "../../db/entities/account.ts";
import type { ReportProvider } from "../../db/entities/engagement.ts";
import type { MailRef } from "../mail/links.ts";
import { mailId } from "../mail/message-id.ts";

/**
 * What proves that a request comes from the provider: its signature, with an SNS topic, by a public key or by a key that both
 * sides have, or the password of basic authentication, which the service makes.
 */
export type ProviderNeed = "topicArn" | "publicKey" | "signingKey" | "password";

interface Provider {
  name: string;
  needs: ProviderNeed;
  /** The form of its signing key. */
  signingKey?: RegExp;
  /** Of the sending account whose mails carry the header. */
  account: AccountProvider;
  /** By which the provider names the mail in its reports. */
  header?: (id: string) => string;
  /** Those to report, as the provider's own pages name them. */
  events: string;
}

/** The name of the mail's id in the data that a provider gives back. */
export const MAIL_FIELD = "mailkeel_mail";

/** All that differs between the providers, outside of the files that read their events. */
export const PROVIDERS: Readonly<Record<ReportProvider, Provider>> = {
  SES: { name: "Amazon SES", needs: "topicArn", account: "SMTP_AMAZON_SES", events: "Bounce, Complaint" },
  SENDGRID: {
    ...{ name: "SendGrid", needs: "publicKey", account: "SMTP_SENDGRID", events: "Bounced, Dropped, Spam Reports" },
    header: (id) => `X-SMTPAPI: {"unique_args":{"${MAIL_FIELD}":"${id}"}}`,
  },
  POSTMARK: {
    ...{ name: "Postmark", needs: "password", account: "SMTP_POSTMARK", events: "Bounce, Spam complaint" },
    header: (id) => `X-PM-Metadata-${MAIL_FIELD}: ${id}`,
  },
  MAILGUN: {
    ...{ name: "Mailgun", needs: "signingKey", account: "SMTP_MAILGUN", events: "Permanent Failure, Spam Complaints" },
    signingKey: /^[\w-]{16,200}$/,
    header: (id) => `X-Mailgun-Variables: {"${MAIL_FIELD}":"${id}"}`,
  },
  BREVO: {
    ...{ name: "Brevo", needs: "password", account: "SMTP_BREVO" },
    events: "Hard bounced, Soft bounced, Blocked, Invalid email, Error, Complaint",
    header: (id) => `X-Mailin-custom: ${id}`,
  },
  RESEND: {
    ...{ name: "Resend", needs: "signingKey", account: "SMTP_RESEND" },
    events: "email.bounced, email.complained, email.failed, email.suppressed",
    signingKey: /^whsec_[A-Za-z0-9+/]{16,200}={0,2}$/,
    header: (id) => `X-Mailkeel-Mail: ${id}`,
  },
  MAILJET: {
    ...{ name: "Mailjet", needs: "password", account: "SMTP_MAILJET", events: "Bounce, Blocked, Spam" },
    header: (id) => `X-MJ-CustomID: ${id}`,
  },
  SPARKPOST: {
    ...{ name: "SparkPost", needs: "password", account: "SMTP_SPARKPOST" },
    events: "Bounce, Out of Band, Policy Rejection, Generation Failure, Generation Rejection, Spam Complaint",
    header: (id) => `X-MSYS-API: {"metadata":{"${MAIL_FIELD}":"${id}"}}`,
  },
};

const ALL = Object.values(PROVIDERS);

export const namesOfThoseWith = (need: ProviderNeed): string =>
  ALL.flatMap(({ name, needs }) => (needs === need ? [name] : [])).join(" or ");

/** @returns a function that makes a whole line, for an account whose provider needs one in its mails */
export function providerHeaderOf(account: AccountProvider): ((mail: MailRef) => string) | undefined {
  const header = ALL.find((provider) => provider.account === account)?.header;
  return header && ((mail) => `${header(mailId(mail))}\r\n`);
}
