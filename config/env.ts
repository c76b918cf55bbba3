import { isIP } from "node:net";
import { isAbsolute } from "node:path";
import ipaddr from "ipaddr.js";
import { z } from "zod";

const integer = (min: number, max: number) =>
  z.string().regex(/^\d+$/, "must be a whole number").transform(Number).pipe(z.number().int().min(min).max(max));

const url = (...protocols: string[]) =>
  z.string().refine((value) => URL.canParse(value) && protocols.includes(new URL(value).protocol), {
    message: `must be a URL that starts with ${protocols.map((p) => `${p}//`).join(" or ")}`,
  });

/** `smtp://` alone is a URL too, and mail would then go to this machine. */
const smtpUrl = url("smtp:", "smtps:").refine((value) => URL.parse(value)?.hostname !== "", {
  message: "must name a host",
});

/** An origin, without a slash at its end: the console's pages and the API stand at its root. */
const origin = url("http:", "https:")
  .transform((value) => new URL(value))
  .refine(({ href, origin }) => href === `${origin}/`, "must have no path, no query and no login")
  .transform(({ origin }) => origin);

/** URL to whose end paths are added: behind a query or a fragment they would be no path. */
const baseUrl = url("http:", "https:").refine((value) => !/[?#]/.test(value), {
  message: "must have no query and no fragment: paths are added to its end",
});

const word = z.string().regex(/^[\x21-\x7e]+$/, "must be printable ASCII characters without spaces");

const DOMAIN_NAME = /^(?=.{1,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+$/;
const domainName = z.string().regex(DOMAIN_NAME, "must be a domain name in lower case, in its ASCII form");

/** An address alone, or a name and the address in angle brackets. */
const SENDER = /^(?:[^\s<>@]+@[^\s<>@]+|[^<>\r\n]*<[^\s<>@]+@[^\s<>@]+>)$/;

/** A host as URLs spell it: `example.com:8443`, `[2001:4860::1]:443`. */
function isHostAndPort(text: string): boolean {
  const [, host, port] = /^(.*[^.]):([1-9]\d{0,4})$/.exec(text) ?? [];
  if (host === undefined || Number(port) > 65_535) return false;
  return URL.canParse(`http://${host}`) && new URL(`http://${host}`).host === host;
}

const isAddressAndPort = (text: string): boolean =>
  isHostAndPort(text) && isIP(text.replace(/:\d+$/, "").replace(/^\[|\]$/g, "")) !== 0;

const isHostAndAnyPort = (text: string): boolean => isHostAndPort(text.replace(/:\*$/, ":1"));

const listeningAddress = z
  .string()
  .refine((text) => isIP(text) !== 0, "must be an IP address")
  .default("127.0.0.1");

const isNetwork = (text: string): boolean =>
  ipaddr.IPv4.isValidCIDRFourPartDecimal(text) || ipaddr.IPv6.isValidCIDR(text);

const flag = z.stringbool({ truthy: ["true"], falsy: ["false"], error: "must be true or false" }).default(false);

const list = (isItem: (item: string) => boolean, message: string, items = "") =>
  z
    .string()
    .default(items)
    .transform((value) => (value === "" ? [] : value.split(",")))
    .refine((items) => items.every(isItem), { message });

const networks = list(
  (text) => isIP(text) !== 0 || isNetwork(text),
  "must be addresses or networks such as 10.0.0.0/8, separated by commas",
);

/** Where people have addresses in the domain too, the loop is named by its own address. */
const PUBLIC_FEEDBACK_LOOPS = [
  ...["arf.mail.yahoo.com", "staff@hotmail.com", "senderscore.net", "feedback.comcast.net", "fbl@corp.mail.ru"],
  ...["fbl.fastmail.com", "fbl.zoho.com", "fbl.synacor.com", "fbl.hostedemail.com", "fbl.apps.rackspace.com"],
];

/** Three attempts within five minutes, then ever longer waits, 27 h 35 min in all. */
export const LADDER_SECONDS: readonly number[] = [0, 5, 300, 1800, 7200, 18_000, 36_000, 36_000];

/** 25 days: an event is kept for 31, and each wait may last up to a fifth longer. */
const LONGEST_LADDER_SECONDS = 25 * 86_400;

const KEY_BYTES = 32;
const isKey = (value: string): boolean => Buffer.from(value, "base64").length === KEY_BYTES;

/** Its id, and 32 bytes in base64. */
export type SecretKey = [id: string, key: string];

const DEFAULT_SECRET_ID = "k1";

/** `id:base64` pairs separated by commas; a lone base64 text gets the default id, if there is one. */
const keyring = (message: string, defaultId?: string) =>
  z
    .string()
    .transform((value) =>
      value.split(",").map((pair): SecretKey => {
        if (defaultId !== undefined && !pair.includes(":")) return [defaultId, pair];
        const [id = "", key = "", ...rest] = pair.split(":");
        return [rest.length > 0 ? "" : id, key];
      }),
    )
    .refine((pairs) => pairs.every(([id, key]) => /^[\w-]{1,16}$/.test(id) && isKey(key)), { message })
    .refine((pairs) => new Set(pairs.map(([id]) => id)).size === pairs.length, {
      message: "gives the same id to two keys",
    });

export const formatKeys = (keys: readonly SecretKey[]): string => keys.map((pair) => pair.join(":")).join(",");

/** The comment of each setting is its line in docs/operations/settings.md. */
export const settings = z.object({
  /** Postgres with the role that reads and writes rows: postgres://mailkeel_app:password@host:5432/mailkeel */
  DATABASE_URL: url("postgres:", "postgresql:"),
  /** The same database with the role that owns it; `prepare:cluster` and `npm start` alone take it. */
  MIGRATION_DATABASE_URL: url("postgres:", "postgresql:").optional(),
  /** Connections to Postgres that the process may hold. */
  DATABASE_POOL_MAX: integer(1, 500).default(10),
  /** Address the API listens on. */
  HOST: z.string().min(1).default("127.0.0.1"),
  /** Port of the API; 0 takes any free one. */
  PORT: integer(0, 65_535).default(3000),
  /** Connections that the API keeps open at once; one more is closed. */
  API_MAX_CONNECTIONS: integer(1, 1_000_000).default(10_000),
  /** The same of one address, or one IPv6 network of 64 bits. */
  API_MAX_CONNECTIONS_PER_ADDRESS: integer(1, 1_000_000).default(500),
  /** Load balancers whose connections are not counted per address: addresses or networks, e.g. 10.0.0.0/8. */
  PROXY_ADDRESSES: networks,
  /** Load balancers that a request passes, each of which adds an address to X-Forwarded-For; needs PROXY_ADDRESSES. */
  PROXY_HOPS: integer(0, 10).default(0),
  /**
   * JSON file of the networks from which scanners and proxies open mails and follow links, in place of the service's own list:
   * see `domain/tracking/networks.json`.
   */
  TRACKING_NETWORKS_FILE: z.string().refine(isAbsolute, "must be an absolute path").optional(),
  /** File of domains whose addresses sign-up forms refuse, a domain a line, in place of `config/throwaway-domains.txt`. */
  THROWAWAY_DOMAINS_FILE: z.string().refine(isAbsolute, "must be an absolute path").optional(),
  /** Requests of an API key or an OAuth client in a minute; a team's plan may allow fewer. */
  RATE_LIMIT_PER_MINUTE: integer(1, 1_000_000_000).default(600),
  /** Failed authentications of one address, or one IPv6 network of 64 bits, in a minute. */
  FAILED_AUTHENTICATIONS_PER_MINUTE: integer(1, 1_000_000_000).default(120),
  /** How long the API waits for a preview; one that takes longer is answered 503 and continues. */
  PREVIEW_WAIT_MS: integer(100, 60_000).default(10_000),
  /** How long the API waits for a confirm, which copies the recipients. */
  CONFIRM_WAIT_MS: integer(100, 60_000).default(60_000),
  /** How long the recipients of a send may take to be counted, and then to be copied. */
  PLAN_SECONDS: integer(1, 1_500).default(900),
  /** Where the API, the console and the links in mails are reached, without a path; https in production. */
  PUBLIC_URL: origin,
  /**
   * Issuer of OAuth tokens, as their `iss` claim spells it; with OAUTH_JWKS_URL, or neither: then no token is taken.
   */
  OAUTH_ISSUER: url("https:", "http:").optional(),
  /** URL of the issuer's key set, its `jwks_uri`. */
  OAUTH_JWKS_URL: url("https:", "http:").optional(),
  /** Audience of its tokens; PUBLIC_URL and `/api/v2` or `/api/v2/mcp` unless set. */
  OAUTH_AUDIENCE: z
    .string()
    .regex(/^[\x21-\x7e]{1,255}$/, "must be printable ASCII characters without spaces")
    .optional(),
  /**
   * OpenID Connect provider by which members sign in to the console, as its discovery document spells it; with the next two, or
   * none. https where PUBLIC_URL is.
   */
  OIDC_ISSUER: url("https:", "http:").optional(),
  /** Id of the client at the provider. */
  OIDC_CLIENT_ID: word.optional(),
  /** Its secret. */
  OIDC_CLIENT_SECRET: word.optional(),
  /** Name of the provider, behind "Continue with" on the sign-in page. */
  OIDC_NAME: z.string().max(40, "must have at most 40 characters").default("single sign-on"),
  /** Team that a person who is new to it joins by the provider; with OIDC_ROLE_CLAIM, or neither: then members alone sign in. */
  OIDC_TEAM_ID: word.optional(),
  /** Claim, a text or a list, that holds ADMIN, EDITOR or VIEWER: the role in which that person joins. */
  OIDC_ROLE_CLAIM: word.optional(),
  /** Whether members get links to sign in by mail, on or off; off needs OIDC_ISSUER. */
  SIGN_IN_LINKS: z.enum(["on", "off"], "must be on or off").default("on"),
  /** Temporal's frontend, host:port; TLS and API keys by Temporal's own `TEMPORAL_*` variables. */
  TEMPORAL_ADDRESS: z.string().refine(isHostAndPort, "must be host:port, with a port from 1 to 65535"),
  /** Temporal namespace. */
  TEMPORAL_NAMESPACE: z.string().min(1).default("default"),
  /**
   * Signs tokens, cursors and links: 32 bytes in base64, or `id:base64` pairs, separated by commas; the first signs,
   * all verify.
   */
  SIGNING_SECRET: keyring(
    "must be 32 bytes in base64, or id:base64 pairs of 32 bytes, separated by commas",
    DEFAULT_SECRET_ID,
  ),
  /** Encrypts stored secrets: `id:base64` pairs of 32 bytes, separated by commas; the first encrypts, all decrypt. */
  ENCRYPTION_KEYS: keyring("must be id:base64 pairs of 32-byte keys, separated by commas"),
  /** SMTP server for the service's own mail; with a user name in it, over TLS only. */
  SYSTEM_SMTP_URL: smtpUrl,
  /** Sender of the service's own mail. */
  SYSTEM_FROM: z
    .string()
    .regex(SENDER, "must be an address, or a name and an address: Mailkeel <no-reply@example.com>")
    .default("Mailkeel <no-reply@mailkeel.example>"),
  /** Deployment that a versioned worker belongs to; with WORKER_BUILD_ID, or neither: then workers are unversioned. */
  WORKER_DEPLOYMENT_NAME: z
    .string()
    .regex(/^(?!__)[\w-]{1,100}$/, "must be letters, digits, - and _")
    .optional(),
  /** Which build a versioned worker runs, e.g. a commit. */
  WORKER_BUILD_ID: z
    .string()
    .regex(/^(?!__)[\w.+-]{1,100}$/, "must be letters, digits, ., +, - and _")
    .optional(),
  /** Least level that is logged. */
  LOG_LEVEL: z.enum(["fatal", "error", "warn", "info", "debug", "trace", "silent"]).default("info"),
  /** Collector that takes traces as OTLP over HTTP, e.g. http://127.0.0.1:4318; its headers by OTEL_EXPORTER_OTLP_HEADERS. */
  OTEL_EXPORTER_OTLP_ENDPOINT: baseUrl.optional(),
  /** Sends no traces, also where OTEL_EXPORTER_OTLP_ENDPOINT is set. */
  OTEL_SDK_DISABLED: flag,
  /** Share of requests and of background activities that are traced, from 0 to 1. */
  OTEL_TRACES_SAMPLER_ARG: z
    .string()
    .regex(/^(0(\.\d{1,6})?|1(\.0{1,6})?)$/, "must be a number from 0 to 1")
    .transform(Number)
    .default(0.05),
  /** Address that the health port listens on; it asks for no credential. */
  HEALTH_HOST: listeningAddress,
  /** Port of `/healthz`, `/readyz` and `/metrics` of the API or a worker; 0 takes any free one. */
  HEALTH_PORT: integer(0, 65_535).default(0),
  /** Activities that a worker runs at once. */
  ACTIVITY_CONCURRENCY: integer(1, 1_000).optional(),
  /** How long an activity may go without a heartbeat before its worker is presumed dead; the same in all workers. */
  HEARTBEAT_TIMEOUT_MS: integer(1_000, 60_000).default(10_000),
  /** How long a stopping process finishes the work in flight. */
  SHUTDOWN_GRACE_MS: integer(0, 600_000).default(15_000),
  /** How long a connection to an SMTP server may take, and how long a slice waits for the reply to the final dot of a mail. */
  SMTP_TIMEOUT_MS: integer(100, 120_000).default(30_000),
  // The defaults are those of RFC 5321, 4.5.3.2. A slice's activity has to end within an hour.
  /** How long an SMTP server may take for its greeting, and for each reply up to the login. */
  SMTP_GREETING_TIMEOUT_MS: integer(100, 600_000).default(300_000),
  /** How long an SMTP server may take to reply to MAIL. */
  SMTP_MAIL_TIMEOUT_MS: integer(100, 600_000).default(300_000),
  /** How long an SMTP server may take to reply to RCPT. */
  SMTP_RCPT_TIMEOUT_MS: integer(100, 600_000).default(300_000),
  /** How long an SMTP server may take to reply to DATA. */
  SMTP_DATA_TIMEOUT_MS: integer(100, 600_000).default(120_000),
  /** How long an SMTP server may take to accept the body of a mail. */
  SMTP_BLOCK_TIMEOUT_MS: integer(100, 600_000).default(180_000),
  /** How long an SMTP server may take to reply to the final dot. After SMTP_TIMEOUT_MS the mail is UNKNOWN until the reply comes. */
  SMTP_DOT_TIMEOUT_MS: integer(100, 3_600_000).default(600_000),
  /** Name by which SMTP servers are greeted (EHLO); unless set, the host of PUBLIC_URL if that is a name. */
  SMTP_HELO_NAME: domainName.optional(),
  /** Servers of sending accounts that may be reached though they are not public, or at another port than those of mail. */
  SMTP_ALLOWED_HOSTS: list(
    isHostAndAnyPort,
    "must be host:port pairs separated by commas, hosts in lower case, * for every port",
  ),
  /** Networks that neither webhooks nor sending accounts may reach, e.g. this service's own public addresses. */
  EGRESS_DENIED_NETWORKS: list(isNetwork, "must be networks such as 203.0.113.0/24, separated by commas"),
  /** How often a sending account is checked by a login, in seconds; each time up to a fifth sooner or later. */
  ACCOUNT_CHECK_SECONDS: integer(60, 604_800).default(3_600),
  /** Accounts that are checked at once. */
  ACCOUNT_CHECKS_AT_ONCE: integer(2, 1_000).default(20),
  /** Recipients after which a slice of a send ends where another send waits for its place. */
  DISPATCH_SLICE_ROWS: integer(1, 100_000).default(5_000),
  /** Waits before a deferred mail (SMTP 4xx) is tried again, in seconds; the last one repeats. */
  DEFERRAL_LADDER_SECONDS: z
    .string()
    .regex(/^[1-9]\d{0,5}(,[1-9]\d{0,5})*$/, "must be whole seconds from 1 to 999999, separated by commas")
    .default("300,900,1800,3600")
    .transform((value) => value.split(",").map(Number)),
  /** Waits before each attempt of a webhook delivery, in seconds; the first is at once. */
  WEBHOOK_LADDER_SECONDS: z
    .string()
    .regex(/^0(,\d{1,6}){0,19}$/, "must be 0 and then whole seconds, separated by commas")
    .transform((value) => value.split(",").map(Number))
    .refine((waits) => waits.reduce((sum, wait) => sum + wait, 0) <= LONGEST_LADDER_SECONDS, {
      message: `must be ${LONGEST_LADDER_SECONDS} seconds in all at most: events are not kept for longer`,
    })
    .default([...LADDER_SECONDS]),
  /** How long a deferred mail is tried before it expires; time in which its send could not mail does not count. */
  DEFERRAL_WINDOW_SECONDS: integer(1, 864_000).default(86_400),
  /** Domain to which bounces, complaints and opt-outs come by mail; unless set, the intake does nothing. */
  RETURN_PATH_DOMAIN: domainName.optional(),
  /** Address that the intake of reports listens on. */
  INTAKE_HOST: listeningAddress,
  /** Port of the intake for SMTP; 0 takes any free one. */
  INTAKE_SMTP_PORT: integer(0, 65_535).default(2525),
  /**
   * Connections that the intake keeps open; one address, or one IPv6 network of 64 bits, may hold a quarter of them.
   */
  INTAKE_MAX_CONNECTIONS: integer(4, 10_000).default(200),
  /** Mails that the intake takes of one address, or one IPv6 network of 64 bits, in a minute. */
  INTAKE_MAILS_PER_MINUTE: integer(1, 1_000_000_000).default(6_000),
  /** PEM file of the private key for STARTTLS; with INTAKE_TLS_CERTIFICATE_FILE, or neither. */
  INTAKE_TLS_KEY_FILE: z.string().refine(isAbsolute, "must be an absolute path").optional(),
  /** PEM file of the certificate and its issuers'; a change of either file needs no restart. */
  INTAKE_TLS_CERTIFICATE_FILE: z.string().refine(isAbsolute, "must be an absolute path").optional(),
  /** Domains, or senders, whose complaints by mail count when DKIM signs them; those of others suppress alone. */
  FEEDBACK_LOOPS: list(
    (text) => /^([^\s@]+@)?([a-z0-9-]+\.)+[a-z0-9-]+$/.test(text),
    "must be domains or addresses in lower case, separated by commas",
    PUBLIC_FEEDBACK_LOOPS.join(","),
  ),
  /** Mail servers whose complaints count without DKIM: addresses or networks. */
  FEEDBACK_LOOP_ADDRESSES: networks,
  /** Lists that a team may have in an environment. */
  MAX_LISTS: integer(1, 1_000_000).default(1_000),
  /** Newsletters that a team may have in an environment. */
  MAX_NEWSLETTERS: integer(1, 1_000_000).default(10_000),
  /** Campaigns that a team may have in an environment. */
  MAX_CAMPAIGNS: integer(1, 1_000_000).default(10_000),
  /** Images that a team may have in an environment. */
  MAX_IMAGES: integer(1, 1_000_000).default(10_000),
  /** Megabytes of these images. */
  MAX_IMAGE_MEGABYTES: integer(5, 1_000_000).default(1_000),
  /** Folder for the images of mails: one and the same for each API and maintenance process. Without it and a bucket none is taken. */
  IMAGES_DIRECTORY: z.string().refine(isAbsolute, "must be an absolute path").optional(),
  /** Bucket for them instead, of an S3-compatible store: https://s3.eu-central-1.amazonaws.com/my-bucket; with the next three. */
  IMAGES_S3_URL: baseUrl.transform((text) => text.replace(/\/$/, "")).optional(),
  /** Region of the bucket. */
  IMAGES_S3_REGION: word.optional(),
  /** Id of an access key that may put, get and delete objects of the bucket, and list it. */
  IMAGES_S3_KEY_ID: word.optional(),
  /** Its secret. */
  IMAGES_S3_SECRET_KEY: word.optional(),
  /** API keys that work, of a team in an environment. */
  MAX_API_KEYS: integer(1, 1_000_000).default(100),
  /** Confirmation mails that a team may cause to one address in seven days, UTC; and the sign-up forms of all teams. */
  CONFIRMATIONS_PER_ADDRESS: integer(1, 1_000_000).default(5),
  /** Confirmation mails that a team may cause in a day, UTC. */
  CONFIRMATIONS_PER_TEAM: integer(1, 100_000_000).default(5_000),
  /** Soft bounces of an address within the window, with no delivery between them, after which a team mails it no more. */
  SOFT_BOUNCES_TO_SUPPRESS: integer(1, 1_000).default(5),
  /** Days for which a soft bounce counts. */
  SOFT_BOUNCE_WINDOW_DAYS: integer(1, 365).default(30),
  /** Days after the end of a send for which its recipients are kept and the links in its mails work. */
  // 13 months with a leap day. Laws ask for less: CASL, section 11 (2), for 60 days, CAN-SPAM for 30.
  LEDGER_DAYS: integer(397, 36_500).default(400),
  /** Days after the end of a send for which the names and custom fields of its recipients are kept. */
  LEDGER_NAMES_DAYS: integer(30, 36_500).default(90),
  /** Requests of one provider's webhook in a minute. */
  PROVIDER_REQUESTS_PER_MINUTE: integer(1, 1_000_000_000).default(30_000),
  /** Webhook receivers that may be reached though they are not public, e.g. localhost:4000; for development. */
  WEBHOOK_ALLOWED_HOSTS: list(isHostAndPort, "must be host:port pairs separated by commas, hosts in lower case"),
  /** Takes and calls https URLs of webhooks only. */
  WEBHOOK_HTTPS_ONLY: flag,
  /** DNS servers that are asked for webhook receivers, e.g. 9.9.9.9:53; the system's unless given. */
  WEBHOOK_DNS_SERVERS: list(isAddressAndPort, "must be address:port pairs separated by commas"),
  /** How long one attempt to deliver a webhook may take: look-up, connection, request and answer. */
  // A run of an endpoint ends after 60 s: a longer attempt would be cut off, and made again and again.
  WEBHOOK_TIMEOUT_MS: integer(100, 15_000).default(15_000),
});

/**
 * Settings that work together only. With half a version a worker would run unversioned, although its operator asked for a
 * version; with half an issuer the API would refuse its tokens, and no member could sign in by it; with a key alone the intake
 * would offer no STARTTLS; with a part of a bucket no image could be stored.
 */
const TOGETHER = [
  ["WORKER_DEPLOYMENT_NAME", "WORKER_BUILD_ID"],
  ["OAUTH_ISSUER", "OAUTH_JWKS_URL"],
  ["OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET"],
  ["OIDC_TEAM_ID", "OIDC_ROLE_CLAIM"],
  ["INTAKE_TLS_KEY_FILE", "INTAKE_TLS_CERTIFICATE_FILE"],
  ["IMAGES_S3_URL", "IMAGES_S3_REGION", "IMAGES_S3_KEY_ID", "IMAGES_S3_SECRET_KEY"],
] as const;

const consistent = settings.superRefine((given, context) => {
  for (const names of TOGETHER) {
    const missing = names.filter((name) => given[name] === undefined);
    if (missing.length === names.length) continue;
    for (const name of missing) context.addIssue({ code: "custom", path: [name], message: "is missing" });
  }
  if (given.IMAGES_DIRECTORY !== undefined && given.IMAGES_S3_URL !== undefined) {
    context.addIssue({ code: "custom", path: ["IMAGES_DIRECTORY"], message: "must be empty beside IMAGES_S3_URL" });
  }
  const { OIDC_ISSUER: issuer, OIDC_TEAM_ID, SIGN_IN_LINKS, PUBLIC_URL } = given;
  const refuse = (name: string, message: string) => context.addIssue({ code: "custom", path: [name], message });
  if (issuer === undefined && OIDC_TEAM_ID !== undefined) refuse("OIDC_TEAM_ID", "needs OIDC_ISSUER");
  if (issuer === undefined && SIGN_IN_LINKS === "off")
    refuse("SIGN_IN_LINKS", "must be on without OIDC_ISSUER: else members could not sign in");
  if (issuer?.startsWith("http:") && PUBLIC_URL.startsWith("https:"))
    refuse("OIDC_ISSUER", "must begin with https://, as PUBLIC_URL does");
  // Any client could write X-Forwarded-For: it is read on the connections of load balancers alone.
  if (given.PROXY_HOPS > 0 && given.PROXY_ADDRESSES.length === 0) {
    context.addIssue({ code: "custom", path: ["PROXY_ADDRESSES"], message: "is missing" });
  }
});

export type Env = z.infer<typeof settings>;

/** Relays refuse a greeting by a name without a dot, which a container's own name is, and by an address of its own network. */
function defaultHeloName({ PUBLIC_URL }: Env): string | undefined {
  const { hostname } = new URL(PUBLIC_URL);
  return DOMAIN_NAME.test(hostname) && isIP(hostname) === 0 ? hostname : undefined;
}

/** A setting is missing or wrong; the message names each and the values that it may have. */
export class SettingsError extends Error {
  override name = "SettingsError";
}

/** Whether a variable is a setting. */
export const isSetting = (name: string): boolean => Object.hasOwn(settings.shape, name);

/** Variables that are set: an empty one is how shells and compose files spell "not set". */
export function givenVariables(source: NodeJS.ProcessEnv): Record<string, string> {
  return Object.fromEntries(Object.entries(source).filter((entry): entry is [string, string] => Boolean(entry[1])));
}

/** Settings by their name of the minor before, under which they are understood in this one: a minor later they go. */
const RENAMED: Record<string, keyof Env> = {
  MAX_CONNECTIONS: "API_MAX_CONNECTIONS",
  MAX_CONNECTIONS_PER_ADDRESS: "API_MAX_CONNECTIONS_PER_ADDRESS",
};

/** A sentence for each setting that is given under its old name alone. */
export function renamedSettings(source: NodeJS.ProcessEnv = process.env): string[] {
  const given = givenVariables(source);
  return Object.entries(RENAMED)
    .filter(([old, name]) => given[old] !== undefined && given[name] === undefined)
    .map(([old, name]) => `${old} is now called ${name}; the next minor does not know the old name`);
}

/** Secrets that some processes do without: the value of one that is not there, and a text that the schema takes. */
const ABSENT = {
  SIGNING_SECRET: { value: [], text: Buffer.alloc(KEY_BYTES).toString("base64") },
  ENCRYPTION_KEYS: { value: [], text: `absent:${Buffer.alloc(KEY_BYTES).toString("base64")}` },
  SYSTEM_SMTP_URL: { value: "", text: "smtp://absent.invalid" },
} satisfies Partial<{ [Name in keyof Env]: { value: Env[Name]; text: string } }>;

export type Secret = keyof typeof ABSENT;
/** All secrets that some process does without. */
export const SECRETS = Object.keys(ABSENT) as Secret[];

/**
 * Reads and checks every setting.
 * @param unneeded secrets that this process does without; they are empty also when they are given
 * @throws {SettingsError} naming each setting that is missing or wrong
 */
export function readEnv(source: NodeJS.ProcessEnv = process.env, unneeded: readonly Secret[] = []): Env {
  const given = givenVariables(source);
  for (const [old, name] of Object.entries(RENAMED)) if (given[old] !== undefined) given[name] ??= given[old];
  for (const name of unneeded) given[name] = ABSENT[name].text;
  const result = consistent.safeParse(given);
  if (result.success) {
    const env = { ...result.data, ...Object.fromEntries(unneeded.map((name) => [name, ABSENT[name].value])) };
    return { ...env, SMTP_HELO_NAME: env.SMTP_HELO_NAME ?? defaultHeloName(env) };
  }
  const lines = result.error.issues.map((issue) => {
    const name = issue.path.join(".");
    return given[name] === undefined ? `  ${name} is not set` : `  ${name} ${issue.message}`;
  });
  throw new SettingsError(`These settings are wrong:\n${[...new Set(lines)].join("\n")}`);
}
