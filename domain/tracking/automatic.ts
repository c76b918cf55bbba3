import { isbot } from "isbot";
import type { AutomaticCause, EngagementKind } from "../../db/entities/engagement.ts";

/** Header names are in lower case. */
export interface HitRequest {
  method: string;
  headers: Readonly<Record<string, string | string[] | undefined>>;
}

/** A program made the request without a person's action. */
interface Sign {
  cause: AutomaticCause;
  /** Both kinds unless given. */
  kind?: EngagementKind;
  source: string;
  isIn(request: HitRequest): boolean;
}

/** A pattern is slow on a long text. */
const MAX_CHARS = 500;

const header = (name: string, { headers }: HitRequest): string => String(headers[name] ?? "").slice(0, MAX_CHARS);
const userAgent = (request: HitRequest): string => header("user-agent", request).trim();

const SCANNER =
  /barracuda|proofpoint|mimecast|fireeye|trendmicro|symantec|sophos|zscaler|cloudmark|urldefense|safelinks|bingpreview|skypeuripreview|link-?expanding|facebookexternalhit|whatsapp\/|telegrambot|twitterbot|discordbot/i;
/** At the beginning of a user agent; also browsers without a screen. */
const LIBRARY =
  /^(?:curl|wget|python|go-http-client|java|okhttp|axios|node|undici|ruby|php|libwww|apache-httpclient|aiohttp|lua-resty)\b|headless/i;

/**
 * The first that a request shows decides. A proxy that fetches the pixel when the reader opens the mail shows none: Gmail's
 * (`GoogleImageProxy`) and Yahoo's count as opens.
 */
export const SIGNS: readonly Sign[] = [
  {
    cause: "head",
    source:
      "RFC 9110, 9.3.2: HEAD asks for no content. Link checkers of mail gateways use it; no mail program or browser does.",
    isIn: ({ method }) => method === "HEAD",
  },
  {
    cause: "prefetch",
    source: "Fetch standard, Sec-Purpose; before it Purpose (Chrome, Safari), X-Purpose (Safari) and X-Moz (Firefox).",
    isIn: (request) =>
      ["sec-purpose", "purpose", "x-purpose", "x-moz"].some((name) =>
        /\b(?:prefetch|prerender|preview)\b/i.test(header(name, request)),
      ),
  },
  {
    cause: "privacy_proxy",
    kind: "opened",
    source:
      "Mailgun, Open and Click Bot Detection: Apple's Mail Privacy Protection fetches all images with this bare name.",
    isIn: (request) => userAgent(request) === "Mozilla/5.0",
  },
  {
    cause: "prefetch",
    source:
      "gmass.co/blog/false-opens-in-gmail: Gmail's fetch ahead of the reader, beside its image proxy; the same browser samples links.",
    isIn: (request) => /Chrome\/42\.0\.2311\.135 Safari\/537\.36 Edge\/12\.246\b/.test(userAgent(request)),
  },
  {
    cause: "program",
    source:
      "RFC 9110, 10.1.5: every mail program, image proxy and browser names itself. Scanners of mail gateways, previews of messengers and HTTP libraries do by these names.",
    isIn: (request) =>
      userAgent(request) === "" || SCANNER.test(userAgent(request)) || LIBRARY.test(userAgent(request)),
  },
  {
    cause: "program",
    // It also matches image proxies and some mail programs.
    kind: "clicked",
    source: "The package isbot: the user agents of crawlers, monitors and tools.",
    isIn: (request) => isbot(userAgent(request)),
  },
];

/** Undefined when the request shows no sign. `recordHits` adds the cause `too_soon`. */
export const automaticCause = (kind: EngagementKind, request: HitRequest): AutomaticCause | undefined =>
  SIGNS.find((sign) => (sign.kind ?? kind) === kind && sign.isIn(request))?.cause;
