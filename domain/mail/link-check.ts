import { AddressRefused, NameNotResolved } from "../../lib/address-guard.ts";
import type { ProbeUrl } from "../../lib/fetch-text.ts";

export interface CheckedLink {
  url: string;
  /** `unchecked`: the answer says nothing about what a reader would see. */
  outcome: "fine" | "broken" | "unchecked";
  /** A sentence. */
  reason: string;
}

export const MAX_CHECKED_LINKS = 50;
const AT_ONCE = 8;
const LINK_MS = 5_000;
const ALL_MS = 15_000;
const MAX_REDIRECTS = 3;

const UNAVAILABLE = 503;
const GONE = [404, 410];
/** Codes of Node and OpenSSL. */
const TLS_FAILURE =
  /^(CERT_|CRL_|DEPTH_|SELF_SIGNED_|UNABLE_TO_|ERR_TLS_|ERR_SSL_|EPROTO$|HOSTNAME_MISMATCH$|INVALID_(CA|PURPOSE)$)/;

/** Asks each of the links, a few at once. @param signal ends the check */
export async function checkLinks(
  probe: ProbeUrl,
  urls: readonly string[],
  signal: AbortSignal,
): Promise<CheckedLink[]> {
  const all = AbortSignal.any([signal, AbortSignal.timeout(ALL_MS)]);
  const links: CheckedLink[] = [];
  const waiting = urls.slice(0, MAX_CHECKED_LINKS).entries();
  const work = async () => {
    for (const [i, url] of waiting) links[i] = { url, ...(await checkLink(probe, url, all)) };
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return links;
}

type Outcome = Omit<CheckedLink, "url">;
const broken = (reason: string): Outcome => ({ outcome: "broken", reason });
const unchecked = (reason: string): Outcome => ({ outcome: "unchecked", reason });

async function checkLink(probe: ProbeUrl, link: string, all: AbortSignal): Promise<Outcome> {
  const signal = AbortSignal.any([all, AbortSignal.timeout(LINK_MS)]);
  try {
    let url = link;
    for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
      // As a reader does: some servers answer HEAD with any failure.
      const { status, location } = await probe(url, signal);
      if (status < 300 || status >= 400 || location === undefined) return outcomeOf(status);
      url = new URL(location, url).href;
    }
    return unchecked(`It is redirected more than ${MAX_REDIRECTS} times.`);
  } catch (error) {
    return signal.aborted ? unchecked("It did not answer in time.") : outcomeOfFailure(error);
  }
}

function outcomeOf(status: number): Outcome {
  const reason = `It answers with ${status}.`;
  // Shops answer programs so.
  if (status === UNAVAILABLE) return unchecked(reason);
  if (GONE.includes(status) || (status >= 500 && status < 600)) return broken(reason);
  return status < 400 ? { outcome: "fine", reason } : unchecked(reason);
}

function outcomeOfFailure(error: unknown): Outcome {
  if (error instanceof NameNotResolved) return (error.isAbsent ? broken : unchecked)(error.message);
  if (error instanceof AddressRefused)
    return unchecked("It is not asked: its address is not public, or not written as a web address.");
  const { code = "" } = error as { code?: string };
  if (TLS_FAILURE.test(code)) return broken("Its TLS certificate cannot be verified, or TLS failed.");
  if (code === "ECONNREFUSED") return broken("Its host refused the connection.");
  return unchecked("It gave no answer that can be read.");
}
