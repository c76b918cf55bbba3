// Made from the OpenAPI document by `npm run client`: do not edit it.
import { Changes, type Listing, listingOf } from "./pages.ts";
import type { Answer, DryRunOption, Outcome, Page, RequestOptions, Transport, WriteOptions } from "./transport.ts";

/** The dated version of the API that these types describe. */
export const SERVICE_VERSION = "2026-08-15";

export type AddListSubscribersBody = {
  /** Ids of subscribers. */
  subscriber_ids: Array<string>;
};

/** The outcomes of the mails of a range of days. */
export type AnalyticsOverview = {
  object: "analytics_overview";
  /** The first and the last day. */
  id: string;
  /** The first day, in UTC. */
  from: string;
  /** The last day, in UTC. */
  to: string;
  /** The sums over all days. */
  totals: {
    /** Mails that a server accepted. */
    sent: number;
    /** Of `sent`, mails whose opens and clicks are counted. */
    tracked: number;
    /** `sent` less both kinds of bounces. */
    delivered: number;
    /** Mails that a server refused. */
    rejected: number;
    /** Accepted mails that came back because the address does not exist. */
    bounced_hard: number;
    /** Accepted mails that came back for another reason, such as a full mailbox. */
    bounced_soft: number;
    /** Accepted mails that their recipients called spam. */
    complained: number;
    /** Opt-outs. */
    unsubscribed: number;
    /** Recipients left out while the mails went out, because they had become suppressed or opted out since the confirmation. */
    suppressed: number;
    /** Mails whose outcome is not known, because a connection or a worker was lost. */
    unknown: number;
    /** Opens that were tracked, without those of programs. */
    opened: number;
    /** Mails with at least one such open. */
    opened_unique: number;
    /** Clicks on links by people. */
    clicked: number;
    /** Mails with at least one click by a person. */
    clicked_unique: number;
    /** Of `opened`, those that a program may have made. */
    opened_unknown: number;
    /** Opens by programs, which `opened` leaves out. */
    opened_machine: number;
    /** Clicks that a program may have made, which `clicked` leaves out. */
    clicked_unknown: number;
    /** Clicks by programs, which `clicked` leaves out. */
    clicked_machine: number;
  };
  /** Fractions of the totals, from 0 to 1. Without a divisor `opened` and `clicked` are null, the others 0. */
  rates: {
    /** `delivered` over `sent`. */
    delivered: number;
    /** Both kinds of bounces over `sent`. */
    bounced: number;
    /** `rejected` over `sent` and `rejected`. */
    rejected: number;
    /** `complained` over `delivered`. */
    complained: number;
    /** `unsubscribed` over `delivered`. */
    unsubscribed: number;
    /** `opened_unique` over `tracked`; null where no mail is tracked. */
    opened: number | null;
    /** `clicked_unique` over `tracked`; null where no mail is tracked. */
    clicked: number | null;
  };
  /** Every day of the range, oldest first; one without mails has zeros. */
  days: Array<{
    /** The day, in UTC. */
    date: string;
    /** Mails that a server accepted. */
    sent: number;
    /** Of `sent`, mails whose opens and clicks are counted. */
    tracked: number;
    /** `sent` less both kinds of bounces. */
    delivered: number;
    /** Mails that a server refused. */
    rejected: number;
    /** Accepted mails that came back because the address does not exist. */
    bounced_hard: number;
    /** Accepted mails that came back for another reason, such as a full mailbox. */
    bounced_soft: number;
    /** Accepted mails that their recipients called spam. */
    complained: number;
    /** Opt-outs. */
    unsubscribed: number;
    /** Recipients left out while the mails went out, because they had become suppressed or opted out since the confirmation. */
    suppressed: number;
    /** Mails whose outcome is not known, because a connection or a worker was lost. */
    unknown: number;
    /** Opens that were tracked, without those of programs. */
    opened: number;
    /** Mails with at least one such open. */
    opened_unique: number;
    /** Clicks on links by people. */
    clicked: number;
    /** Mails with at least one click by a person. */
    clicked_unique: number;
    /** Of `opened`, those that a program may have made. */
    opened_unknown: number;
    /** Opens by programs, which `opened` leaves out. */
    opened_machine: number;
    /** Clicks that a program may have made, which `clicked` leaves out. */
    clicked_unknown: number;
    /** Clicks by programs, which `clicked` leaves out. */
    clicked_machine: number;
  }>;
};

/** A mail to the contacts of a segment, over several sending accounts. */
export type Campaign = {
  object: "campaign";
  /** The id of the record. */
  id: string;
  /** The name, for the team alone. */
  name: string;
  /** The subject, a Liquid template of one line. */
  subject: string | null;
  /** The name in From. */
  from_name: string | null;
  /** The HTML, a Liquid template. Merge tags: `email`, `first_name`, `last_name`, `list_name`, `unsubscribe_url`, `tracking_url`, `web_url`, `postal_address`, and `fields.NAME` for a custom field (`list_name` is empty). Every mail gets a link to unsubscribe. */
  body: string | null;
  /** Only a `DRAFT` can be changed, deleted or sent. A sequence is a `DRAFT`, `ACTIVE`, `PAUSED` or `STOPPED`. */
  status: "DRAFT" | "SCHEDULED" | "SENDING" | "PAUSED" | "SENT" | "CANCELLED" | "FAILED" | "ACTIVE" | "STOPPED";
  /** Why its send is paused: `paused_by_client`, or the code of a failure, or the code of each account after its id; null when an operator paused it, and in every other status. */
  status_reason: string | null;
  /** The id of the segment that it targets; it is set in the app. A draft whose segment is deleted has none; a campaign that was scheduled keeps it. */
  segment_id: string | null;
  /** Ids of the sending accounts that mail it; they are set in the app. */
  account_ids: Array<string>;
  /** It is a sequence of mails over time, which is changed and run in the app alone. */
  is_drip: boolean;
  /** The id of its send; null before the confirmation. */
  send_id: string | null;
  /** ISO weekdays, 1 for Monday, in the team's time zone; none means any day. */
  send_days: Array<number>;
  /** When it is to be sent; of a draft its time, which is set in the app, if it has one. */
  send_at: string | null;
  /** When its first mails left. */
  started_at: string | null;
  /** When its send ended. */
  completed_at: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
};

/** A campaign as events show it: without its body. */
export type CampaignOfEvent = {
  object: "campaign";
  /** The id of the record. */
  id: string;
  /** The name, for the team alone. */
  name: string;
  /** The subject, a Liquid template of one line. */
  subject: string | null;
  /** The name in From. */
  from_name: string | null;
  /** Only a `DRAFT` can be changed, deleted or sent. A sequence is a `DRAFT`, `ACTIVE`, `PAUSED` or `STOPPED`. */
  status: "DRAFT" | "SCHEDULED" | "SENDING" | "PAUSED" | "SENT" | "CANCELLED" | "FAILED" | "ACTIVE" | "STOPPED";
  /** Why its send is paused: `paused_by_client`, or the code of a failure, or the code of each account after its id; null when an operator paused it, and in every other status. */
  status_reason: string | null;
  /** The id of the segment that it targets; it is set in the app. A draft whose segment is deleted has none; a campaign that was scheduled keeps it. */
  segment_id: string | null;
  /** Ids of the sending accounts that mail it; they are set in the app. */
  account_ids: Array<string>;
  /** The id of its send; null before the confirmation. */
  send_id: string | null;
  /** ISO weekdays, 1 for Monday, in the team's time zone; none means any day. */
  send_days: Array<number>;
  /** When it is to be sent; of a draft its time, which is set in the app, if it has one. */
  send_at: string | null;
  /** When its first mails left. */
  started_at: string | null;
  /** When its send ended. */
  completed_at: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
  /** Recipients by state once the send has ended, which add up to `total`; null before. */
  recipients: {
    /** All recipients of the send. */
    total: number;
    /** Waiting. */
    queued: number;
    /** Their mail may be leaving right now. */
    sending: number;
    /** Accepted by the sending account's server. */
    sent: number;
    /** Refused for good by that server. */
    rejected: number;
    /** Refused for now; tried again. */
    deferred: number;
    /** The connection ended before the server's answer: their mail may have left. */
    unknown: number;
    /** Refused for now too often. */
    expired: number;
    /** Left out: suppressed or opted out after the confirmation. */
    suppressed: number;
    /** Left out: the send was cancelled. */
    cancelled: number;
  } | null;
};

/** The payload of `campaign.scheduled`, `campaign.started`, `campaign.paused`, `campaign.completed`, `campaign.cancelled`. */
export type CampaignPayload = {
  /** The id of the event. */
  id: string;
  object: "event";
  /** The name of the event. */
  type: string;
  api_version: "2026-08-15";
  created_at: string;
  data: {
    object: CampaignOfEvent;
  };
};

/** A confirmed send. */
export type CampaignSend = {
  object: "campaign_send";
  /** The id of the record. */
  id: string;
  /** The id of the campaign. */
  campaign_id: string;
  status: "SCHEDULED";
  /** Recipients of the send. */
  recipients: number;
  /** Email credits that were reserved. */
  credits_reserved: number;
  /** When the send starts. */
  send_at: string;
  send_cap: SendCap;
};

/** The plan of a send: its recipients, its cost and the token to confirm it. */
export type CampaignSendPreview = {
  object: "campaign_send_preview";
  /** The id of the record. */
  id: string;
  /** The id of the campaign. */
  campaign_id: string;
  /** The recipients, after permissions and suppressions. */
  recipients: {
    /** Contacts of the targeted segment. */
    total: number;
    /** Left out: no valid address. */
    invalid: number;
    /** Left out: on the do-not-mail list. */
    suppressed: number;
    /** Those that get the mail: `total` less the two that are left out. */
    eligible: number;
    /** Of `eligible`, those whose opens and clicks are counted, by their answers until now. */
    tracked: number;
  };
  /** Email credits that the send uses; they are reserved at the confirmation. */
  credits_required: number;
  /** When the send starts; null: once it is confirmed, or when the next allowed day begins. */
  send_at: string | null;
  send_cap: SendCap;
  /** The addresses in From, one for each sending account. */
  from_addresses: Array<string>;
  /** The address of the first sending account. */
  sending_account_address: string;
  /** The addresses of all sending accounts. */
  sending_account_addresses: Array<string>;
  /** Complaints over delivered mail, as fractions. At the threshold the API sends nothing. */
  complaint_rate: {
    rate: number;
    threshold: number;
    window_days: number;
  };
  /** For the confirmation by `sendCampaign`. */
  confirmation: {
    /** Confirms this plan, once. */
    token: string;
    /** 15 minutes after the preview. */
    expires_at: string;
  };
};

/** A campaign with its recipients by state, or a sequence with its steps. */
export type CampaignWithRecipients = {
  object: "campaign";
  /** The id of the record. */
  id: string;
  /** The name, for the team alone. */
  name: string;
  /** The subject, a Liquid template of one line. */
  subject: string | null;
  /** The name in From. */
  from_name: string | null;
  /** The HTML, a Liquid template. Merge tags: `email`, `first_name`, `last_name`, `list_name`, `unsubscribe_url`, `tracking_url`, `web_url`, `postal_address`, and `fields.NAME` for a custom field (`list_name` is empty). Every mail gets a link to unsubscribe. */
  body: string | null;
  /** Only a `DRAFT` can be changed, deleted or sent. A sequence is a `DRAFT`, `ACTIVE`, `PAUSED` or `STOPPED`. */
  status: "DRAFT" | "SCHEDULED" | "SENDING" | "PAUSED" | "SENT" | "CANCELLED" | "FAILED" | "ACTIVE" | "STOPPED";
  /** Why its send is paused: `paused_by_client`, or the code of a failure, or the code of each account after its id; null when an operator paused it, and in every other status. */
  status_reason: string | null;
  /** The id of the segment that it targets; it is set in the app. A draft whose segment is deleted has none; a campaign that was scheduled keeps it. */
  segment_id: string | null;
  /** Ids of the sending accounts that mail it; they are set in the app. */
  account_ids: Array<string>;
  /** It is a sequence of mails over time, which is changed and run in the app alone. */
  is_drip: boolean;
  /** The id of its send; null before the confirmation. */
  send_id: string | null;
  /** ISO weekdays, 1 for Monday, in the team's time zone; none means any day. */
  send_days: Array<number>;
  /** When it is to be sent; of a draft its time, which is set in the app, if it has one. */
  send_at: string | null;
  /** When its first mails left. */
  started_at: string | null;
  /** When its send ended. */
  completed_at: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
  /** Recipients by state, which add up to `total`; null before the confirmation. */
  recipients: {
    /** All recipients of the send. */
    total: number;
    /** Waiting. */
    queued: number;
    /** Their mail may be leaving right now. */
    sending: number;
    /** Accepted by the sending account's server. */
    sent: number;
    /** Refused for good by that server. */
    rejected: number;
    /** Refused for now; tried again. */
    deferred: number;
    /** The connection ended before the server's answer: their mail may have left. */
    unknown: number;
    /** Refused for now too often. */
    expired: number;
    /** Left out: suppressed or opted out after the confirmation. */
    suppressed: number;
    /** Left out: the send was cancelled. */
    cancelled: number;
  } | null;
  /** The steps of a sequence; else none. */
  drip_steps: Array<DripStep>;
};

/** A person whom campaigns mail. */
export type Contact = {
  object: "contact";
  /** The id of the record. */
  id: string;
  email: string;
  first_name: string | null;
  last_name: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
  /** Whether their opens and clicks may be counted, by their last answer; null before the first. */
  tracking_consent: TrackingConsent | null;
  /** Values of the team's custom fields; one without a value is left out. */
  fields: Record<string, string | number | boolean>;
  /** `INVALID` while the address is suppressed by a hard bounce: no campaign mails it. */
  email_status: "ACTIVE" | "INVALID";
};

/** The outcome of a bulk call. */
export type ContactBatch = {
  object: "contact_batch";
  /** One result per item, in their order. */
  results: Array<ContactBatchResult>;
};

/** Why an item of a bulk call failed. */
export type ContactBatchError = {
  /** As the `code` of an error. */
  code: string;
  message: string;
  /** The field at fault, by its place in the body. */
  param: string | null;
};

/** The outcome of one item of a bulk call. */
export type ContactBatchResult = {
  /** The place of the item in `contacts`, from 0. */
  index: number;
  /** The address of the item; null if it has none, or if its person was erased. */
  email: string | null;
  /** `unchanged`: the contact had every given value already. `failed`: see `error`. */
  status: "created" | "updated" | "unchanged" | "failed";
  /** The id of the contact; null if the item failed. */
  id: string | null;
  /** Why the item failed; null if it did not. */
  error: ContactBatchError | null;
};

/** A custom field of the team's contacts. */
export type ContactField = {
  object: "contact_field";
  /** The name. */
  id: string;
  /** The key in `fields` of a contact. */
  name: string;
  /** The type of its values. */
  type: "text" | "number" | "boolean" | "date";
};

/** The payload of `contact.created`, `contact.updated`, `contact.deleted`. */
export type ContactPayload = {
  /** The id of the event. */
  id: string;
  object: "event";
  /** The name of the event. */
  type: string;
  api_version: "2026-08-15";
  created_at: string;
  data: {
    object: Contact;
  };
};

/** A contact by its address; a field that is left out stays as it is. */
export type ContactUpsert = {
  /** An email address; it is trimmed and lower-cased. */
  email: string;
  /** The name; spaces around it are removed, and an empty text is null. */
  first_name?: string | null | undefined;
  /** The name; spaces around it are removed, and an empty text is null. */
  last_name?: string | null | undefined;
  /** The person's answer about tracking. It belongs to the address. Left out, their last answer stays. */
  tracking_consent?:
    | {
        /** Whether the person lets their opens and clicks be counted. */
        status: "granted" | "denied";
        /** The text that the person was shown. */
        words?: string | undefined;
        /** When the person answered; now unless given. A grant lifts a denial only with a later `at`. */
        at?: string | undefined;
      }
    | undefined;
  /** Values of the team's custom fields by name, each of the type that the app declared: a text of one line, a number, `true` or `false`, or a date such as `2026-01-31`. Spaces around a text are removed. A field that is left out stays as it is, and `null` or an empty text takes its value away. A number beyond ±9007199254740991 is refused, because it would not be kept exactly: declare a text field for such numbers. */
  fields?: Record<string, string | number | boolean | null> | undefined;
};

export type CreateCampaignBody = {
  /** The name; spaces around it are removed. */
  name: string;
  /** The subject, a Liquid template of one line. */
  subject?: string | null | undefined;
  /** The name in From. */
  from_name?: string | null | undefined;
  /** The HTML, a Liquid template. Merge tags: `email`, `first_name`, `last_name`, `list_name`, `unsubscribe_url`, `tracking_url`, `web_url`, `postal_address`, and `fields.NAME` for a custom field (`list_name` is empty). Every mail gets a link to unsubscribe. At most 1048576 bytes in UTF-8. */
  body?: string | null | undefined;
};

export type CreateContactBody = {
  /** An email address; it is trimmed and lower-cased. */
  email: string;
  /** The name; spaces around it are removed, and an empty text is null. */
  first_name?: string | null | undefined;
  /** The name; spaces around it are removed, and an empty text is null. */
  last_name?: string | null | undefined;
  /** The person's answer about tracking. It belongs to the address. Left out, their last answer stays. */
  tracking_consent?:
    | {
        /** Whether the person lets their opens and clicks be counted. */
        status: "granted" | "denied";
        /** The text that the person was shown. */
        words?: string | undefined;
        /** When the person answered; now unless given. A grant lifts a denial only with a later `at`. */
        at?: string | undefined;
      }
    | undefined;
  /** Values of the team's custom fields by name, each of the type that the app declared: a text of one line, a number, `true` or `false`, or a date such as `2026-01-31`. Spaces around a text are removed. A field that is left out stays as it is, and `null` or an empty text takes its value away. A number beyond ±9007199254740991 is refused, because it would not be kept exactly: declare a text field for such numbers. */
  fields?: Record<string, string | number | boolean | null> | undefined;
};

export type CreateListBody = {
  /** The name; spaces around it are removed. */
  name: string;
  /** `SINGLE`: a subscription starts `CONFIRMED`. `DOUBLE`: it starts `PENDING` until the subscriber confirms. `SINGLE` unless given. */
  optin?: "SINGLE" | "DOUBLE" | undefined;
  /** A note for the team. */
  description?: string | null | undefined;
};

export type CreateNewsletterBody = {
  /** The name; spaces around it are removed. */
  name: string;
  /** The subject, a Liquid template of one line. */
  subject?: string | null | undefined;
  /** The address in From. The sending account must be allowed to use it. */
  from_email?: string | null | undefined;
  /** The name in From. */
  from_name?: string | null | undefined;
  /** The HTML, a Liquid template. Merge tags: `email`, `first_name`, `last_name`, `list_name`, `unsubscribe_url`, `tracking_url`, `web_url`, `postal_address`. Every mail gets a link to unsubscribe. At most 1048576 bytes in UTF-8. */
  body?: string | null | undefined;
};

export type CreateSubscriberBody = {
  /** An email address; it is trimmed and lower-cased. */
  email: string;
  /** The name; spaces around it are removed, and an empty text is null. */
  first_name?: string | null | undefined;
  /** The name; spaces around it are removed, and an empty text is null. */
  last_name?: string | null | undefined;
  /** The person's answer about tracking. It belongs to the address. Left out, their last answer stays. */
  tracking_consent?:
    | {
        /** Whether the person lets their opens and clicks be counted. */
        status: "granted" | "denied";
        /** The text that the person was shown. */
        words?: string | undefined;
        /** When the person answered; now unless given. A grant lifts a denial only with a later `at`. */
        at?: string | undefined;
      }
    | undefined;
};

export type CreateSuppressionsBody = {
  /** Addresses; they are trimmed and lower-cased. */
  emails: Array<string>;
  /** The other reasons are written by the service. `MANUAL` unless given. */
  reason?: "MANUAL" | undefined;
};

export type CreateWebhookBody = {
  /** A URL that is reachable from the public Internet. */
  url: string;
  /** Names of events; `*` stands for every event there is now. */
  events: Array<
    | "*"
    | "contact.created"
    | "contact.updated"
    | "contact.deleted"
    | "subscriber.created"
    | "subscriber.updated"
    | "subscriber.deleted"
    | "subscription.created"
    | "subscription.confirmed"
    | "subscription.removed"
    | "newsletter.scheduled"
    | "newsletter.started"
    | "newsletter.paused"
    | "newsletter.completed"
    | "newsletter.cancelled"
    | "campaign.scheduled"
    | "campaign.started"
    | "campaign.paused"
    | "campaign.completed"
    | "campaign.cancelled"
    | "sequence.entered"
    | "sequence.completed"
    | "sequence.left"
    | "email.sent"
    | "email.rejected"
    | "email.bounced"
    | "email.complained"
    | "event.tracked"
    | "suppression.added"
    | "suppression.removed"
    | "unsubscribe.created"
    | "account.error"
    | "account.recovered"
    | (string & {})
  >;
  /** The name; spaces around it are removed. */
  name?: string | undefined;
  /** A note for the team. */
  description?: string | null | undefined;
  /** Headers that are sent with every delivery. Their values are never shown again. */
  headers?: Record<string, string> | undefined;
};

/** The answer to the deletion of a record. */
export type DeletedCampaign = {
  object: "campaign";
  /** The id of the record. */
  id: string;
  deleted: true;
};

/** The answer to the deletion of a record. */
export type DeletedContact = {
  object: "contact";
  /** The id of the record. */
  id: string;
  deleted: true;
};

/** The answer to the deletion of a record. */
export type DeletedList = {
  object: "list";
  /** The id of the record. */
  id: string;
  deleted: true;
};

/** The answer to the deletion of a record. */
export type DeletedListSubscriber = {
  object: "list_subscriber";
  /** The id of the record. */
  id: string;
  deleted: true;
};

/** The answer to the deletion of a record. */
export type DeletedNewsletter = {
  object: "newsletter";
  /** The id of the record. */
  id: string;
  deleted: true;
};

/** The answer to the deletion of a record. */
export type DeletedSubscriber = {
  object: "subscriber";
  /** The id of the record. */
  id: string;
  deleted: true;
};

/** The answer to the deletion of a record. */
export type DeletedSuppression = {
  object: "suppression";
  /** The id of the record. */
  id: string;
  deleted: true;
};

/** The answer to the deletion of a record. */
export type DeletedWebhookEndpoint = {
  object: "webhook_endpoint";
  /** The id of the record. */
  id: string;
  deleted: true;
};

/** A step of a sequence, and the people at it. */
export type DripStep = {
  /** Chosen by the team. */
  id: string;
  /** After the step before, or after entering. */
  wait_minutes: number;
  /** The next such time after the wait, in the team's time zone; null means any time. */
  time_of_day: string | null;
  /** ISO weekdays, 1 for Monday, in the team's time zone; none means any day. */
  send_days: Array<number>;
  subject: string;
  /** People for whom it is the next step. */
  waiting: number;
  /** Mails that the sending account's server accepted. */
  sent: number;
  /** Mails that were opened. */
  opened: number;
  /** Mails with a link that was followed. */
  clicked: number;
  /** People who left the sequence while it was the next step. */
  left: number;
};

/** A sending account, without its credentials. */
export type EmailAccount = {
  object: "email_account";
  /** The id of the record. */
  id: string;
  /** The address that it sends from. */
  email: string;
  /** The name beside the address. */
  display_name: string;
  /** A hosted mailbox, or `SMTP_` for a relay. */
  provider:
    | "GOOGLE"
    | "MICROSOFT"
    | "SMTP_AMAZON_SES"
    | "SMTP_BREVO"
    | "SMTP_MAILGUN"
    | "SMTP_MAILJET"
    | "SMTP_POSTMARK"
    | "SMTP_RESEND"
    | "SMTP_SENDGRID"
    | "SMTP_SPARKPOST"
    | "SMTP_OTHER";
  /** Only an `ACTIVE` account sends. `PENDING` until its first login, `ERROR` while its server refuses it or does not answer, `SUSPENDED` by the operator, `REVOKED` once the mailbox has withdrawn its access. */
  status: "PENDING" | "ACTIVE" | "ERROR" | "SUSPENDED" | "REVOKED";
  /** When its login was last checked. */
  last_checked_at: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
};

/** A sending account as events show it. */
export type EmailAccountOfEvent = {
  object: "email_account";
  /** The id of the record. */
  id: string;
  email: string;
  display_name: string;
  provider:
    | "GOOGLE"
    | "MICROSOFT"
    | "SMTP_AMAZON_SES"
    | "SMTP_BREVO"
    | "SMTP_MAILGUN"
    | "SMTP_MAILJET"
    | "SMTP_POSTMARK"
    | "SMTP_RESEND"
    | "SMTP_SENDGRID"
    | "SMTP_SPARKPOST"
    | "SMTP_OTHER";
  status: "PENDING" | "ACTIVE" | "ERROR" | "SUSPENDED" | "REVOKED";
  /** A code. */
  last_error: string | null;
  last_checked_at: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
};

/** The payload of `account.error`, `account.recovered`. */
export type EmailAccountPayload = {
  /** The id of the event. */
  id: string;
  object: "event";
  /** The name of the event. */
  type: string;
  api_version: "2026-08-15";
  created_at: string;
  data: {
    object: EmailAccountOfEvent;
  };
};

/** One mail to one recipient. */
export type EmailOfEvent = {
  object: "email";
  /** The left part of its Message-ID. */
  id: string;
  /** The newsletter that it is of. */
  newsletter_id: string | null;
  /** The campaign that it is of. */
  campaign_id: string | null;
  /** The subscriber that it was sent to. */
  subscriber_id: string | null;
  /** The contact that it was sent to. */
  contact_id: string | null;
  email: string;
  status: "SENT" | "REJECTED" | "BOUNCED" | "COMPLAINED";
  /** A code. */
  reason: string | null;
  /** Attempts to send it. */
  attempts: number;
  updated_at: string;
};

/** The payload of `email.sent`, `email.rejected`, `email.bounced`, `email.complained`. */
export type EmailPayload = {
  /** The id of the event. */
  id: string;
  object: "event";
  /** The name of the event. */
  type: string;
  api_version: "2026-08-15";
  created_at: string;
  data: {
    object: EmailOfEvent;
  };
};

/** A sign-up form of a list. */
export type Form = {
  object: "form";
  /** The id of the record. */
  id: string;
  /** The name, for the team. */
  name: string;
  /** The id of the list that people join by it. */
  list_id: string;
  /** Its page. Websites and programs post sign-ups to it, too. */
  url: string;
  /** Whether it takes sign-ups. */
  is_open: boolean;
  /** The inputs besides the address. */
  fields: Array<"first_name" | "last_name">;
  /** The id of its two texts: it changes with them, and a sign-up keeps that of the texts it saw. */
  text_id: string;
  /** The text above its button. */
  consent_text: string;
  /** Its question whether opens and clicks may be counted; null where it asks none. */
  tracking_text: string | null;
  /** Where a person is led after the sign-up; null for a page of this service. */
  thank_you_url: string | null;
  /** The origins whose scripts may use it. */
  sites: Array<string>;
  /** How often it was shown, in the last 400 days. */
  shown: number;
  /** Sign-ups that it took, in the last 400 days. */
  sent: number;
  /** Sign-ups that were confirmed, in the last 400 days. */
  confirmed: number;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
};

/** The API key or the OAuth token of a request. */
export type Identity = {
  object: "api_key" | "oauth_token";
  /** The id of the record. */
  id: string;
  /** The part of the key that may be shown. */
  key_id: string;
  /** Test keys have records of their own and never send. */
  environment: "LIVE" | "TEST";
  team: {
    /** The id of the team. */
    id: string;
  };
  /** The role of the key's creator at this moment. */
  role: "OWNER" | "ADMIN" | "EDITOR" | "VIEWER";
  /** Their role when the key was created; null for a token, of which none was recorded. */
  role_at_issue: "OWNER" | "ADMIN" | "EDITOR" | "VIEWER" | null;
  /** The dated version that the key is pinned to. */
  api_version: string;
  /** The scopes that the key has at this moment. */
  scopes: Array<
    | "lists:read"
    | "lists:write"
    | "subscribers:read"
    | "subscribers:write"
    | "contacts:read"
    | "contacts:write"
    | "newsletters:read"
    | "newsletters:write"
    | "newsletters:send"
    | "campaigns:read"
    | "campaigns:write"
    | "campaigns:send"
    | "webhooks:read"
    | "webhooks:write"
    | "suppressions:read"
    | "suppressions:write"
    | "suppressions:delete"
    | "accounts:read"
    | "analytics:read"
    | "usage:read"
  >;
  /** The scopes that the key was created with. */
  granted_scopes: Array<
    | "lists:read"
    | "lists:write"
    | "subscribers:read"
    | "subscribers:write"
    | "contacts:read"
    | "contacts:write"
    | "newsletters:read"
    | "newsletters:write"
    | "newsletters:send"
    | "campaigns:read"
    | "campaigns:write"
    | "campaigns:send"
    | "webhooks:read"
    | "webhooks:write"
    | "suppressions:read"
    | "suppressions:write"
    | "suppressions:delete"
    | "accounts:read"
    | "analytics:read"
    | "usage:read"
  >;
};

/** The effect that a write would have. */
export type Impact = {
  object: "impact";
  /** Records that the request would create. */
  would_create: number;
  /** Records that the request would change. */
  would_update: number;
  /** Records that the request would delete. */
  would_delete: number;
  /** Records that the request would touch. */
  affected_count: number;
  /** Ids of existing records among them. */
  affected_ids: Array<string>;
  /** Null when the request uses no limit. */
  quota: QuotaImpact | null;
};

/** A subscriber of a list with the subscription to it. */
export type ListSubscriber = {
  object: "list_subscriber";
  /** The id of the subscriber. */
  id: string;
  /** The id of the list. */
  list_id: string;
  email: string;
  first_name: string | null;
  last_name: string | null;
  /** Only `CONFIRMED` subscriptions get mails. */
  status: "PENDING" | "CONFIRMED" | "UNSUBSCRIBED";
  /** When the subscription became `CONFIRMED`. */
  confirmed_at: string | null;
  /** When the mail that asks for the confirmation was last sent; null if none was. */
  confirmation_sent_at: string | null;
  /** Why no such mail is sent at present. */
  confirmation_withheld: "suppressed" | "list_limit" | "address_limit" | "team_limit" | "relay_failure" | null;
  /** When the subscriber opted out of the list. */
  unsubscribed_at: string | null;
  /** When the subscription was created. */
  created_at: string;
  /** When the subscription was last changed. */
  updated_at: string;
};

/** The outcome of adding subscribers to a list. */
export type ListSubscriberBatch = {
  object: "list_subscriber_batch";
  /** The id of the list. */
  list_id: string;
  /** Ids of subscribers whose subscription was created. */
  added: Array<string>;
  /** Ids of subscribers who were on the list already. */
  already_subscribed: Array<string>;
  /** Ids of subscribers who opted out of the list; they stay off it until they confirm. */
  opted_out: Array<string>;
};

/** A list of subscribers. */
export type MailingList = {
  object: "list";
  /** The id of the record. */
  id: string;
  name: string;
  /** A note for the team. */
  description: string | null;
  /** `SINGLE`: a subscription starts `CONFIRMED`. `DOUBLE`: it starts `PENDING` until the subscriber confirms. */
  optin: "SINGLE" | "DOUBLE";
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
};

/** A webhook endpoint as its registration answers it: with its secret. */
export type NewWebhookEndpoint = {
  object: "webhook_endpoint";
  /** The id of the record. */
  id: string;
  name: string;
  url: string;
  /** Names of events. */
  events: Array<string>;
  /** Whether events are delivered to it. */
  active: boolean;
  /** A note for the team. */
  description: string | null;
  signature_version: "v1";
  /** The dated version that shapes the payloads. */
  api_version: string;
  /** Names of its own headers; the values are not shown. */
  header_names: Array<string>;
  /** `working`: a delivery has succeeded in the last 24 hours, and few have failed in a row since. `failing`: several have, so that deliveries wait while one at a time probes the endpoint. `unproven`: neither is true, as of a new endpoint. */
  health: "unproven" | "working" | "failing";
  /** When a failing endpoint gets its next delivery, at the earliest. */
  next_probe_at: string | null;
  /** Failures since the last success. */
  consecutive_failures: number;
  /** When a delivery last succeeded. */
  last_success_at: string | null;
  /** When a delivery last failed. */
  last_failure_at: string | null;
  /** When it became inactive. */
  disabled_at: string | null;
  /** Whether the service switched it off, or a `PATCH` did. */
  disabled_reason: "delivery_failures" | "manual" | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
  /** Verifies the signatures. It is shown this once. */
  secret: string;
};

/** A one-off mail to the subscribers of lists. */
export type Newsletter = {
  object: "newsletter";
  /** The id of the record. */
  id: string;
  /** The name, for the team alone. */
  name: string;
  /** The subject, a Liquid template of one line. */
  subject: string | null;
  /** The address in From. The sending account must be allowed to use it. */
  from_email: string | null;
  /** The name in From. */
  from_name: string | null;
  /** The HTML, a Liquid template. Merge tags: `email`, `first_name`, `last_name`, `list_name`, `unsubscribe_url`, `tracking_url`, `web_url`, `postal_address`. Every mail gets a link to unsubscribe. */
  body: string | null;
  /** Only a `DRAFT` can be changed, deleted or sent. */
  status: "DRAFT" | "SCHEDULED" | "SENDING" | "PAUSED" | "SENT" | "CANCELLED" | "FAILED";
  /** Why its send is paused: `paused_by_client`, or the code of a failure, or the code of each account after its id; null when an operator paused it, and in every other status. */
  status_reason: string | null;
  /** Ids of the lists that it targets; they are set in the app, or by a key that is made for a list. */
  lists: Array<string>;
  /** The id of its send; null before the confirmation. */
  send_id: string | null;
  /** ISO weekdays, 1 for Monday, in the team's time zone; none means any day. */
  send_days: Array<number>;
  /** When it is to be sent; of a draft its time, which is set in the app, if it has one. */
  send_at: string | null;
  /** When its first mails left. */
  started_at: string | null;
  /** When its send ended. */
  completed_at: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
};

/** A newsletter as events show it: without its body. */
export type NewsletterOfEvent = {
  object: "newsletter";
  /** The id of the record. */
  id: string;
  /** The name, for the team alone. */
  name: string;
  /** The subject, a Liquid template of one line. */
  subject: string | null;
  /** The address in From. The sending account must be allowed to use it. */
  from_email: string | null;
  /** The name in From. */
  from_name: string | null;
  /** Only a `DRAFT` can be changed, deleted or sent. */
  status: "DRAFT" | "SCHEDULED" | "SENDING" | "PAUSED" | "SENT" | "CANCELLED" | "FAILED";
  /** Why its send is paused: `paused_by_client`, or the code of a failure, or the code of each account after its id; null when an operator paused it, and in every other status. */
  status_reason: string | null;
  /** Ids of the lists that it targets; they are set in the app, or by a key that is made for a list. */
  lists: Array<string>;
  /** The id of its send; null before the confirmation. */
  send_id: string | null;
  /** ISO weekdays, 1 for Monday, in the team's time zone; none means any day. */
  send_days: Array<number>;
  /** When it is to be sent; of a draft its time, which is set in the app, if it has one. */
  send_at: string | null;
  /** When its first mails left. */
  started_at: string | null;
  /** When its send ended. */
  completed_at: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
  /** Recipients by state once the send has ended, which add up to `total`; null before. */
  recipients: {
    /** All recipients of the send. */
    total: number;
    /** Waiting. */
    queued: number;
    /** Their mail may be leaving right now. */
    sending: number;
    /** Accepted by the sending account's server. */
    sent: number;
    /** Refused for good by that server. */
    rejected: number;
    /** Refused for now; tried again. */
    deferred: number;
    /** The connection ended before the server's answer: their mail may have left. */
    unknown: number;
    /** Refused for now too often. */
    expired: number;
    /** Left out: suppressed or opted out after the confirmation. */
    suppressed: number;
    /** Left out: the send was cancelled. */
    cancelled: number;
  } | null;
};

/** The payload of `newsletter.scheduled`, `newsletter.started`, `newsletter.paused`, `newsletter.completed`, `newsletter.cancelled`. */
export type NewsletterPayload = {
  /** The id of the event. */
  id: string;
  object: "event";
  /** The name of the event. */
  type: string;
  api_version: "2026-08-15";
  created_at: string;
  data: {
    object: NewsletterOfEvent;
  };
};

/** A confirmed send. */
export type NewsletterSend = {
  object: "newsletter_send";
  /** The id of the record. */
  id: string;
  /** The id of the newsletter. */
  newsletter_id: string;
  status: "SCHEDULED";
  /** Recipients of the send. */
  recipients: number;
  /** Email credits that were reserved. */
  credits_reserved: number;
  /** When the send starts. */
  send_at: string;
  send_cap: SendCap;
};

/** The plan of a send: its recipients, its cost and the token to confirm it. */
export type NewsletterSendPreview = {
  object: "newsletter_send_preview";
  /** The id of the record. */
  id: string;
  /** The id of the newsletter. */
  newsletter_id: string;
  /** The recipients, after permissions and suppressions. */
  recipients: {
    /** Addresses on the targeted lists, and in the segment that narrows them, if one is set in the app. */
    total: number;
    /** Left out: no confirmed subscription. */
    not_opted_in: number;
    /** Left out: on the do-not-mail list. */
    suppressed: number;
    /** Those that get the mail: `total` less the two that are left out. */
    eligible: number;
    /** Of `eligible`, those whose opens and clicks are counted, by their answers until now. */
    tracked: number;
  };
  /** Ids of the lists that are mailed. */
  lists: Array<string>;
  /** Email credits that the send uses; they are reserved at the confirmation. */
  credits_required: number;
  /** When the send starts; null: once it is confirmed, or when the next allowed day begins. */
  send_at: string | null;
  send_cap: SendCap;
  /** The address in From. */
  from_address: string;
  /** The address of the sending account. */
  sending_account_address: string;
  /** Complaints over delivered mail, as fractions. At the threshold the API sends nothing. */
  complaint_rate: {
    rate: number;
    threshold: number;
    window_days: number;
  };
  /** For the confirmation by `sendNewsletter`. */
  confirmation: {
    /** Confirms this plan, once. */
    token: string;
    /** 15 minutes after the preview. */
    expires_at: string;
  };
};

/** A newsletter with its recipients by state. */
export type NewsletterWithRecipients = {
  object: "newsletter";
  /** The id of the record. */
  id: string;
  /** The name, for the team alone. */
  name: string;
  /** The subject, a Liquid template of one line. */
  subject: string | null;
  /** The address in From. The sending account must be allowed to use it. */
  from_email: string | null;
  /** The name in From. */
  from_name: string | null;
  /** The HTML, a Liquid template. Merge tags: `email`, `first_name`, `last_name`, `list_name`, `unsubscribe_url`, `tracking_url`, `web_url`, `postal_address`. Every mail gets a link to unsubscribe. */
  body: string | null;
  /** Only a `DRAFT` can be changed, deleted or sent. */
  status: "DRAFT" | "SCHEDULED" | "SENDING" | "PAUSED" | "SENT" | "CANCELLED" | "FAILED";
  /** Why its send is paused: `paused_by_client`, or the code of a failure, or the code of each account after its id; null when an operator paused it, and in every other status. */
  status_reason: string | null;
  /** Ids of the lists that it targets; they are set in the app, or by a key that is made for a list. */
  lists: Array<string>;
  /** The id of its send; null before the confirmation. */
  send_id: string | null;
  /** ISO weekdays, 1 for Monday, in the team's time zone; none means any day. */
  send_days: Array<number>;
  /** When it is to be sent; of a draft its time, which is set in the app, if it has one. */
  send_at: string | null;
  /** When its first mails left. */
  started_at: string | null;
  /** When its send ended. */
  completed_at: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
  /** Recipients by state, which add up to `total`; null before the confirmation. */
  recipients: {
    /** All recipients of the send. */
    total: number;
    /** Waiting. */
    queued: number;
    /** Their mail may be leaving right now. */
    sending: number;
    /** Accepted by the sending account's server. */
    sent: number;
    /** Refused for good by that server. */
    rejected: number;
    /** Refused for now; tried again. */
    deferred: number;
    /** The connection ended before the server's answer: their mail may have left. */
    unknown: number;
    /** Refused for now too often. */
    expired: number;
    /** Left out: suppressed or opted out after the confirmation. */
    suppressed: number;
    /** Left out: the send was cancelled. */
    cancelled: number;
  } | null;
};

/** The use of a limit by the request, and where the team stands. */
export type QuotaImpact = {
  kind: "contact_slots" | "email_credits";
  /** Units that the request would use. */
  amount: number;
  /** Units in use before the request. */
  used: number;
  /** Units that the team may use. */
  limit: number;
  /** Units of the limit that are left. */
  remaining: number;
};

/** One mail to one recipient, as the ledger of its send has it. */
export type Recipient = {
  object: "email";
  /** The left part of its Message-ID. */
  id: string;
  /** The newsletter that it is of. */
  newsletter_id: string | null;
  /** The campaign that it is of. */
  campaign_id: string | null;
  /** The subscriber that it was sent to. */
  subscriber_id: string | null;
  /** The contact that it was sent to. */
  contact_id: string | null;
  email: string;
  status: "QUEUED" | "SENDING" | "SENT" | "REJECTED" | "DEFERRED" | "UNKNOWN" | "EXPIRED" | "SUPPRESSED" | "CANCELLED";
  /** A code. */
  reason: string | null;
  /** Attempts to send it. */
  attempts: number;
  updated_at: string;
  /** The code of the reply by which a server refused or deferred it, such as 550; null without one. */
  smtp_code: number | null;
};

export type ReplayWebhookDeliveriesBody = {
  /** Deliveries that were made then or later. */
  since: string;
  /** Deliveries that were made before then. Now unless given. */
  until?: string | undefined;
  /** Types of their events; every type when it is empty. */
  event_types?:
    | Array<
        | "contact.created"
        | "contact.updated"
        | "contact.deleted"
        | "subscriber.created"
        | "subscriber.updated"
        | "subscriber.deleted"
        | "subscription.created"
        | "subscription.confirmed"
        | "subscription.removed"
        | "newsletter.scheduled"
        | "newsletter.started"
        | "newsletter.paused"
        | "newsletter.completed"
        | "newsletter.cancelled"
        | "campaign.scheduled"
        | "campaign.started"
        | "campaign.paused"
        | "campaign.completed"
        | "campaign.cancelled"
        | "sequence.entered"
        | "sequence.completed"
        | "sequence.left"
        | "email.sent"
        | "email.rejected"
        | "email.bounced"
        | "email.complained"
        | "event.tracked"
        | "suppression.added"
        | "suppression.removed"
        | "unsubscribe.created"
        | "account.error"
        | "account.recovered"
        | (string & {})
      >
    | undefined;
  /** How they ended. `FAILED`, `BLOCKED` unless given. */
  statuses?: Array<"FAILED" | "BLOCKED"> | undefined;
};

export type RotateWebhookSecretBody = {
  /** For how long the old secret signs beside the new one, in hours; 0 for one that leaked. `24` unless given. */
  overlap_hours?: number | undefined;
};

export type SendCampaignBody = {
  /** `confirmation.token` of the preview. */
  confirmation_token: string;
};

/** Recipients that the key may mail in a UTC day, counted over its rotations. */
export type SendCap = {
  limit: number;
  used_today: number;
  remaining: number;
};

export type SendNewsletterBody = {
  /** `confirmation.token` of the preview. */
  confirmation_token: string;
};

/** A person in a sequence; it is named by the ids of the two. */
export type SequenceEnrolment = {
  object: "sequence_enrolment";
  /** The id of the sequence. */
  campaign_id: string;
  /** The person in the sequence of a list. */
  subscriber_id: string | null;
  /** The person in the sequence of a segment. */
  contact_id: string | null;
  /** Null when the person was deleted. */
  email: string | null;
  state: "PRESENT" | "ACTIVE" | "COMPLETED" | "LEFT";
  /** Why the person LEFT, as a code; else null. */
  reason: string | null;
  entered_at: string;
};

/** The payload of `sequence.entered`, `sequence.completed`, `sequence.left`. */
export type SequenceEnrolmentPayload = {
  /** The id of the event. */
  id: string;
  object: "event";
  /** The name of the event. */
  type: string;
  api_version: "2026-08-15";
  created_at: string;
  data: {
    object: SequenceEnrolment;
  };
};

/** A person with an email address. */
export type Subscriber = {
  object: "subscriber";
  /** The id of the record. */
  id: string;
  email: string;
  first_name: string | null;
  last_name: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
  /** Whether their opens and clicks may be counted, by their last answer; null before the first. */
  tracking_consent: TrackingConsent | null;
};

/** The payload of `subscriber.created`, `subscriber.updated`, `subscriber.deleted`. */
export type SubscriberPayload = {
  /** The id of the event. */
  id: string;
  object: "event";
  /** The name of the event. */
  type: string;
  api_version: "2026-08-15";
  created_at: string;
  data: {
    object: Subscriber;
  };
};

/** A subscriber with the subscriptions to all lists. */
export type SubscriberWithSubscriptions = {
  object: "subscriber";
  /** The id of the record. */
  id: string;
  email: string;
  first_name: string | null;
  last_name: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
  /** Whether their opens and clicks may be counted, by their last answer; null before the first. */
  tracking_consent: TrackingConsent | null;
  subscriptions: Array<Subscription>;
};

/** The place of a subscriber on one list. */
export type Subscription = {
  /** The id of the list. */
  list_id: string;
  /** Only `CONFIRMED` subscriptions get mails. */
  status: "PENDING" | "CONFIRMED" | "UNSUBSCRIBED";
  /** When the subscription became `CONFIRMED`. */
  confirmed_at: string | null;
  /** When the mail that asks for the confirmation was last sent; null if none was. */
  confirmation_sent_at: string | null;
  /** Why no such mail is sent at present. */
  confirmation_withheld: "suppressed" | "list_limit" | "address_limit" | "team_limit" | "relay_failure" | null;
  /** When the subscriber opted out of the list. */
  unsubscribed_at: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
};

/** A subscription as events show it; it is named by its two ids. */
export type SubscriptionOfEvent = {
  object: "subscription";
  /** The id of the list. */
  list_id: string;
  /** The id of the subscriber. */
  subscriber_id: string;
  email: string;
  status: "PENDING" | "CONFIRMED" | "UNSUBSCRIBED";
  confirmed_at: string | null;
  /** When the mail that asks for the confirmation was last sent; null if none was. */
  confirmation_sent_at: string | null;
  /** Why no such mail is sent at present. */
  confirmation_withheld: "suppressed" | "list_limit" | "address_limit" | "team_limit" | "relay_failure" | null;
  unsubscribed_at: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
};

/** The payload of `subscription.created`, `subscription.confirmed`, `subscription.removed`. */
export type SubscriptionPayload = {
  /** The id of the event. */
  id: string;
  object: "event";
  /** The name of the event. */
  type: string;
  api_version: "2026-08-15";
  created_at: string;
  data: {
    object: SubscriptionOfEvent;
  };
};

/** An address that the team does not mail. */
export type Suppression = {
  object: "suppression";
  /** The id of the record. */
  id: string;
  email: string;
  /** Why: `MANUAL`, `UNSUBSCRIBED`, `bounce:hard`, `bounce:soft` or `bounce:complaint`. Others may follow. */
  reason: string;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
};

/** The outcome of suppressing addresses. */
export type SuppressionBatch = {
  object: "suppression_batch";
  /** Addresses that were put on the do-not-mail list. */
  added: Array<string>;
  /** Addresses that were on it already, and stay as they are. */
  already_suppressed: Array<string>;
};

/** The payload of `suppression.added`, `suppression.removed`. */
export type SuppressionPayload = {
  /** The id of the event. */
  id: string;
  object: "event";
  /** The name of the event. */
  type: string;
  api_version: "2026-08-15";
  created_at: string;
  data: {
    object: Suppression;
  };
};

export type TestWebhookBody = {
  /** An event that the endpoint is subscribed to; the first one unless given. */
  type?:
    | "contact.created"
    | "contact.updated"
    | "contact.deleted"
    | "subscriber.created"
    | "subscriber.updated"
    | "subscriber.deleted"
    | "subscription.created"
    | "subscription.confirmed"
    | "subscription.removed"
    | "newsletter.scheduled"
    | "newsletter.started"
    | "newsletter.paused"
    | "newsletter.completed"
    | "newsletter.cancelled"
    | "campaign.scheduled"
    | "campaign.started"
    | "campaign.paused"
    | "campaign.completed"
    | "campaign.cancelled"
    | "sequence.entered"
    | "sequence.completed"
    | "sequence.left"
    | "email.sent"
    | "email.rejected"
    | "email.bounced"
    | "email.complained"
    | "event.tracked"
    | "suppression.added"
    | "suppression.removed"
    | "unsubscribe.created"
    | "account.error"
    | "account.recovered"
    | (string & {})
    | undefined;
};

/** An open or a click. */
export type TrackedEvent = {
  object: "event";
  /** The id of the record. */
  id: string;
  kind: "open" | "click";
  /** The id of the mail. */
  email_id: string;
  /** The newsletter that the mail is of. */
  newsletter_id: string | null;
  /** The campaign that the mail is of. */
  campaign_id: string | null;
  email: string;
  /** The link that was followed, as its author wrote it; null for an open. */
  url: string | null;
  /** `unknown` where a program may have made the request. */
  by: "human" | "unknown";
  created_at: string;
};

/** The payload of `event.tracked`. */
export type TrackedEventPayload = {
  /** The id of the event. */
  id: string;
  object: "event";
  /** The name of the event. */
  type: string;
  api_version: "2026-08-15";
  created_at: string;
  data: {
    object: TrackedEvent;
  };
};

/** A link of a newsletter or campaign with its clicks. */
export type TrackedLink = {
  object: "link";
  /** The id of the record. */
  id: string;
  /** The page that it leads to. */
  url: string;
  /** Clicks by people. */
  clicks: number;
  /** Mails in which a person clicked it. */
  clickers: number;
  /** Clicks that a program may have made, which `clicks` leaves out. */
  clicks_unknown: number;
  /** Clicks by programs, which `clicks` leaves out. */
  clicks_machine: number;
  /** When a person first clicked it. */
  first_at: string | null;
  /** When a person last clicked it. */
  last_at: string | null;
};

/** The last answer of the person at an address about tracking. */
export type TrackingConsent = {
  /** Whether the person lets their opens and clicks be counted. */
  status: "granted" | "denied";
  at: string;
  /** `page`: behind the link in a mail. `member`: a member of the team noted it in the console. `form`: at a sign-up. */
  way: "api" | "import" | "page" | "member" | "form";
  /** The text that the person was shown. */
  words: string | null;
};

/** An opt-out of a recipient. It is never changed. */
export type Unsubscribe = {
  object: "unsubscribe";
  /** The id of the record. */
  id: string;
  email: string;
  /** Why the record exists. */
  reason: string;
  /** How: `link` for a page, `one_click` for the button of a mail program, `mailto` for a mail. Others may follow. */
  source: string;
  /** The newsletter or campaign whose mail was left. */
  campaign_id: string | null;
  /** When the recipient opted out. */
  unsubscribed_at: string;
  /** When the record was created. */
  created_at: string;
};

/** The payload of `unsubscribe.created`. */
export type UnsubscribePayload = {
  /** The id of the event. */
  id: string;
  object: "event";
  /** The name of the event. */
  type: string;
  api_version: "2026-08-15";
  created_at: string;
  data: {
    object: Unsubscribe;
  };
};

export type UpdateCampaignBody = {
  /** The name; spaces around it are removed. */
  name?: string | undefined;
  /** The subject, a Liquid template of one line. */
  subject?: string | null | undefined;
  /** The name in From. */
  from_name?: string | null | undefined;
  /** The HTML, a Liquid template. Merge tags: `email`, `first_name`, `last_name`, `list_name`, `unsubscribe_url`, `tracking_url`, `web_url`, `postal_address`, and `fields.NAME` for a custom field (`list_name` is empty). Every mail gets a link to unsubscribe. At most 1048576 bytes in UTF-8. */
  body?: string | null | undefined;
};

export type UpdateContactBody = {
  /** An email address; it is trimmed and lower-cased. */
  email?: string | undefined;
  /** The name; spaces around it are removed, and an empty text is null. */
  first_name?: string | null | undefined;
  /** The name; spaces around it are removed, and an empty text is null. */
  last_name?: string | null | undefined;
  /** The person's answer about tracking. It belongs to the address. Left out, their last answer stays. */
  tracking_consent?:
    | {
        /** Whether the person lets their opens and clicks be counted. */
        status: "granted" | "denied";
        /** The text that the person was shown. */
        words?: string | undefined;
        /** When the person answered; now unless given. A grant lifts a denial only with a later `at`. */
        at?: string | undefined;
      }
    | undefined;
  /** Values of the team's custom fields by name, each of the type that the app declared: a text of one line, a number, `true` or `false`, or a date such as `2026-01-31`. Spaces around a text are removed. A field that is left out stays as it is, and `null` or an empty text takes its value away. A number beyond ±9007199254740991 is refused, because it would not be kept exactly: declare a text field for such numbers. */
  fields?: Record<string, string | number | boolean | null> | undefined;
};

export type UpdateListBody = {
  /** The name; spaces around it are removed. */
  name?: string | undefined;
  /** `SINGLE`: a subscription starts `CONFIRMED`. `DOUBLE`: it starts `PENDING` until the subscriber confirms. */
  optin?: "SINGLE" | "DOUBLE" | undefined;
  /** A note for the team. */
  description?: string | null | undefined;
};

export type UpdateListSubscriberBody = {
  /** Opts the subscriber out of the list. */
  status: "UNSUBSCRIBED";
};

export type UpdateNewsletterBody = {
  /** The name; spaces around it are removed. */
  name?: string | undefined;
  /** The subject, a Liquid template of one line. */
  subject?: string | null | undefined;
  /** The address in From. The sending account must be allowed to use it. */
  from_email?: string | null | undefined;
  /** The name in From. */
  from_name?: string | null | undefined;
  /** The HTML, a Liquid template. Merge tags: `email`, `first_name`, `last_name`, `list_name`, `unsubscribe_url`, `tracking_url`, `web_url`, `postal_address`. Every mail gets a link to unsubscribe. At most 1048576 bytes in UTF-8. */
  body?: string | null | undefined;
};

export type UpdateSubscriberBody = {
  /** An email address; it is trimmed and lower-cased. */
  email?: string | undefined;
  /** The name; spaces around it are removed, and an empty text is null. */
  first_name?: string | null | undefined;
  /** The name; spaces around it are removed, and an empty text is null. */
  last_name?: string | null | undefined;
  /** The person's answer about tracking. It belongs to the address. Left out, their last answer stays. */
  tracking_consent?:
    | {
        /** Whether the person lets their opens and clicks be counted. */
        status: "granted" | "denied";
        /** The text that the person was shown. */
        words?: string | undefined;
        /** When the person answered; now unless given. A grant lifts a denial only with a later `at`. */
        at?: string | undefined;
      }
    | undefined;
};

export type UpdateWebhookBody = {
  /** A URL that is reachable from the public Internet. */
  url?: string | undefined;
  /** Names of events; `*` stands for every event there is now. */
  events?:
    | Array<
        | "*"
        | "contact.created"
        | "contact.updated"
        | "contact.deleted"
        | "subscriber.created"
        | "subscriber.updated"
        | "subscriber.deleted"
        | "subscription.created"
        | "subscription.confirmed"
        | "subscription.removed"
        | "newsletter.scheduled"
        | "newsletter.started"
        | "newsletter.paused"
        | "newsletter.completed"
        | "newsletter.cancelled"
        | "campaign.scheduled"
        | "campaign.started"
        | "campaign.paused"
        | "campaign.completed"
        | "campaign.cancelled"
        | "sequence.entered"
        | "sequence.completed"
        | "sequence.left"
        | "email.sent"
        | "email.rejected"
        | "email.bounced"
        | "email.complained"
        | "event.tracked"
        | "suppression.added"
        | "suppression.removed"
        | "unsubscribe.created"
        | "account.error"
        | "account.recovered"
        | (string & {})
      >
    | undefined;
  /** The name; spaces around it are removed. */
  name?: string | undefined;
  /** A note for the team. */
  description?: string | null | undefined;
  /** Headers that are sent with every delivery. Their values are never shown again. */
  headers?: Record<string, string> | undefined;
  /** False stops the deliveries, true starts them again. */
  active?: boolean | undefined;
};

export type UpsertContactsBody = {
  /** Contacts to make or to change. */
  contacts: Array<ContactUpsert>;
};

/** The use of the limits of the team and of the calling key. */
export type Usage = {
  object: "usage";
  /** The period, as year and month. */
  id: string;
  /** The current period: a calendar month in UTC. */
  period: {
    /** Its first instant. */
    start: string;
    /** The first instant of the next period. */
    end: string;
  };
  /** Each limit by its name, with its use in the environment of the key. */
  limits: {
    /** Requests of the calling key in this minute, with this one. `limit` is the allowance of the plan. The service has a limit for every key too, and the smaller one acts: `remaining` is that of `RateLimit-Remaining`. */
    "api.requests_per_minute": {
      /** The most that may be used. */
      limit: number;
      /** The part that is used. */
      used: number;
      /** The part that is left. */
      remaining: number;
    };
    "email.credits": {
      /** The most that may be used. */
      limit: number;
      /** The part that is used. */
      used: number;
      /** Neither used nor reserved. */
      remaining: number;
      /** Set aside for sends that have not ended. */
      reserved: number;
    };
    "contacts.slots": {
      /** As many as the plan allows; null for any number. */
      limit: number | null;
      /** The part that is used. */
      used: number;
      /** The part that is left; null without a limit. */
      remaining: number | null;
    };
    /** Webhook endpoints. */
    "webhooks.endpoints": {
      /** The most that may be used. */
      limit: number;
      /** The part that is used. */
      used: number;
      /** The part that is left. */
      remaining: number;
    };
    /** Mails of the calling key and the keys it was rotated from, on this day in UTC. An OAuth client may send none. */
    "email.sends_today": {
      /** The most that may be used. */
      limit: number;
      /** The part that is used. */
      used: number;
      /** The part that is left. */
      remaining: number;
    };
  };
};

/** One attempt to deliver an event, without its payload. */
export type WebhookDelivery = {
  object: "webhook_delivery";
  /** The id of the record. */
  id: string;
  /** The id of the webhook endpoint. */
  webhook_id: string;
  /** The id of the event, the same in every retry and replay. */
  event_id: string;
  event_type: string;
  /** Counts from 1. */
  attempt: number;
  /** `PENDING`: queued or on its way. `SUCCEEDED`: answered with a 2xx. `RETRYING`: failed, another attempt follows. `FAILED`: failed. `BLOCKED`: never sent. */
  status: "PENDING" | "SUCCEEDED" | "FAILED" | "RETRYING" | "BLOCKED";
  /** The status of the endpoint's answer. */
  response_status: number | null;
  /** The beginning of that answer. */
  response_body: string | null;
  /** Why it failed. */
  error_message: string | null;
  /** Milliseconds from start to end. */
  duration_ms: number | null;
  /** Whether it was queued by hand. */
  is_replay: boolean;
  /** The delivery that it repeats. */
  replay_of_id: string | null;
  /** Whether the delivery has ended with it: neither another attempt nor a replay followed. */
  is_final: boolean;
  /** The attempt or the replay that followed. */
  superseded_by_id: string | null;
  /** When the next attempt is due. */
  next_attempt_at: string | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
};

/** A URL that gets events, without its secret. */
export type WebhookEndpoint = {
  object: "webhook_endpoint";
  /** The id of the record. */
  id: string;
  name: string;
  url: string;
  /** Names of events. */
  events: Array<string>;
  /** Whether events are delivered to it. */
  active: boolean;
  /** A note for the team. */
  description: string | null;
  signature_version: "v1";
  /** The dated version that shapes the payloads. */
  api_version: string;
  /** Names of its own headers; the values are not shown. */
  header_names: Array<string>;
  /** `working`: a delivery has succeeded in the last 24 hours, and few have failed in a row since. `failing`: several have, so that deliveries wait while one at a time probes the endpoint. `unproven`: neither is true, as of a new endpoint. */
  health: "unproven" | "working" | "failing";
  /** When a failing endpoint gets its next delivery, at the earliest. */
  next_probe_at: string | null;
  /** Failures since the last success. */
  consecutive_failures: number;
  /** When a delivery last succeeded. */
  last_success_at: string | null;
  /** When a delivery last failed. */
  last_failure_at: string | null;
  /** When it became inactive. */
  disabled_at: string | null;
  /** Whether the service switched it off, or a `PATCH` did. */
  disabled_reason: "delivery_failures" | "manual" | null;
  /** When the record was created. */
  created_at: string;
  /** When the record was last changed. */
  updated_at: string;
};

/** An event that an endpoint can subscribe to. */
export type WebhookEventType = {
  object: "webhook_event_type";
  /** The name. */
  id: string;
  /** The name to subscribe with. */
  type: string;
  description: string;
  /** The `object` of the record in its payload. */
  object_type: string;
};

/** Deliveries to a webhook endpoint that were queued once more. */
export type WebhookReplay = {
  object: "webhook_replay";
  /** The id of the webhook endpoint. */
  webhook_id: string;
  /** Deliveries that were made before then. */
  until: string;
  /** Deliveries that are queued once more. */
  replayed: number;
  /** When the last of them is due; null when none matched. */
  last_due_at: string | null;
  /** Whether further deliveries match: repeat the request with the same `until`. */
  has_more: boolean;
};

/** The new secret of a webhook endpoint. */
export type WebhookSecret = {
  object: "webhook_secret";
  /** The id of the webhook endpoint. */
  id: string;
  /** Verifies the signatures. It is shown this once. */
  secret: string;
  /** Until when the old secret signs too; null when it signs no more. */
  previous_secret_expires_at: string | null;
};

/** The codes of refusals. Codes are added, never renamed. */
export type ErrorCode =
  | "validation_failed"
  | "unsupported_parameter"
  | "idempotency_key_required"
  | "invalid_json"
  | "version_unsupported"
  | "cursor_invalid"
  | "filter_unsupported"
  | "sort_unsupported"
  | "expand_unsupported"
  | "api_key_missing"
  | "api_key_malformed"
  | "api_key_invalid"
  | "api_key_expired"
  | "api_key_revoked"
  | "api_key_environment_mismatch"
  | "invalid_token"
  | "plan_upgrade_required"
  | "quota_exceeded"
  | "insufficient_scope"
  | "role_insufficient"
  | "forbidden_scope_pair"
  | "send_not_permitted"
  | "send_domain_not_allowed"
  | "complaint_rate_exceeded"
  | "not_found"
  | "method_not_allowed"
  | "request_timeout"
  | "idempotency_key_reused"
  | "request_in_flight"
  | "confirmation_required"
  | "confirmation_stale"
  | "confirmation_invalid"
  | "send_plan_changed"
  | "campaign_not_ready"
  | "sending_domain_unverified"
  | "resource_already_exists"
  | "person_erased"
  | "resource_limit_reached"
  | "resource_state_invalid"
  | "payload_too_large"
  | "unsupported_media_type"
  | "send_cap_exceeded"
  | "rate_limit_exceeded"
  | "internal_error"
  | "service_unavailable";

/** The payload of each webhook event, by its type. */
export type WebhookEvents = {
  /** A contact was added. */
  "contact.created": ContactPayload & {
    type: "contact.created";
  };
  /** A contact was changed. */
  "contact.updated": ContactPayload & {
    type: "contact.updated";
  };
  /** A contact was deleted. */
  "contact.deleted": ContactPayload & {
    type: "contact.deleted";
  };
  /** A subscriber was added. */
  "subscriber.created": SubscriberPayload & {
    type: "subscriber.created";
  };
  /** A subscriber's address or name was changed. */
  "subscriber.updated": SubscriberPayload & {
    type: "subscriber.updated";
  };
  /** A subscriber was deleted. */
  "subscriber.deleted": SubscriberPayload & {
    type: "subscriber.deleted";
  };
  /** A subscriber was put on a list. */
  "subscription.created": SubscriptionPayload & {
    type: "subscription.created";
  };
  /** A subscriber confirmed a double opt-in, or undid an opt-out. */
  "subscription.confirmed": SubscriptionPayload & {
    type: "subscription.confirmed";
  };
  /** A subscriber was taken off a list, or opted out of it. */
  "subscription.removed": SubscriptionPayload & {
    type: "subscription.removed";
  };
  /** A newsletter was confirmed and waits for its time. */
  "newsletter.scheduled": NewsletterPayload & {
    type: "newsletter.scheduled";
  };
  /** A newsletter's first emails are sent. */
  "newsletter.started": NewsletterPayload & {
    type: "newsletter.started";
  };
  /** A newsletter's send was paused. */
  "newsletter.paused": NewsletterPayload & {
    type: "newsletter.paused";
  };
  /** A newsletter's send has ended. */
  "newsletter.completed": NewsletterPayload & {
    type: "newsletter.completed";
  };
  /** A newsletter's send was cancelled. */
  "newsletter.cancelled": NewsletterPayload & {
    type: "newsletter.cancelled";
  };
  /** A campaign was confirmed and waits for its time. */
  "campaign.scheduled": CampaignPayload & {
    type: "campaign.scheduled";
  };
  /** A campaign's first emails are sent. */
  "campaign.started": CampaignPayload & {
    type: "campaign.started";
  };
  /** A campaign's send was paused. */
  "campaign.paused": CampaignPayload & {
    type: "campaign.paused";
  };
  /** A campaign's send has ended. */
  "campaign.completed": CampaignPayload & {
    type: "campaign.completed";
  };
  /** A campaign's send was cancelled. */
  "campaign.cancelled": CampaignPayload & {
    type: "campaign.cancelled";
  };
  /** A person entered a sequence. */
  "sequence.entered": SequenceEnrolmentPayload & {
    type: "sequence.entered";
  };
  /** A person has passed the last step of a sequence. */
  "sequence.completed": SequenceEnrolmentPayload & {
    type: "sequence.completed";
  };
  /** A person left a sequence before its end: a condition of a step ended it, or they may not be mailed any more. */
  "sequence.left": SequenceEnrolmentPayload & {
    type: "sequence.left";
  };
  /** A mail was accepted by the sending account's server. */
  "email.sent": EmailPayload & {
    type: "email.sent";
  };
  /** A mail was refused for good by the sending account's server, or dropped by its provider. */
  "email.rejected": EmailPayload & {
    type: "email.rejected";
  };
  /** A mail came back after it had been accepted. */
  "email.bounced": EmailPayload & {
    type: "email.bounced";
  };
  /** A recipient reported a mail as spam. */
  "email.complained": EmailPayload & {
    type: "email.complained";
  };
  /** A recipient opened a mail or followed a link in it. */
  "event.tracked": TrackedEventPayload & {
    type: "event.tracked";
  };
  /** An address was put on the do-not-mail list, other than through the API. */
  "suppression.added": SuppressionPayload & {
    type: "suppression.added";
  };
  /** A suppression was lifted. */
  "suppression.removed": SuppressionPayload & {
    type: "suppression.removed";
  };
  /** A recipient unsubscribed. */
  "unsubscribe.created": UnsubscribePayload & {
    type: "unsubscribe.created";
  };
  /** A sending account cannot be used. */
  "account.error": EmailAccountPayload & {
    type: "account.error";
  };
  /** A sending account works again. */
  "account.recovered": EmailAccountPayload & {
    type: "account.recovered";
  };
};

/** The payload of a webhook: its `type` says which. Types are added: have a branch for one that is unknown. */
export type WebhookEvent = WebhookEvents[keyof WebhookEvents];

export type ListListsQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** The time that the records are sorted by. */
  sort?: "updated_at" | "created_at" | undefined;
  /** Only records that were changed at that time or later: `synced_through` of the previous run. */
  updated_since?: string | undefined;
};

export type ListFormsQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** The time that the records are sorted by. */
  sort?: "updated_at" | "created_at" | undefined;
  /** Only records that were changed at that time or later: `synced_through` of the previous run. */
  updated_since?: string | undefined;
};

export type ListSubscribersQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** The time that the records are sorted by. */
  sort?: "updated_at" | "created_at" | undefined;
  /** Only records that were changed at that time or later: `synced_through` of the previous run. */
  updated_since?: string | undefined;
  /** Only records of this address. */
  email?: string | undefined;
};

export type ListContactsQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** The time that the records are sorted by. */
  sort?: "updated_at" | "created_at" | undefined;
  /** Only records that were changed at that time or later: `synced_through` of the previous run. */
  updated_since?: string | undefined;
  /** Only records of this address. */
  email?: string | undefined;
  /** `INVALID` while the address is suppressed by a hard bounce: no campaign mails it. */
  email_status?: "ACTIVE" | "INVALID" | undefined;
};

export type ListNewslettersQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** The time that the records are sorted by. */
  sort?: "updated_at" | "created_at" | undefined;
  /** Only records that were changed at that time or later: `synced_through` of the previous run. */
  updated_since?: string | undefined;
  /** Only newsletters with this status. */
  status?: "DRAFT" | "SCHEDULED" | "SENDING" | "PAUSED" | "SENT" | "CANCELLED" | "FAILED" | undefined;
};

export type ListCampaignsQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** The time that the records are sorted by. */
  sort?: "updated_at" | "created_at" | undefined;
  /** Only records that were changed at that time or later: `synced_through` of the previous run. */
  updated_since?: string | undefined;
  /** Only campaigns with this status. */
  status?:
    | "DRAFT"
    | "SCHEDULED"
    | "SENDING"
    | "PAUSED"
    | "SENT"
    | "CANCELLED"
    | "FAILED"
    | "ACTIVE"
    | "STOPPED"
    | undefined;
};

export type ListSuppressionsQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** The time that the records are sorted by. */
  sort?: "updated_at" | "created_at" | undefined;
  /** Only records that were changed at that time or later: `synced_through` of the previous run. */
  updated_since?: string | undefined;
  /** Only records of this address. */
  email?: string | undefined;
  /** Only suppressions of this reason, in any case of its letters. */
  reason?: string | undefined;
};

export type ListUnsubscribesQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** The time that the records are sorted by. */
  sort?: "unsubscribed_at" | "created_at" | undefined;
  /** Only records of this address. */
  email?: string | undefined;
  /** Only opt-outs of this source. */
  source?: string | undefined;
  /** Only opt-outs from a mail of this newsletter or campaign. */
  campaign_id?: string | undefined;
};

export type ListAccountsQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** The time that the records are sorted by. */
  sort?: "updated_at" | "created_at" | undefined;
  /** Only records that were changed at that time or later: `synced_through` of the previous run. */
  updated_since?: string | undefined;
  /** Only accounts with this status. */
  status?: "PENDING" | "ACTIVE" | "ERROR" | "SUSPENDED" | "REVOKED" | undefined;
  /** Only accounts of this provider. */
  provider?:
    | "GOOGLE"
    | "MICROSOFT"
    | "SMTP_AMAZON_SES"
    | "SMTP_BREVO"
    | "SMTP_MAILGUN"
    | "SMTP_MAILJET"
    | "SMTP_POSTMARK"
    | "SMTP_RESEND"
    | "SMTP_SENDGRID"
    | "SMTP_SPARKPOST"
    | "SMTP_OTHER"
    | undefined;
};

export type ListWebhooksQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** The time that the records are sorted by. */
  sort?: "updated_at" | "created_at" | undefined;
  /** Only records that were changed at that time or later: `synced_through` of the previous run. */
  updated_since?: string | undefined;
  /** Only active endpoints, or only inactive ones. */
  active?: boolean | undefined;
  /** Only endpoints that subscribe to this event. */
  event?: string | undefined;
};

export type RetrieveAnalyticsOverviewQuery = {
  /** The first day, in UTC. A range holds at most 366 days. */
  from?: string | undefined;
  /** The last day, in UTC; today unless given. */
  to?: string | undefined;
  /** Only figures of this newsletter or campaign. */
  resource_id?: string | undefined;
};

export type ListListSubscribersQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** The time that the records are sorted by. */
  sort?: "updated_at" | "created_at" | undefined;
  /** Only records that were changed at that time or later: `synced_through` of the previous run. */
  updated_since?: string | undefined;
  /** Only subscriptions with this status. */
  status?: "PENDING" | "CONFIRMED" | "UNSUBSCRIBED" | undefined;
};

export type ListNewsletterLinksQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** By `clickers`: most first, or fewest first. */
  order?: "asc" | "desc" | undefined;
};

export type ListNewsletterRecipientsQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** From the last recipient of the send to the first, or from the first to the last. */
  order?: "asc" | "desc" | undefined;
  /** Only recipients with this status. */
  status?:
    | "QUEUED"
    | "SENDING"
    | "SENT"
    | "REJECTED"
    | "DEFERRED"
    | "UNKNOWN"
    | "EXPIRED"
    | "SUPPRESSED"
    | "CANCELLED"
    | undefined;
  /** Only recipients of accepted mails who did this, or to whose mail this happened. */
  activity?: "opened" | "not_opened" | "clicked" | "bounced" | "unsubscribed" | "complained" | undefined;
  /** With `activity` `clicked`: only those who clicked this link. */
  link?: string | undefined;
};

export type ListCampaignLinksQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** By `clickers`: most first, or fewest first. */
  order?: "asc" | "desc" | undefined;
};

export type ListCampaignRecipientsQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** From the last recipient of the send to the first, or from the first to the last. */
  order?: "asc" | "desc" | undefined;
  /** Only recipients with this status. */
  status?:
    | "QUEUED"
    | "SENDING"
    | "SENT"
    | "REJECTED"
    | "DEFERRED"
    | "UNKNOWN"
    | "EXPIRED"
    | "SUPPRESSED"
    | "CANCELLED"
    | undefined;
  /** Only recipients of accepted mails who did this, or to whose mail this happened. */
  activity?: "opened" | "not_opened" | "clicked" | "bounced" | "unsubscribed" | "complained" | undefined;
  /** With `activity` `clicked`: only those who clicked this link. */
  link?: string | undefined;
};

export type ListWebhookDeliveriesQuery = {
  /** Records of a page at most. */
  limit?: number | undefined;
  /** `meta.next_cursor` of the page before, with all other parameters as they were. */
  cursor?: string | undefined;
  /** Newest first, or oldest first. */
  order?: "asc" | "desc" | undefined;
  /** Only deliveries with this status. */
  status?: "PENDING" | "SUCCEEDED" | "FAILED" | "RETRYING" | "BLOCKED" | undefined;
  /** Only attempts with which their delivery has ended, or only the others. */
  final?: boolean | undefined;
};

export class MeResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Retrieve the API key or OAuth token of the request: its team, its scopes and its API version.
   *
   * Answers which key or token the request carries: its team, its environment, the scopes it has at this moment and the dated version it is pinned to. It needs no scope, so that a client can learn its own scopes.
   *
   * `granted_scopes` are those of the key's creation; `scopes` are those of them that the role of its creator still allows.
   *
   * **Scope:** none.
   *
   * **Errors:** those of every operation.
   */
  retrieve(options?: RequestOptions): Promise<Answer<Identity>> {
    return this.#transport.request({ method: "GET", path: "/me" }, options);
  }
}

export class ListsResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List the lists.
   *
   * Pages through the lists of the team.
   *
   * **Scope:** `lists:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `sort_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  list(query: ListListsQuery = {}, options?: RequestOptions): Listing<MailingList> {
    const readPage = (query: ListListsQuery): Promise<Page<MailingList>> =>
      this.#transport.request({ method: "GET", path: "/lists", query }, options);
    return listingOf(readPage, query);
  }

  /** The records that changed since an instant, all of them without one. See `Changes`. */
  changes(
    since?: string,
    query: Omit<ListListsQuery, "updated_since" | "sort" | "cursor"> = {},
    options?: RequestOptions,
  ): Changes<MailingList> {
    return new Changes((page) =>
      this.list(
        { ...page, ...query, sort: "updated_at", ...(since === undefined ? {} : { updated_since: since }) },
        options,
      ),
    );
  }

  /**
   * Create a list.
   *
   * Creates an empty list. With the opt-in `SINGLE` a subscription starts `CONFIRMED`; with `DOUBLE` it starts `PENDING`, and the subscriber gets a mail that asks for a confirmation.
   *
   * A team has a limit of lists: one more is 409 `resource_limit_reached`.
   *
   * **Scope:** `lists:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `lists:read` besides.
   *
   * **Errors:** `insufficient_scope`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_limit_reached`, those of every operation.
   */
  create<O extends WriteOptions & DryRunOption>(
    body: CreateListBody,
    options?: O,
  ): Promise<Outcome<MailingList, Impact, O>> {
    return this.#transport.request({ method: "POST", path: "/lists", body, takesKey: true }, options);
  }

  /**
   * Retrieve a list.
   *
   * Answers one list, without its subscribers.
   *
   * **Scope:** `lists:read`.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  retrieve(listId: string, options?: RequestOptions): Promise<Answer<MailingList>> {
    return this.#transport.request({ method: "GET", path: "/lists/{listId}", ids: { listId } }, options);
  }

  /**
   * Change a list.
   *
   * Changes the fields that the body holds and leaves the others as they are. A change of `optin` applies to subscriptions that start later.
   *
   * **Scope:** `lists:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `lists:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, those of every operation.
   */
  update<O extends WriteOptions & DryRunOption>(
    listId: string,
    body: UpdateListBody,
    options?: O,
  ): Promise<Outcome<MailingList, Impact, O>> {
    return this.#transport.request(
      { method: "PATCH", path: "/lists/{listId}", ids: { listId }, body, takesKey: true },
      options,
    );
  }

  /**
   * Delete a list with its subscriptions; the subscribers stay.
   *
   * Deletes a list and its subscriptions. In the console, a member can restore them for 30 days. The subscribers stay, and so do suppressions and the record of opt-outs.
   *
   * Drafts that target the list lose it. While a newsletter that is `SCHEDULED`, `SENDING` or `PAUSED` targets it, the answer is 409 `resource_state_invalid`.
   *
   * **Scope:** `lists:write`.
   *
   * **Idempotency-Key:** has no effect here. A second deletion is 404 `not_found`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `lists:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `resource_state_invalid`, those of every operation.
   */
  delete<O extends RequestOptions & DryRunOption>(
    listId: string,
    options?: O,
  ): Promise<Outcome<DeletedList, Impact, O>> {
    return this.#transport.request({ method: "DELETE", path: "/lists/{listId}", ids: { listId } }, options);
  }

  /**
   * List the subscribers of a list with the status of their subscriptions.
   *
   * Pages through the subscribers of a list. The `id` of an item is the subscriber's; its status and timestamps are those of the subscription.
   *
   * **Scope:** `lists:read` and `subscribers:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `sort_unsupported`, `expand_unsupported`, `insufficient_scope`, `not_found`, those of every operation.
   */
  listSubscribers(
    listId: string,
    query: ListListSubscribersQuery = {},
    options?: RequestOptions,
  ): Listing<ListSubscriber> {
    const readPage = (query: ListListSubscribersQuery): Promise<Page<ListSubscriber>> =>
      this.#transport.request({ method: "GET", path: "/lists/{listId}/subscribers", ids: { listId }, query }, options);
    return listingOf(readPage, query);
  }

  /** The records that changed since an instant, all of them without one. See `Changes`. */
  changesOfSubscribers(
    listId: string,
    since?: string,
    query: Omit<ListListSubscribersQuery, "updated_since" | "sort" | "cursor"> = {},
    options?: RequestOptions,
  ): Changes<ListSubscriber> {
    return new Changes((page) =>
      this.listSubscribers(
        listId,
        { ...page, ...query, sort: "updated_at", ...(since === undefined ? {} : { updated_since: since }) },
        options,
      ),
    );
  }

  /**
   * Add subscribers to a list; an opt-out stays.
   *
   * Puts up to 1,000 subscribers on a list. Each id is in one of the three arrays of the answer: `added`, `already_subscribed` or, for someone who opted out of the list, `opted_out`. Only the person undoes an opt-out, by a confirmation.
   *
   * On a list with double opt-in the new subscriptions are `PENDING`, and each subscriber gets a mail that asks for a confirmation. So does a person who opted out of the list or unsubscribed from all mail of the team, and, within the limits of such mails, one who is still `PENDING`: add such a person only when they sign up again. A running sequence of the list mails each person who comes onto it. If one id names no subscriber, none is added: 404 `not_found`, and `param` names it.
   *
   * **Scope:** `lists:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `lists:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, those of every operation.
   */
  addSubscribers<O extends WriteOptions & DryRunOption>(
    listId: string,
    body: AddListSubscribersBody,
    options?: O,
  ): Promise<Outcome<ListSubscriberBatch, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/lists/{listId}/subscribers", ids: { listId }, body, takesKey: true },
      options,
    );
  }

  /**
   * Opt a subscriber out of a list.
   *
   * Records that a subscriber opted out of the list, for example on your own preference page. The only status that can be set is `UNSUBSCRIBED`: the person undoes an opt-out by a confirmation. Other lists and suppressions stay as they are.
   *
   * **Scope:** `lists:write` and `subscribers:read`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `lists:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, those of every operation.
   */
  updateSubscriber<O extends WriteOptions & DryRunOption>(
    listId: string,
    subscriberId: string,
    body: UpdateListSubscriberBody,
    options?: O,
  ): Promise<Outcome<ListSubscriber, Impact, O>> {
    return this.#transport.request(
      {
        method: "PATCH",
        path: "/lists/{listId}/subscribers/{subscriberId}",
        ids: { listId, subscriberId },
        body,
        takesKey: true,
      },
      options,
    );
  }

  /**
   * Remove a subscriber from a list.
   *
   * Takes a subscriber off a list. The subscriber stays, with all other subscriptions.
   *
   * A subscription that ended by an opt-out stays as the record of it: 409 `resource_state_invalid`.
   *
   * **Scope:** `lists:write`.
   *
   * **Idempotency-Key:** has no effect here. A second deletion is 404 `not_found`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `lists:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `resource_state_invalid`, those of every operation.
   */
  removeSubscriber<O extends RequestOptions & DryRunOption>(
    listId: string,
    subscriberId: string,
    options?: O,
  ): Promise<Outcome<DeletedListSubscriber, Impact, O>> {
    return this.#transport.request(
      { method: "DELETE", path: "/lists/{listId}/subscribers/{subscriberId}", ids: { listId, subscriberId } },
      options,
    );
  }
}

export class FormsResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List the sign-up forms.
   *
   * Pages through the sign-up forms of the team. They are made in the app.
   *
   * **Scope:** `lists:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `sort_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  list(query: ListFormsQuery = {}, options?: RequestOptions): Listing<Form> {
    const readPage = (query: ListFormsQuery): Promise<Page<Form>> =>
      this.#transport.request({ method: "GET", path: "/forms", query }, options);
    return listingOf(readPage, query);
  }

  /** The records that changed since an instant, all of them without one. See `Changes`. */
  changes(
    since?: string,
    query: Omit<ListFormsQuery, "updated_since" | "sort" | "cursor"> = {},
    options?: RequestOptions,
  ): Changes<Form> {
    return new Changes((page) =>
      this.list(
        { ...page, ...query, sort: "updated_at", ...(since === undefined ? {} : { updated_since: since }) },
        options,
      ),
    );
  }

  /**
   * Retrieve a sign-up form.
   *
   * Answers one sign-up form: its texts, where it may be used, and how often it was.
   *
   * **Scope:** `lists:read`.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  retrieve(formId: string, options?: RequestOptions): Promise<Answer<Form>> {
    return this.#transport.request({ method: "GET", path: "/forms/{formId}", ids: { formId } }, options);
  }
}

export class SubscribersResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List the subscribers.
   *
   * Pages through the subscribers of the team. With `email` it finds the one with that address.
   *
   * **Scope:** `subscribers:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `sort_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  list(query: ListSubscribersQuery = {}, options?: RequestOptions): Listing<Subscriber> {
    const readPage = (query: ListSubscribersQuery): Promise<Page<Subscriber>> =>
      this.#transport.request({ method: "GET", path: "/subscribers", query }, options);
    return listingOf(readPage, query);
  }

  /** The records that changed since an instant, all of them without one. See `Changes`. */
  changes(
    since?: string,
    query: Omit<ListSubscribersQuery, "updated_since" | "sort" | "cursor"> = {},
    options?: RequestOptions,
  ): Changes<Subscriber> {
    return new Changes((page) =>
      this.list(
        { ...page, ...query, sort: "updated_at", ...(since === undefined ? {} : { updated_since: since }) },
        options,
      ),
    );
  }

  /**
   * Create a subscriber, on no list yet.
   *
   * Creates a subscriber, who is on no list yet. The address is trimmed and lower-cased. An address that the team has already is 409 `resource_already_exists`: change that subscriber with `PATCH`. An address that neither a contact nor a subscriber has yet takes one of the plan's contact slots; without one left it is 402 `quota_exceeded`.
   *
   * **Scope:** `subscribers:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `subscribers:read` besides.
   *
   * **Errors:** `quota_exceeded`, `insufficient_scope`, `idempotency_key_reused`, `request_in_flight`, `resource_already_exists`, `person_erased`, those of every operation.
   */
  create<O extends WriteOptions & DryRunOption>(
    body: CreateSubscriberBody,
    options?: O,
  ): Promise<Outcome<Subscriber, Impact, O>> {
    return this.#transport.request({ method: "POST", path: "/subscribers", body, takesKey: true }, options);
  }

  /**
   * Retrieve a subscriber with their subscriptions.
   *
   * Answers one subscriber with the subscriptions to all lists.
   *
   * **Scope:** `subscribers:read`.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  retrieve(subscriberId: string, options?: RequestOptions): Promise<Answer<SubscriberWithSubscriptions>> {
    return this.#transport.request(
      { method: "GET", path: "/subscribers/{subscriberId}", ids: { subscriberId } },
      options,
    );
  }

  /**
   * Change a subscriber.
   *
   * Changes the fields that the body holds and leaves the others as they are. An address that another subscriber has is 409 `resource_already_exists`. A new address takes the contact slot of the one before it, unless a contact has that: then it needs a slot of its own, and without one left it is 402 `quota_exceeded`.
   *
   * **Scope:** `subscribers:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `subscribers:read` besides.
   *
   * **Errors:** `quota_exceeded`, `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `resource_already_exists`, `person_erased`, those of every operation.
   */
  update<O extends WriteOptions & DryRunOption>(
    subscriberId: string,
    body: UpdateSubscriberBody,
    options?: O,
  ): Promise<Outcome<Subscriber, Impact, O>> {
    return this.#transport.request(
      { method: "PATCH", path: "/subscribers/{subscriberId}", ids: { subscriberId }, body, takesKey: true },
      options,
    );
  }

  /**
   * Delete a subscriber with their subscriptions.
   *
   * Deletes a subscriber with all subscriptions for good; the impact counts them too. A contact with the same address stays, and so do suppressions and the record of opt-outs. An opt-out of a list stays as a hash of the address: another subscriber with that address gets it back.
   *
   * **Scope:** `subscribers:write`.
   *
   * **Idempotency-Key:** has no effect here. A second deletion is 404 `not_found`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `subscribers:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  delete<O extends RequestOptions & DryRunOption>(
    subscriberId: string,
    options?: O,
  ): Promise<Outcome<DeletedSubscriber, Impact, O>> {
    return this.#transport.request(
      { method: "DELETE", path: "/subscribers/{subscriberId}", ids: { subscriberId } },
      options,
    );
  }
}

export class ContactsResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List the contacts.
   *
   * Pages through the contacts of the team. With `email` it finds the one with that address, with `email_status` those that campaigns can mail or cannot.
   *
   * **Scope:** `contacts:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `sort_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  list(query: ListContactsQuery = {}, options?: RequestOptions): Listing<Contact> {
    const readPage = (query: ListContactsQuery): Promise<Page<Contact>> =>
      this.#transport.request({ method: "GET", path: "/contacts", query }, options);
    return listingOf(readPage, query);
  }

  /** The records that changed since an instant, all of them without one. See `Changes`. */
  changes(
    since?: string,
    query: Omit<ListContactsQuery, "updated_since" | "sort" | "cursor"> = {},
    options?: RequestOptions,
  ): Changes<Contact> {
    return new Changes((page) =>
      this.list(
        { ...page, ...query, sort: "updated_at", ...(since === undefined ? {} : { updated_since: since }) },
        options,
      ),
    );
  }

  /**
   * Create a contact.
   *
   * Creates a contact. The address is trimmed and lower-cased. An address that a contact of the team has already is 409 `resource_already_exists`: change that contact with `PATCH`, or use the bulk upsert. A subscriber may have the same address; a new one takes a contact slot of the plan, and without one left it is 402 `quota_exceeded`.
   *
   * `fields` takes the custom fields that the team declared in the app, which `GET /contacts/fields` lists; any other is 400 `validation_failed`, and `param` names it.
   *
   * **Scope:** `contacts:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `contacts:read` besides.
   *
   * **Errors:** `quota_exceeded`, `insufficient_scope`, `idempotency_key_reused`, `request_in_flight`, `resource_already_exists`, `person_erased`, those of every operation.
   */
  create<O extends WriteOptions & DryRunOption>(
    body: CreateContactBody,
    options?: O,
  ): Promise<Outcome<Contact, Impact, O>> {
    return this.#transport.request({ method: "POST", path: "/contacts", body, takesKey: true }, options);
  }

  /**
   * Create or change up to 1,000 contacts by their addresses.
   *
   * Creates a contact for each address that is new, and changes those that exist. A field that an item leaves out stays as it is, custom fields too. The answer has a result per item, in their order: `created`, `updated`, `unchanged` or `failed`.
   *
   * An item that cannot be used fails alone, with the code, message and `param` of its `error`; the others are written. Items with the same address are settled in their order, so that the last one wins. A contact keeps the spelling of its address. New addresses take contact slots of the plan, the first ones first; where none is left, an item fails with `quota_exceeded`.
   *
   * **Scope:** `contacts:write`.
   *
   * **Idempotency-Key:** required. Without it the request is 400 `idempotency_key_required`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `contacts:read` besides.
   *
   * **Errors:** `idempotency_key_required`, `insufficient_scope`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, those of every operation.
   */
  upsert<O extends WriteOptions & DryRunOption>(
    body: UpsertContactsBody,
    options?: O,
  ): Promise<Outcome<ContactBatch, Impact, O>> {
    return this.#transport.request({ method: "POST", path: "/contacts/bulk", body, takesKey: true }, options);
  }

  /**
   * List the custom fields of contacts.
   *
   * Answers every custom field that the team declared in the app, in the order of their names, in one page.
   *
   * **Scope:** `contacts:read`.
   *
   * **Errors:** `filter_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  listFields(options?: RequestOptions): Promise<Answer<Array<ContactField>>> {
    return this.#transport.request({ method: "GET", path: "/contacts/fields" }, options);
  }

  /**
   * Retrieve a contact.
   *
   * Answers one contact.
   *
   * **Scope:** `contacts:read`.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  retrieve(contactId: string, options?: RequestOptions): Promise<Answer<Contact>> {
    return this.#transport.request({ method: "GET", path: "/contacts/{contactId}", ids: { contactId } }, options);
  }

  /**
   * Change a contact.
   *
   * Changes the fields that the body holds and leaves the others as they are, custom fields too. An address that another contact has is 409 `resource_already_exists`.
   *
   * The `email_status` of a changed address is that of the new one. It takes the contact slot of the one before it, unless a subscriber has that: then it needs a slot of its own, and without one left it is 402 `quota_exceeded`.
   *
   * **Scope:** `contacts:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `contacts:read` besides.
   *
   * **Errors:** `quota_exceeded`, `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `resource_already_exists`, `person_erased`, those of every operation.
   */
  update<O extends WriteOptions & DryRunOption>(
    contactId: string,
    body: UpdateContactBody,
    options?: O,
  ): Promise<Outcome<Contact, Impact, O>> {
    return this.#transport.request(
      { method: "PATCH", path: "/contacts/{contactId}", ids: { contactId }, body, takesKey: true },
      options,
    );
  }

  /**
   * Delete a contact.
   *
   * Deletes a contact with its custom fields. A subscriber with the same address stays, and so do suppressions and opt-outs.
   *
   * **Scope:** `contacts:write`.
   *
   * **Idempotency-Key:** has no effect here. A second deletion is 404 `not_found`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `contacts:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  delete<O extends RequestOptions & DryRunOption>(
    contactId: string,
    options?: O,
  ): Promise<Outcome<DeletedContact, Impact, O>> {
    return this.#transport.request({ method: "DELETE", path: "/contacts/{contactId}", ids: { contactId } }, options);
  }
}

export class NewslettersResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List the newsletters.
   *
   * Pages through the newsletters of the team, each with its body. A page ends before its records exceed 2,044 KiB, so it may hold fewer newsletters than `limit` and have more after it.
   *
   * **Scope:** `newsletters:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `sort_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  list(query: ListNewslettersQuery = {}, options?: RequestOptions): Listing<Newsletter> {
    const readPage = (query: ListNewslettersQuery): Promise<Page<Newsletter>> =>
      this.#transport.request({ method: "GET", path: "/newsletters", query }, options);
    return listingOf(readPage, query);
  }

  /** The records that changed since an instant, all of them without one. See `Changes`. */
  changes(
    since?: string,
    query: Omit<ListNewslettersQuery, "updated_since" | "sort" | "cursor"> = {},
    options?: RequestOptions,
  ): Changes<Newsletter> {
    return new Changes((page) =>
      this.list(
        { ...page, ...query, sort: "updated_at", ...(since === undefined ? {} : { updated_since: since }) },
        options,
      ),
    );
  }

  /**
   * Draft a newsletter.
   *
   * Creates a newsletter, always as a `DRAFT`. A draft may be incomplete: its send-preview is refused until it is complete. Its lists and its send days are set in the app; a key that is made for a list attaches that list.
   *
   * `subject` and `body` are Liquid templates, which are checked here. A team has a limit of newsletters, sent ones among them: one more is 409 `resource_limit_reached`. While too many templates of the team wait to be checked, the answer is 429 `rate_limit_exceeded`.
   *
   * **Scope:** `newsletters:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `newsletters:read` besides.
   *
   * **Errors:** `insufficient_scope`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_limit_reached`, those of every operation.
   */
  create<O extends WriteOptions & DryRunOption>(
    body: CreateNewsletterBody,
    options?: O,
  ): Promise<Outcome<Newsletter, Impact, O>> {
    return this.#transport.request({ method: "POST", path: "/newsletters", body, takesKey: true }, options);
  }

  /**
   * Retrieve a newsletter with the states of its recipients.
   *
   * Answers one newsletter. From its confirmation on, `recipients` counts its recipients in each state; the counts add up to `total`.
   *
   * **Scope:** `newsletters:read`.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  retrieve(newsletterId: string, options?: RequestOptions): Promise<Answer<NewsletterWithRecipients>> {
    return this.#transport.request(
      { method: "GET", path: "/newsletters/{newsletterId}", ids: { newsletterId } },
      options,
    );
  }

  /**
   * Change a draft.
   *
   * Changes the fields that the body holds and leaves the others as they are. Only a `DRAFT` can be changed; in another status the answer is 409 `resource_state_invalid`. A change makes the tokens of earlier previews void.
   *
   * **Scope:** `newsletters:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `newsletters:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_state_invalid`, those of every operation.
   */
  update<O extends WriteOptions & DryRunOption>(
    newsletterId: string,
    body: UpdateNewsletterBody,
    options?: O,
  ): Promise<Outcome<Newsletter, Impact, O>> {
    return this.#transport.request(
      { method: "PATCH", path: "/newsletters/{newsletterId}", ids: { newsletterId }, body, takesKey: true },
      options,
    );
  }

  /**
   * Delete a draft.
   *
   * Deletes a draft. In the console, a member can restore it for 30 days. A newsletter that is no `DRAFT` any more stays: 409 `resource_state_invalid`.
   *
   * **Scope:** `newsletters:write`.
   *
   * **Idempotency-Key:** has no effect here. A second deletion is 404 `not_found`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `newsletters:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `resource_state_invalid`, those of every operation.
   */
  delete<O extends RequestOptions & DryRunOption>(
    newsletterId: string,
    options?: O,
  ): Promise<Outcome<DeletedNewsletter, Impact, O>> {
    return this.#transport.request(
      { method: "DELETE", path: "/newsletters/{newsletterId}", ids: { newsletterId } },
      options,
    );
  }

  /**
   * Pause the send of a newsletter.
   *
   * Holds a send that is `SCHEDULED` or `SENDING`. Its credits stay reserved.
   *
   * The answer shows the new status, which holds at once: from then on only mails in flight leave, and these settle by themselves. In any other status the answer is 409 `resource_state_invalid`.
   *
   * **Scope:** `newsletters:send`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `newsletters:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_state_invalid`, those of every operation.
   */
  pause<O extends WriteOptions & DryRunOption>(
    newsletterId: string,
    options?: O,
  ): Promise<Outcome<Newsletter, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/newsletters/{newsletterId}/pause", ids: { newsletterId }, takesKey: true },
      options,
    );
  }

  /**
   * Continue the send of a newsletter that is paused.
   *
   * Continues a send that a client paused, or that is paused because its sending accounts failed. One that complaints paused is 403 `complaint_rate_exceeded`; one that an operator of the service paused, or the service after a restore, is 409 `resource_state_invalid`.
   *
   * The answer shows the new status, which holds at once: from then on only mails in flight leave, and these settle by themselves. In any other status the answer is 409 `resource_state_invalid`.
   *
   * **Scope:** `newsletters:send`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `newsletters:read` besides.
   *
   * **Errors:** `insufficient_scope`, `complaint_rate_exceeded`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_state_invalid`, those of every operation.
   */
  resume<O extends WriteOptions & DryRunOption>(
    newsletterId: string,
    options?: O,
  ): Promise<Outcome<Newsletter, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/newsletters/{newsletterId}/resume", ids: { newsletterId }, takesKey: true },
      options,
    );
  }

  /**
   * End the send of a newsletter for good.
   *
   * Ends a send that is `SCHEDULED`, `SENDING` or `PAUSED`. The credits of mails that were not sent are released once no mail is in flight; the day's send cap is not.
   *
   * The answer shows the new status, which holds at once: from then on only mails in flight leave, and these settle by themselves. In any other status the answer is 409 `resource_state_invalid`.
   *
   * **Scope:** `newsletters:send`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `newsletters:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_state_invalid`, those of every operation.
   */
  cancel<O extends WriteOptions & DryRunOption>(
    newsletterId: string,
    options?: O,
  ): Promise<Outcome<Newsletter, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/newsletters/{newsletterId}/cancel", ids: { newsletterId }, takesKey: true },
      options,
    );
  }

  /**
   * List the links of a newsletter with their clicks.
   *
   * Pages through the links of a newsletter that were clicked in mails with tracking. Links of a mail with the same URL are one record. The sums of `clicks`, `clicks_unknown` and `clicks_machine` over all links are `clicked`, `clicked_unknown` and `clicked_machine` of its analytics.
   *
   * A click counts as in the analytics, some seconds after it. While people click, a link may move from one page to another.
   *
   * **Scope:** `newsletters:read` and `analytics:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `expand_unsupported`, `insufficient_scope`, `not_found`, those of every operation.
   */
  listLinks(
    newsletterId: string,
    query: ListNewsletterLinksQuery = {},
    options?: RequestOptions,
  ): Listing<TrackedLink> {
    const readPage = (query: ListNewsletterLinksQuery): Promise<Page<TrackedLink>> =>
      this.#transport.request(
        { method: "GET", path: "/newsletters/{newsletterId}/links", ids: { newsletterId }, query },
        options,
      );
    return listingOf(readPage, query);
  }

  /**
   * List the recipients of a newsletter with the outcome of each mail.
   *
   * Pages through the recipients of a newsletter, which are fixed at its confirmation: before it there are none. Each is a record as the events `email.*` have it. A bounce or a complaint that comes later changes no status here.
   *
   * `activity` shows the recipients whom the figures count: `opened` and `clicked` by people, `bounced` mails that came back, opt-outs and complaints. `not_opened` are the delivered mails of a tracked send that were not opened. The ids of links come from the list of its links.
   *
   * With `status` or `activity` a page may hold fewer records than `limit`, even none, and have more after it. When the recipients are kept no longer, the answer is 409 `resource_state_invalid`.
   *
   * **Scope:** `newsletters:read` and `subscribers:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `expand_unsupported`, `insufficient_scope`, `not_found`, `resource_state_invalid`, those of every operation.
   */
  listRecipients(
    newsletterId: string,
    query: ListNewsletterRecipientsQuery = {},
    options?: RequestOptions,
  ): Listing<Recipient> {
    const readPage = (query: ListNewsletterRecipientsQuery): Promise<Page<Recipient>> =>
      this.#transport.request(
        { method: "GET", path: "/newsletters/{newsletterId}/recipients", ids: { newsletterId }, query },
        options,
      );
    return listingOf(readPage, query);
  }

  /**
   * Resolve the recipients of a newsletter, and get the token that confirms its send.
   *
   * The first of the two calls that send a newsletter. It sends nothing and reserves nothing: it runs every check of the send, resolves the recipients, and answers how many there are, what the send costs, and a token that confirms this very plan.
   *
   * The token is valid for 15 minutes, for one send and for this API key alone. It is void as soon as the plan changes: when a subscriber joins or leaves a targeted list or the segment that narrows it, a suppression or an opt-out arrives, or the content or the sending account changes.
   *
   * A dry run answers the same checks and counts, and no token.
   *
   * **Scope:** `newsletters:send`.
   *
   * **Idempotency-Key:** required. Without it the request is 400 `idempotency_key_required`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `newsletters:read` besides.
   *
   * **Errors:** `idempotency_key_required`, `filter_unsupported`, `quota_exceeded`, `insufficient_scope`, `send_not_permitted`, `send_domain_not_allowed`, `complaint_rate_exceeded`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `campaign_not_ready`, `sending_domain_unverified`, `person_erased`, `resource_state_invalid`, `send_cap_exceeded`, those of every operation.
   */
  previewSend<O extends WriteOptions & DryRunOption>(
    newsletterId: string,
    options?: O,
  ): Promise<Outcome<NewsletterSendPreview, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/newsletters/{newsletterId}/send-preview", ids: { newsletterId }, takesKey: true },
      options,
    );
  }

  /**
   * Confirm a preview with its token: reserve credits and schedule the send.
   *
   * The second of the two calls that send a newsletter. It verifies the token of the preview, runs every check again, resolves the recipients again and refuses if anything changed. Then it reserves the credits and schedules the newsletter: it starts within about a minute, or on the next allowed day where the newsletter restricts them.
   *
   * This cannot be undone through the API. It takes no `dry_run`: the preview is that. A program that acts for a person, such as an assistant, calls this only after the person has seen the numbers of the preview and agreed to them.
   *
   * **Scope:** `newsletters:send`.
   *
   * **Idempotency-Key:** required. Without it the request is 400 `idempotency_key_required`.
   *
   * **Errors:** `idempotency_key_required`, `quota_exceeded`, `insufficient_scope`, `send_not_permitted`, `send_domain_not_allowed`, `complaint_rate_exceeded`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `confirmation_required`, `confirmation_stale`, `confirmation_invalid`, `send_plan_changed`, `campaign_not_ready`, `sending_domain_unverified`, `person_erased`, `resource_state_invalid`, `send_cap_exceeded`, those of every operation.
   */
  send(newsletterId: string, body: SendNewsletterBody, options?: WriteOptions): Promise<Answer<NewsletterSend>> {
    return this.#transport.request(
      { method: "POST", path: "/newsletters/{newsletterId}/send", ids: { newsletterId }, body, takesKey: true },
      options,
    );
  }
}

export class CampaignsResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List the campaigns.
   *
   * Pages through the campaigns of the team, each with its body. A page ends before its records exceed 2,044 KiB, so it may hold fewer campaigns than `limit` and have more after it.
   *
   * **Scope:** `campaigns:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `sort_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  list(query: ListCampaignsQuery = {}, options?: RequestOptions): Listing<Campaign> {
    const readPage = (query: ListCampaignsQuery): Promise<Page<Campaign>> =>
      this.#transport.request({ method: "GET", path: "/campaigns", query }, options);
    return listingOf(readPage, query);
  }

  /** The records that changed since an instant, all of them without one. See `Changes`. */
  changes(
    since?: string,
    query: Omit<ListCampaignsQuery, "updated_since" | "sort" | "cursor"> = {},
    options?: RequestOptions,
  ): Changes<Campaign> {
    return new Changes((page) =>
      this.list(
        { ...page, ...query, sort: "updated_at", ...(since === undefined ? {} : { updated_since: since }) },
        options,
      ),
    );
  }

  /**
   * Draft a campaign.
   *
   * Creates a campaign, always as a `DRAFT`. A draft may be incomplete: its send-preview is refused until it is complete. Its segment, its sending accounts and its send days are set in the app.
   *
   * `subject` and `body` are Liquid templates, which are checked here. A team has a limit of campaigns, sent ones among them: one more is 409 `resource_limit_reached`. While too many templates of the team wait to be checked, the answer is 429 `rate_limit_exceeded`.
   *
   * **Scope:** `campaigns:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `campaigns:read` besides.
   *
   * **Errors:** `insufficient_scope`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_limit_reached`, those of every operation.
   */
  create<O extends WriteOptions & DryRunOption>(
    body: CreateCampaignBody,
    options?: O,
  ): Promise<Outcome<Campaign, Impact, O>> {
    return this.#transport.request({ method: "POST", path: "/campaigns", body, takesKey: true }, options);
  }

  /**
   * Retrieve a campaign with the states of its recipients.
   *
   * Answers one campaign. From its confirmation on, `recipients` counts its recipients in each state; the counts add up to `total`.
   *
   * **Scope:** `campaigns:read`.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  retrieve(campaignId: string, options?: RequestOptions): Promise<Answer<CampaignWithRecipients>> {
    return this.#transport.request({ method: "GET", path: "/campaigns/{campaignId}", ids: { campaignId } }, options);
  }

  /**
   * Change a draft.
   *
   * Changes the fields that the body holds and leaves the others as they are. Only a `DRAFT` can be changed; in another status the answer is 409 `resource_state_invalid`. A change makes the tokens of earlier previews void.
   *
   * **Scope:** `campaigns:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `campaigns:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_state_invalid`, those of every operation.
   */
  update<O extends WriteOptions & DryRunOption>(
    campaignId: string,
    body: UpdateCampaignBody,
    options?: O,
  ): Promise<Outcome<Campaign, Impact, O>> {
    return this.#transport.request(
      { method: "PATCH", path: "/campaigns/{campaignId}", ids: { campaignId }, body, takesKey: true },
      options,
    );
  }

  /**
   * Delete a draft.
   *
   * Deletes a draft. In the console, a member can restore it for 30 days. A campaign that is no `DRAFT` any more stays: 409 `resource_state_invalid`.
   *
   * **Scope:** `campaigns:write`.
   *
   * **Idempotency-Key:** has no effect here. A second deletion is 404 `not_found`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `campaigns:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `resource_state_invalid`, those of every operation.
   */
  delete<O extends RequestOptions & DryRunOption>(
    campaignId: string,
    options?: O,
  ): Promise<Outcome<DeletedCampaign, Impact, O>> {
    return this.#transport.request({ method: "DELETE", path: "/campaigns/{campaignId}", ids: { campaignId } }, options);
  }

  /**
   * Pause the send of a campaign.
   *
   * Holds a send that is `SCHEDULED` or `SENDING`. Its credits stay reserved.
   *
   * The answer shows the new status, which holds at once: from then on only mails in flight leave, and these settle by themselves. In any other status the answer is 409 `resource_state_invalid`.
   *
   * **Scope:** `campaigns:send`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `campaigns:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_state_invalid`, those of every operation.
   */
  pause<O extends WriteOptions & DryRunOption>(campaignId: string, options?: O): Promise<Outcome<Campaign, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/campaigns/{campaignId}/pause", ids: { campaignId }, takesKey: true },
      options,
    );
  }

  /**
   * Continue the send of a campaign that is paused.
   *
   * Continues a send that a client paused, or that is paused because its sending accounts failed. One that complaints paused is 403 `complaint_rate_exceeded`; one that an operator of the service paused, or the service after a restore, is 409 `resource_state_invalid`.
   *
   * The answer shows the new status, which holds at once: from then on only mails in flight leave, and these settle by themselves. In any other status the answer is 409 `resource_state_invalid`.
   *
   * **Scope:** `campaigns:send`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `campaigns:read` besides.
   *
   * **Errors:** `insufficient_scope`, `complaint_rate_exceeded`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_state_invalid`, those of every operation.
   */
  resume<O extends WriteOptions & DryRunOption>(
    campaignId: string,
    options?: O,
  ): Promise<Outcome<Campaign, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/campaigns/{campaignId}/resume", ids: { campaignId }, takesKey: true },
      options,
    );
  }

  /**
   * End the send of a campaign for good.
   *
   * Ends a send that is `SCHEDULED`, `SENDING` or `PAUSED`. The credits of mails that were not sent are released once no mail is in flight; the day's send cap is not.
   *
   * The answer shows the new status, which holds at once: from then on only mails in flight leave, and these settle by themselves. In any other status the answer is 409 `resource_state_invalid`.
   *
   * **Scope:** `campaigns:send`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `campaigns:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_state_invalid`, those of every operation.
   */
  cancel<O extends WriteOptions & DryRunOption>(
    campaignId: string,
    options?: O,
  ): Promise<Outcome<Campaign, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/campaigns/{campaignId}/cancel", ids: { campaignId }, takesKey: true },
      options,
    );
  }

  /**
   * List the links of a campaign with their clicks.
   *
   * Pages through the links of a campaign that were clicked in mails with tracking. Links of a mail with the same URL are one record. The sums of `clicks`, `clicks_unknown` and `clicks_machine` over all links are `clicked`, `clicked_unknown` and `clicked_machine` of its analytics.
   *
   * A click counts as in the analytics, some seconds after it. While people click, a link may move from one page to another.
   *
   * **Scope:** `campaigns:read` and `analytics:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `expand_unsupported`, `insufficient_scope`, `not_found`, those of every operation.
   */
  listLinks(campaignId: string, query: ListCampaignLinksQuery = {}, options?: RequestOptions): Listing<TrackedLink> {
    const readPage = (query: ListCampaignLinksQuery): Promise<Page<TrackedLink>> =>
      this.#transport.request(
        { method: "GET", path: "/campaigns/{campaignId}/links", ids: { campaignId }, query },
        options,
      );
    return listingOf(readPage, query);
  }

  /**
   * List the recipients of a campaign with the outcome of each mail.
   *
   * Pages through the recipients of a campaign, which are fixed at its confirmation: before it there are none. Each is a record as the events `email.*` have it. A bounce or a complaint that comes later changes no status here.
   *
   * `activity` shows the recipients whom the figures count: `opened` and `clicked` by people, `bounced` mails that came back, opt-outs and complaints. `not_opened` are the delivered mails of a tracked send that were not opened. The ids of links come from the list of its links.
   *
   * With `status` or `activity` a page may hold fewer records than `limit`, even none, and have more after it. When the recipients are kept no longer, the answer is 409 `resource_state_invalid`.
   *
   * **Scope:** `campaigns:read` and `contacts:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `expand_unsupported`, `insufficient_scope`, `not_found`, `resource_state_invalid`, those of every operation.
   */
  listRecipients(
    campaignId: string,
    query: ListCampaignRecipientsQuery = {},
    options?: RequestOptions,
  ): Listing<Recipient> {
    const readPage = (query: ListCampaignRecipientsQuery): Promise<Page<Recipient>> =>
      this.#transport.request(
        { method: "GET", path: "/campaigns/{campaignId}/recipients", ids: { campaignId }, query },
        options,
      );
    return listingOf(readPage, query);
  }

  /**
   * Resolve the recipients of a campaign, and get the token that confirms its send.
   *
   * The first of the two calls that send a campaign. It sends nothing and reserves nothing: it runs every check of the send, resolves the recipients, and answers how many there are, what the send costs, and a token that confirms this very plan.
   *
   * The token is valid for 15 minutes, for one send and for this API key alone. It is void as soon as the plan changes: when a contact comes into the segment or leaves it, an address becomes invalid or valid, a suppression arrives, or the content or a sending account changes.
   *
   * A dry run answers the same checks and counts, and no token.
   *
   * **Scope:** `campaigns:send`.
   *
   * **Idempotency-Key:** required. Without it the request is 400 `idempotency_key_required`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `campaigns:read` besides.
   *
   * **Errors:** `idempotency_key_required`, `filter_unsupported`, `quota_exceeded`, `insufficient_scope`, `send_not_permitted`, `send_domain_not_allowed`, `complaint_rate_exceeded`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `campaign_not_ready`, `sending_domain_unverified`, `person_erased`, `resource_state_invalid`, `send_cap_exceeded`, those of every operation.
   */
  previewSend<O extends WriteOptions & DryRunOption>(
    campaignId: string,
    options?: O,
  ): Promise<Outcome<CampaignSendPreview, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/campaigns/{campaignId}/send-preview", ids: { campaignId }, takesKey: true },
      options,
    );
  }

  /**
   * Confirm a preview with its token: reserve credits and schedule the send.
   *
   * The second of the two calls that send a campaign. It verifies the token of the preview, runs every check again, resolves the recipients again and refuses if anything changed. Then it reserves the credits and schedules the campaign: it starts within about a minute, or on the next allowed day where the campaign restricts them.
   *
   * This cannot be undone through the API. It takes no `dry_run`: the preview is that. A program that acts for a person, such as an assistant, calls this only after the person has seen the numbers of the preview and agreed to them.
   *
   * **Scope:** `campaigns:send`.
   *
   * **Idempotency-Key:** required. Without it the request is 400 `idempotency_key_required`.
   *
   * **Errors:** `idempotency_key_required`, `quota_exceeded`, `insufficient_scope`, `send_not_permitted`, `send_domain_not_allowed`, `complaint_rate_exceeded`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `confirmation_required`, `confirmation_stale`, `confirmation_invalid`, `send_plan_changed`, `campaign_not_ready`, `sending_domain_unverified`, `person_erased`, `resource_state_invalid`, `send_cap_exceeded`, those of every operation.
   */
  send(campaignId: string, body: SendCampaignBody, options?: WriteOptions): Promise<Answer<CampaignSend>> {
    return this.#transport.request(
      { method: "POST", path: "/campaigns/{campaignId}/send", ids: { campaignId }, body, takesKey: true },
      options,
    );
  }
}

export class SuppressionsResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List the suppressed addresses of the team.
   *
   * Pages through the do-not-mail list of the team: addresses that were put there by hand, and those of bounces, complaints and opt-outs.
   *
   * **Scope:** `suppressions:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `sort_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  list(query: ListSuppressionsQuery = {}, options?: RequestOptions): Listing<Suppression> {
    const readPage = (query: ListSuppressionsQuery): Promise<Page<Suppression>> =>
      this.#transport.request({ method: "GET", path: "/suppressions", query }, options);
    return listingOf(readPage, query);
  }

  /** The records that changed since an instant, all of them without one. See `Changes`. */
  changes(
    since?: string,
    query: Omit<ListSuppressionsQuery, "updated_since" | "sort" | "cursor"> = {},
    options?: RequestOptions,
  ): Changes<Suppression> {
    return new Changes((page) =>
      this.list(
        { ...page, ...query, sort: "updated_at", ...(since === undefined ? {} : { updated_since: since }) },
        options,
      ),
    );
  }

  /**
   * Add addresses to the team's do-not-mail list.
   *
   * Puts up to 100 addresses on the do-not-mail list. The addresses are trimmed and lower-cased. New ones are in `added`; those that are on the list already are in `already_suppressed` and keep their reason and their `updated_at`, so that the same batch can be sent again. An address whose person asked for their data to be erased is in `already_suppressed` too, and a repetition under the Idempotency-Key leaves it out.
   *
   * No contact, subscriber or subscription is changed. No `suppression.added` event is sent.
   *
   * **Scope:** `suppressions:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `suppressions:read` besides.
   *
   * **Errors:** `insufficient_scope`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, those of every operation.
   */
  create<O extends WriteOptions & DryRunOption>(
    body: CreateSuppressionsBody,
    options?: O,
  ): Promise<Outcome<SuppressionBatch, Impact, O>> {
    return this.#transport.request({ method: "POST", path: "/suppressions", body, takesKey: true }, options);
  }

  /**
   * Look up whether an address is suppressed.
   *
   * Looks up an address on the do-not-mail list. An address that is not on it is 404 `not_found`. The address is percent-encoded in the path.
   *
   * **Scope:** `suppressions:read`.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  retrieve(emailOrSuppressionId: string, options?: RequestOptions): Promise<Answer<Suppression>> {
    return this.#transport.request(
      { method: "GET", path: "/suppressions/{emailOrSuppressionId}", ids: { emailOrSuppressionId } },
      options,
    );
  }

  /**
   * Delete a suppression; opt-outs per list stay.
   *
   * Takes an address off the do-not-mail list, also after a bounce, a complaint or an opt-out. The record of opt-outs stays, and an opt-out from a list still holds. A bounce or a complaint that happens again puts the address back.
   *
   * The answer does not repeat the address.
   *
   * **Scope:** `suppressions:delete`.
   *
   * **Idempotency-Key:** has no effect here. A second deletion is 404 `not_found`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `suppressions:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  delete<O extends RequestOptions & DryRunOption>(
    emailOrSuppressionId: string,
    options?: O,
  ): Promise<Outcome<DeletedSuppression, Impact, O>> {
    return this.#transport.request(
      { method: "DELETE", path: "/suppressions/{emailOrSuppressionId}", ids: { emailOrSuppressionId } },
      options,
    );
  }
}

export class UnsubscribesResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List the opt-outs, each with its time and its mail.
   *
   * Pages through the opt-outs, which are never changed or deleted. There is no `updated_since`: page by `unsubscribed_at` and keep the newest value.
   *
   * **Scope:** `suppressions:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `sort_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  list(query: ListUnsubscribesQuery = {}, options?: RequestOptions): Listing<Unsubscribe> {
    const readPage = (query: ListUnsubscribesQuery): Promise<Page<Unsubscribe>> =>
      this.#transport.request({ method: "GET", path: "/unsubscribes", query }, options);
    return listingOf(readPage, query);
  }
}

export class AccountsResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List the connected sending accounts.
   *
   * Pages through the sending accounts of the team. No credential is shown.
   *
   * **Scope:** `accounts:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `sort_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  list(query: ListAccountsQuery = {}, options?: RequestOptions): Listing<EmailAccount> {
    const readPage = (query: ListAccountsQuery): Promise<Page<EmailAccount>> =>
      this.#transport.request({ method: "GET", path: "/accounts", query }, options);
    return listingOf(readPage, query);
  }

  /** The records that changed since an instant, all of them without one. See `Changes`. */
  changes(
    since?: string,
    query: Omit<ListAccountsQuery, "updated_since" | "sort" | "cursor"> = {},
    options?: RequestOptions,
  ): Changes<EmailAccount> {
    return new Changes((page) =>
      this.list(
        { ...page, ...query, sort: "updated_at", ...(since === undefined ? {} : { updated_since: since }) },
        options,
      ),
    );
  }

  /**
   * Retrieve a sending account.
   *
   * Answers one sending account. Only an `ACTIVE` one can send.
   *
   * **Scope:** `accounts:read`.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  retrieve(accountId: string, options?: RequestOptions): Promise<Answer<EmailAccount>> {
    return this.#transport.request({ method: "GET", path: "/accounts/{accountId}", ids: { accountId } }, options);
  }
}

export class WebhooksResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List the webhook endpoints that were registered through the API.
   *
   * Pages through the webhook endpoints that were registered through the API, without their secrets.
   *
   * **Scope:** `webhooks:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `sort_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  list(query: ListWebhooksQuery = {}, options?: RequestOptions): Listing<WebhookEndpoint> {
    const readPage = (query: ListWebhooksQuery): Promise<Page<WebhookEndpoint>> =>
      this.#transport.request({ method: "GET", path: "/webhooks", query }, options);
    return listingOf(readPage, query);
  }

  /** The records that changed since an instant, all of them without one. See `Changes`. */
  changes(
    since?: string,
    query: Omit<ListWebhooksQuery, "updated_since" | "sort" | "cursor"> = {},
    options?: RequestOptions,
  ): Changes<WebhookEndpoint> {
    return new Changes((page) =>
      this.list(
        { ...page, ...query, sort: "updated_at", ...(since === undefined ? {} : { updated_since: since }) },
        options,
      ),
    );
  }

  /**
   * Register a webhook endpoint; its secret is shown this once.
   *
   * Registers a URL that gets the events it subscribes to. The answer holds the `secret` that verifies their signature; it is shown this once.
   *
   * The URL must be reachable from the public Internet: a host that resolves to a private or loopback address is refused. `["*"]` subscribes to every event there is now, and is stored as their names. Events with addresses of people (`contact.*`, `subscriber.*`, `subscription.*`, `email.*`, `event.tracked`, `suppression.*`, `unsubscribe.created`) need `contacts:read` or `suppressions:read` on the key besides.
   *
   * A team has a limit of endpoints: one more is 409 `resource_limit_reached`, on any plan.
   *
   * **Scope:** `webhooks:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `webhooks:read` besides.
   *
   * **Errors:** `insufficient_scope`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_limit_reached`, those of every operation.
   */
  create<O extends WriteOptions & DryRunOption>(
    body: CreateWebhookBody,
    options?: O,
  ): Promise<Outcome<NewWebhookEndpoint, Impact, O>> {
    return this.#transport.request({ method: "POST", path: "/webhooks", body, takesKey: true }, options);
  }

  /**
   * List the events that an endpoint can subscribe to.
   *
   * Answers every event that an endpoint can subscribe to, in one page. The catalogue grows; a name is never changed or reused.
   *
   * **Scope:** `webhooks:read`.
   *
   * **Errors:** `filter_unsupported`, `expand_unsupported`, `insufficient_scope`, those of every operation.
   */
  listEventTypes(options?: RequestOptions): Promise<Answer<Array<WebhookEventType>>> {
    return this.#transport.request({ method: "GET", path: "/webhooks/events" }, options);
  }

  /**
   * Retrieve a webhook endpoint.
   *
   * Answers one webhook endpoint, without its secret. Of its own headers the names are shown alone.
   *
   * **Scope:** `webhooks:read`.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  retrieve(webhookId: string, options?: RequestOptions): Promise<Answer<WebhookEndpoint>> {
    return this.#transport.request({ method: "GET", path: "/webhooks/{webhookId}", ids: { webhookId } }, options);
  }

  /**
   * Change, stop or re-activate a webhook endpoint.
   *
   * Changes the fields that the body holds and leaves the others as they are. `events` and `headers` replace the stored ones as a whole: an empty object as `headers` removes every header. A changed `url` is checked as at the registration.
   *
   * `active: false` stops the deliveries; `active: true` starts them again, and clears the count of failures of an endpoint that was switched off. The secret can be neither written nor read.
   *
   * **Scope:** `webhooks:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `webhooks:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, those of every operation.
   */
  update<O extends WriteOptions & DryRunOption>(
    webhookId: string,
    body: UpdateWebhookBody,
    options?: O,
  ): Promise<Outcome<WebhookEndpoint, Impact, O>> {
    return this.#transport.request(
      { method: "PATCH", path: "/webhooks/{webhookId}", ids: { webhookId }, body, takesKey: true },
      options,
    );
  }

  /**
   * Delete a webhook endpoint with its delivery log.
   *
   * Deletes a webhook endpoint with its delivery log, for good. Deliveries stop within two seconds. Registering the URL again gives another secret.
   *
   * **Scope:** `webhooks:write`.
   *
   * **Idempotency-Key:** has no effect here. A second deletion is 404 `not_found`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `webhooks:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  delete<O extends RequestOptions & DryRunOption>(
    webhookId: string,
    options?: O,
  ): Promise<Outcome<DeletedWebhookEndpoint, Impact, O>> {
    return this.#transport.request({ method: "DELETE", path: "/webhooks/{webhookId}", ids: { webhookId } }, options);
  }

  /**
   * Give a webhook endpoint a new secret, which is shown this once.
   *
   * Gives a webhook endpoint a new `secret`, which the answer shows this once. The old one signs beside it for `overlap_hours`: deliveries then carry two `v1`. One that is older still stops at once.
   *
   * **Scope:** `webhooks:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `webhooks:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, those of every operation.
   */
  rotateSecret<O extends WriteOptions & DryRunOption>(
    webhookId: string,
    body?: RotateWebhookSecretBody,
    options?: O,
  ): Promise<Outcome<WebhookSecret, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/webhooks/{webhookId}/rotate-secret", ids: { webhookId }, body, takesKey: true },
      options,
    );
  }

  /**
   * List the attempts to deliver to a webhook endpoint.
   *
   * Pages through the attempts of the last 30 days to deliver events to an endpoint, newest first. Each attempt is a record of its own. The payloads are not shown.
   *
   * **Scope:** `webhooks:read`.
   *
   * **Errors:** `cursor_invalid`, `filter_unsupported`, `expand_unsupported`, `insufficient_scope`, `not_found`, those of every operation.
   */
  listDeliveries(
    webhookId: string,
    query: ListWebhookDeliveriesQuery = {},
    options?: RequestOptions,
  ): Listing<WebhookDelivery> {
    const readPage = (query: ListWebhookDeliveriesQuery): Promise<Page<WebhookDelivery>> =>
      this.#transport.request(
        { method: "GET", path: "/webhooks/{webhookId}/deliveries", ids: { webhookId }, query },
        options,
      );
    return listingOf(readPage, query);
  }

  /**
   * Deliver many events to a webhook endpoint once more.
   *
   * Queues the deliveries of a time that have ended without success once more: those with `is_final` and one of the `statuses`, the oldest first, up to 10000 at once. Attempts that a later one or a replay followed are left alone, so a repetition queues nothing twice.
   *
   * 100 a second are due, each at its `next_attempt_at`, behind the replays that wait already. A dry run counts the deliveries in `would_create`. An endpoint that is switched off is 409 `resource_state_invalid`; of one that is switched off meanwhile, those that wait become `BLOCKED`.
   *
   * **Scope:** `webhooks:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `webhooks:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_state_invalid`, those of every operation.
   */
  replayDeliveries<O extends WriteOptions & DryRunOption>(
    webhookId: string,
    body: ReplayWebhookDeliveriesBody,
    options?: O,
  ): Promise<Outcome<WebhookReplay, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/webhooks/{webhookId}/replays", ids: { webhookId }, body, takesKey: true },
      options,
    );
  }

  /**
   * Deliver the example of an event to a webhook endpoint.
   *
   * Queues a delivery of the example of an event, signed like any other and with the header `X-Service-Test: true`. It stands in the delivery log; it is attempted once, and its outcome does not count towards a switch-off.
   *
   * The endpoint must be subscribed to the event. An inactive endpoint answers 409 `resource_state_invalid`; more than 20 tests of the team a minute are 429 `rate_limit_exceeded`.
   *
   * **Scope:** `webhooks:write`.
   *
   * **Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `webhooks:read` besides.
   *
   * **Errors:** `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_state_invalid`, those of every operation.
   */
  test<O extends WriteOptions & DryRunOption>(
    webhookId: string,
    body?: TestWebhookBody,
    options?: O,
  ): Promise<Outcome<WebhookDelivery, Impact, O>> {
    return this.#transport.request(
      { method: "POST", path: "/webhooks/{webhookId}/test", ids: { webhookId }, body, takesKey: true },
      options,
    );
  }

  /**
   * Retrieve an attempt to deliver to a webhook endpoint.
   *
   * Answers one attempt of the delivery log, without the payload of its event.
   *
   * **Scope:** `webhooks:read`.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  retrieveDelivery(webhookId: string, deliveryId: string, options?: RequestOptions): Promise<Answer<WebhookDelivery>> {
    return this.#transport.request(
      { method: "GET", path: "/webhooks/{webhookId}/deliveries/{deliveryId}", ids: { webhookId, deliveryId } },
      options,
    );
  }

  /**
   * Deliver an event to a webhook endpoint once more.
   *
   * Queues the event of a delivery once more, as a new delivery with `is_replay`. The id of the event stays the same; the timestamp and the signature are made anew. An endpoint that is switched off is 409 `resource_state_invalid`.
   *
   * **Scope:** `webhooks:write`.
   *
   * **Idempotency-Key:** required. Without it the request is 400 `idempotency_key_required`.
   *
   * **Dry run:** `?dry_run=true` answers the effect and does nothing, which needs `webhooks:read` besides.
   *
   * **Errors:** `idempotency_key_required`, `insufficient_scope`, `not_found`, `idempotency_key_reused`, `request_in_flight`, `person_erased`, `resource_state_invalid`, those of every operation.
   */
  replayDelivery<O extends WriteOptions & DryRunOption>(
    webhookId: string,
    deliveryId: string,
    options?: O,
  ): Promise<Outcome<WebhookDelivery, Impact, O>> {
    return this.#transport.request(
      {
        method: "POST",
        path: "/webhooks/{webhookId}/deliveries/{deliveryId}/replay",
        ids: { webhookId, deliveryId },
        takesKey: true,
      },
      options,
    );
  }
}

export class AnalyticsResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Retrieve the outcomes of the mails of a range of days.
   *
   * Answers counts and rates of the days from `from` to `to`, and the counts of each day, in UTC: of the environment of the key, or with `resource_id` of one newsletter or campaign. A range holds at most 366 days; without `from` it is 30 days long, without `to` it ends today. A day that has not come has zeros.
   *
   * `sent`, `delivered`, the bounces, `complained`, the opens and the clicks belong to the day on which the mail was accepted, also when they come days later. `rejected`, `suppressed`, `unknown` and `unsubscribed` belong to the day on which they happened. A mail counts under its latest outcome: an unknown one that proves sent, by a late answer or because it bounced or was opened, counts as sent from then on.
   *
   * A mail with both kinds of bounces counts as a hard one. Opens and clicks are counted for mails that were sent with tracking, which is off by default and turned on for a team, a newsletter or a campaign, for all of its people or for [those who agreed](/docs/sending#consent-to-be-tracked): those mails are `tracked`. `opened` and `clicked` leave out those of machines, which stand beside them; an open or a click counts about 10 seconds after it. Recipients whose mails expired or were cancelled are counted by the newsletter alone.
   *
   * **Scope:** `analytics:read`.
   *
   * **Errors:** `insufficient_scope`, `not_found`, those of every operation.
   */
  retrieveOverview(
    query: RetrieveAnalyticsOverviewQuery = {},
    options?: RequestOptions,
  ): Promise<Answer<AnalyticsOverview>> {
    return this.#transport.request({ method: "GET", path: "/analytics/overview", query }, options);
  }
}

export class UsageResource {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Retrieve the use of each limit.
   *
   * Answers each limit of the team's plan and of the calling key, how much of it is used, and how much is left. Figures are those of the key's environment.
   *
   * Credits count within the period, requests within the minute and sends within the day. Contact slots and webhook endpoints are those in use now.
   *
   * **Scope:** `usage:read`.
   *
   * **Errors:** `insufficient_scope`, those of every operation.
   */
  retrieve(options?: RequestOptions): Promise<Answer<Usage>> {
    return this.#transport.request({ method: "GET", path: "/usage" }, options);
  }
}

/** Every operation of the API, by resource. */
export class Resources {
  readonly me: MeResource;
  readonly lists: ListsResource;
  readonly forms: FormsResource;
  readonly subscribers: SubscribersResource;
  readonly contacts: ContactsResource;
  readonly newsletters: NewslettersResource;
  readonly campaigns: CampaignsResource;
  readonly suppressions: SuppressionsResource;
  readonly unsubscribes: UnsubscribesResource;
  readonly accounts: AccountsResource;
  readonly webhooks: WebhooksResource;
  readonly analytics: AnalyticsResource;
  readonly usage: UsageResource;

  constructor(transport: Transport) {
    this.me = new MeResource(transport);
    this.lists = new ListsResource(transport);
    this.forms = new FormsResource(transport);
    this.subscribers = new SubscribersResource(transport);
    this.contacts = new ContactsResource(transport);
    this.newsletters = new NewslettersResource(transport);
    this.campaigns = new CampaignsResource(transport);
    this.suppressions = new SuppressionsResource(transport);
    this.unsubscribes = new UnsubscribesResource(transport);
    this.accounts = new AccountsResource(transport);
    this.webhooks = new WebhooksResource(transport);
    this.analytics = new AnalyticsResource(transport);
    this.usage = new UsageResource(transport);
  }
}
