import { readFileSync } from "node:fs";
import ipaddr from "ipaddr.js";
import { z } from "zod";
import type { EngagementKind } from "../../db/entities/engagement.ts";

/**
 * Networks of scanners and proxies. One that also carries readers decides about clicks at most (`clicks`); where people may
 * read and click from it, it decides in the first minutes of a mail only (`probable`).
 */
const networkList = z.array(
  z.strictObject({
    name: z.string().min(1),
    ranges: z.array(z.string().refine(isRange, "must be a network such as 192.0.2.0/24, of IPv6 with at most 48 bits")),
    scope: z.enum(["all", "clicks"]),
    certainty: z.enum(["certain", "probable"]),
    source: z.string().min(1),
    date: z.string().regex(/^\d{4}-\d{2}(?:-\d{2})?$/, "must be a date such as 2026-11"),
  }),
);

type Certainty = z.infer<typeof networkList>[number]["certainty"];

/** @returns how surely a hit from the client is a machine's; undefined for all other networks */
export type Networks = (kind: EngagementKind, clientAddress: string | null) => Certainty | undefined;

/** IPv6 addresses are compared by their first 48 bits, which a number holds exactly. */
const IPV6_BITS = 48;

function isRange(text: string): boolean {
  if (!ipaddr.isValidCIDR(text)) return false;
  const [ip, bits] = ipaddr.parseCIDR(text);
  return ip.kind() === "ipv4" || bits <= IPV6_BITS;
}

const IPV6_PARTS = 3;

/** @param clientAddress an IPv4 address, or the parts of an IPv6 network as decimal numbers */
function positionOf(clientAddress: string): { isIPv6: boolean; position: number } {
  const isIPv6 = clientAddress.includes(":");
  const parts = isIPv6 ? clientAddress.split(":").slice(0, IPV6_PARTS) : clientAddress.split(".");
  return { isIPv6, position: parts.reduce((sum, part) => sum * (isIPv6 ? 65_536 : 256) + Number(part), 0) };
}

const OWN_LIST = new URL("networks.json", import.meta.url);

/** @param file of an operator's own list; the service's unless given @throws {Error} that says what is wrong with it */
export function readNetworks(file: string | URL = OWN_LIST): Networks {
  try {
    return openNetworks(networkList.parse(JSON.parse(readFileSync(file, "utf8"))));
  } catch (error) {
    const problem = error instanceof z.ZodError ? z.prettifyError(error) : String(error);
    throw new Error(`The networks of scanners in ${file} cannot be read: ${problem}`);
  }
}

function openNetworks(list: z.infer<typeof networkList>): Networks {
  const ranges = list.flatMap(({ ranges: texts, scope, certainty }) =>
    texts.map((text) => {
      const [ip, bits] = ipaddr.parseCIDR(text);
      const { isIPv6, position } = positionOf(ip instanceof ipaddr.IPv6 ? ip.parts.join(":") : ip.toString());
      const size = 2 ** ((isIPv6 ? IPV6_BITS : 32) - bits);
      const from = position - (position % size);
      return { isIPv6, from, to: from + size, scope, certainty };
    }),
  );
  return (kind, clientAddress) => {
    if (clientAddress === null) return undefined;
    const { isIPv6, position } = positionOf(clientAddress);
    return ranges.find(
      (range) =>
        range.isIPv6 === isIPv6 &&
        position >= range.from &&
        position < range.to &&
        (range.scope === "all" || kind === "clicked"),
    )?.certainty;
  };
}
