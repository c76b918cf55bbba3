import { readFileSync } from "node:fs";
import { addressDomain, normaliseAddress } from "../address.ts";

const OWN_LIST = new URL("../../config/throwaway-domains.txt", import.meta.url);

/** Whether a valid address belongs to a domain, or one below it, whose mailboxes are thrown away. */
export type IsThrowaway = (email: string) => boolean;

/** @param file of an operator's own list, a domain a line, in lower case and in Unicode; the service's unless given */
export function readThrowawayDomains(file: string | URL = OWN_LIST): IsThrowaway {
  const domains = new Set(readFileSync(file, "utf8").split(/\s*\n\s*/));
  return (email) => {
    const labels = addressDomain(normaliseAddress(email) ?? "").split(".");
    return labels.some((_, at) => domains.has(labels.slice(at).join(".")));
  };
}
