import { Resolver } from "node:dns/promises";
import { addressParser } from "postal-mime";
import { holdsAddress, plainAddress } from "../config/client-network.ts";
import type { Env } from "../config/env.ts";

/** More signatures are not verified. A feedback loop puts one or two on its report. */
const MAX_SIGNATURES = 5;
const QUERY_TIMEOUT_MS = 1_500;
/** The look-ups of one report may take so long in all. */
const LOOKUPS_TIMEOUT_MS = 5_000;

/** Whether the reporter of a complaint is known. `unanswered`: it names a feedback loop, and DNS did not answer for the key of its signature. */
export type ReporterStatus = "known" | "unknown" | "unanswered";

/**
 * Finds whether a complaint by mail comes from a feedback loop: from a mail server that the operator allows, or signed by
 * DKIM for a domain on the list and, by its signed To, written to this service. Any recipient can write a complaint about a
 * mail of its own, and anyone whose own mails a loop reports can pass such a report on.
 * @param domain of this service's mailboxes
 * @param dnsServers the system's unless given
 */
export function openReporters(
  { FEEDBACK_LOOPS, FEEDBACK_LOOP_ADDRESSES }: Pick<Env, "FEEDBACK_LOOPS" | "FEEDBACK_LOOP_ADDRESSES">,
  domain: string,
  dnsServers: readonly string[] = [],
): (raw: Buffer, clientAddress: string) => Promise<ReporterStatus> {
  const isAllowed = holdsAddress(FEEDBACK_LOOP_ADDRESSES);
  const loops = FEEDBACK_LOOPS.map((loop) => {
    const [domain = "", address] = [loop.slice(loop.indexOf("@") + 1), loop.includes("@") ? loop : undefined];
    return { domain, address };
  });
  const loopsOf = (signer: string) =>
    loops.filter((loop) => signer === loop.domain || (!loop.address && signer.endsWith(`.${loop.domain}`)));
  const isToService = (field: string): boolean =>
    /^to:/i.test(field) &&
    addressParser(field.slice("to:".length)).some(({ address }) => address?.toLowerCase().endsWith(`@${domain}`));

  return async (raw, clientAddress) => {
    if (isAllowed(plainAddress(clientAddress))) return "known";
    const signatures =
      raw
        .toString("latin1")
        .split(/\r?\n\r?\n/, 1)[0]
        ?.match(/^dkim-signature:/gim)?.length ?? 0;
    if (signatures === 0 || signatures > MAX_SIGNATURES) return "unknown";
    // The library takes 0.3 s to load, and only the intake needs it.
    const { dkimVerify } = await import("mailauth/lib/dkim/verify.js");
    const resolver = new Resolver({ timeout: QUERY_TIMEOUT_MS, maxTimeout: QUERY_TIMEOUT_MS, tries: 2 });
    if (dnsServers.length > 0) resolver.setServers(dnsServers);
    const timer = setTimeout(() => resolver.cancel(), LOOKUPS_TIMEOUT_MS);
    const verified = await dkimVerify(raw, {
      rejectRsaSha1: true,
      // Asks for no key of a domain that is not on the list.
      resolver: async (name) => {
        const signer = name.slice(name.indexOf("._domainkey.") + "._domainkey.".length).toLowerCase();
        if (loopsOf(signer).length > 0) return resolver.resolveTxt(name);
        throw Object.assign(new Error("not a feedback loop"), { code: "ENOTFOUND" });
      },
    })
      .catch(() => undefined) // a mail that it cannot parse
      .finally(() => clearTimeout(timer));
    if (!verified) return "unknown";
    const { results, headerFrom, fromFields } = verified;
    // A second From, or part of the body outside of the signature, would be the forger's.
    const from = fromFields === 1 && headerFrom.length === 1 ? headerFrom[0]?.toLowerCase() : undefined;
    const ofLoops = results.filter(
      ({ signingDomain = "", canonBodyLengthLimited, signingHeaders }) =>
        !canonBodyLengthLimited &&
        signingHeaders?.headers.some(isToService) &&
        loopsOf(signingDomain.toLowerCase()).some(({ address }) => address === undefined || address === from),
    );
    if (ofLoops.some(({ status }) => status.result === "pass")) return "known";
    return ofLoops.some(({ status }) => status.result === "temperror") ? "unanswered" : "unknown";
  };
}
