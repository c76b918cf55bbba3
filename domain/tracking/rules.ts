import { isbot } from "isbot";
import type { EngagementKind, HitMaker, HitRule } from "../../db/entities/engagement.ts";
import type { Networks } from "./networks.ts";

/** Header names are in lower case. */
export interface HitRequest {
  method: string;
  headers: Readonly<Record<string, string | string[] | undefined>>;
  /** The client's network, as `ClientAddresses` gives it; null where it is not known. */
  clientAddress: string | null;
}

/** The makers of the hits about which a rule decides. Without any, a hit is a person's. */
export const RULES: Readonly<Record<HitRule, Exclude<HitMaker, "human">>> = {
  head: "machine",
  prefetch: "machine",
  privacy_proxy: "machine",
  program: "machine",
  webkit: "machine",
  network: "machine",
  provider: "machine",
  too_soon: "machine",
  burst: "machine",
  first_minutes: "unknown",
};

/** A rule that a request alone meets. */
export interface RequestFinding {
  rule: HitRule;
  /** The rule decides in the first minutes of the mail only. */
  early: boolean;
}

/** A request that no person's action has caused. */
interface Sign {
  rule: HitRule;
  early?: boolean;
  /** Both kinds unless given. */
  kind?: EngagementKind;
  /** With the date on which it was looked up. */
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
const SIGNS: readonly Sign[] = [
  {
    rule: "head",
    source:
      "RFC 9110, 9.3.2 (2022): HEAD asks for no content. Link checkers of mail gateways use it; no mail program or browser does.",
    isIn: ({ method }) => method === "HEAD",
  },
  {
    rule: "prefetch",
    source:
      "Fetch standard, Sec-Purpose (2026-11); before it Purpose (Chrome, Safari), X-Purpose (Safari) and X-Moz (Firefox).",
    isIn: (request) =>
      ["sec-purpose", "purpose", "x-purpose", "x-moz"].some((name) =>
        /\b(?:prefetch|prerender|preview)\b/i.test(header(name, request)),
      ),
  },
  {
    rule: "privacy_proxy",
    kind: "opened",
    source:
      "Mailgun, Open and Click Bot Detection (2026-11): Apple's Mail Privacy Protection fetches all images with this bare name.",
    isIn: (request) => userAgent(request) === "Mozilla/5.0",
  },
  {
    rule: "prefetch",
    source:
      "gmass.co/blog/false-opens-in-gmail (2026-11): Gmail's fetch ahead of the reader, beside its image proxy; the same browser samples links.",
    isIn: (request) => /Chrome\/42\.0\.2311\.135 Safari\/537\.36 Edge\/12\.246\b/.test(userAgent(request)),
  },
  {
    rule: "program",
    source:
      "RFC 9110, 10.1.5 (2022): every mail program, image proxy and browser names itself. Scanners of mail gateways, previews of messengers and HTTP libraries do by these names.",
    isIn: (request) =>
      userAgent(request) === "" || SCANNER.test(userAgent(request)) || LIBRARY.test(userAgent(request)),
  },
  {
    rule: "program",
    // It also matches image proxies and some mail programs.
    kind: "clicked",
    source: "The package isbot (its version in package.json): the user agents of crawlers, monitors and tools.",
    isIn: (request) => isbot(userAgent(request)),
  },
  {
    rule: "webkit",
    early: true,
    source:
      "Apple Mail's own name, and that of programs that render a mail at its delivery, as their operators report (2026-11).",
    isIn: (request) => /^Mozilla\/5\.0 \([^)]*\) AppleWebKit\/[\d.]+ \(KHTML, like Gecko\)$/.test(userAgent(request)),
  },
];

/** Undefined when the request shows nothing; the hits beside it, and its time, may decide yet: see `labelHits`. */
export function findingOf(kind: EngagementKind, request: HitRequest, networkOf?: Networks): RequestFinding | undefined {
  const sign = SIGNS.find((each) => (each.kind ?? kind) === kind && each.isIn(request));
  if (sign && !sign.early) return { rule: sign.rule, early: false };
  const network = networkOf?.(kind, request.clientAddress);
  if (network) return { rule: "network", early: network === "probable" };
  return sign && { rule: sign.rule, early: true };
}
