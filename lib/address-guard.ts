import type { LookupAddress } from "node:dns";
import { Resolver } from "node:dns/promises";
import ipaddr from "ipaddr.js";

/** Of a cloud's platform; in no registry. */
const CLOUD_PLATFORM = "168.63.129.16";
/** Addresses that carry an IPv4 address, local ones and multicast lie outside. */
const GLOBAL_IPV6 = ipaddr.IPv6.parseCIDR("2000::/3");

/** Of none of IANA's special-purpose ranges. False for text that is not a plainly written address. */
export function isPublic(address: string): boolean {
  if (ipaddr.IPv4.isValidFourPartDecimal(address)) {
    return ipaddr.IPv4.parse(address).range() === "unicast" && address !== CLOUD_PLATFORM;
  }
  if (!ipaddr.IPv6.isValid(address)) return false;
  const ip = ipaddr.IPv6.parse(address);
  return !ip.zoneId && ip.match(GLOBAL_IPV6) && ip.range() === "unicast";
}

export function isLoopback(address: string): boolean {
  return ipaddr.isValid(address) && ipaddr.process(address).range() === "loopback";
}

const REFUSALS = {
  invalid_url: "Give an absolute URL such as https://example.com/hooks, without spaces, line breaks or backslashes.",
  scheme: "Use a URL that starts with https:// or http://.",
  https_only: "Use a URL that starts with https://; this service sends no webhooks over plain http.",
  credentials: "Take the user name and password out of the URL; authenticate with a custom header instead.",
  invalid_host: "Give a host name such as smtp.example.com, or an IP address.",
  port: "Use a port of mail servers, such as 587.",
  bad_port: "Use a port of web servers, such as 443 or 8443; this one belongs to another protocol.",
  address_spelling: "Write the IPv4 address as four decimal numbers without leading zeros.",
  address_not_public: "The host is not on the public Internet; use one that can be reached from there.",
  resolves_not_public:
    "The host name resolves to an address that is not on the public Internet; all of its addresses have to be.",
  network_denied: "The host is in a network that this service does not connect to; use another host.",
} as const;

export type RefusalReason = keyof typeof REFUSALS;

/** The message says how the owner of the server can correct it, and names no address. */
export class AddressRefused extends Error {
  override name = "AddressRefused";
  readonly reason: RefusalReason;

  constructor(reason: RefusalReason) {
    super(REFUSALS[reason]);
    this.reason = reason;
  }
}

export class NameNotResolved extends Error {
  override name = "NameNotResolved";
  /** The DNS says so; else it could not be asked. */
  readonly isAbsent: boolean;

  constructor(isAbsent: boolean) {
    super(
      isAbsent
        ? "The host name has no address in the DNS."
        : "The host name could not be looked up: its DNS servers did not answer, or not well.",
    );
    this.isAbsent = isAbsent;
  }
}

export interface AddressGuard {
  isAllowed(hostname: string, port: number): boolean;
  /** By the text alone. @throws {AddressRefused} */
  checkHost(hostname: string, port: number): void;
  /**
   * Looks a host up, once, and checks every address it has. Connect to these and to no others.
   * @param hostname as `URL.hostname` gives it
   * @returns one address at least, IPv4 before IPv6
   * @throws {AddressRefused} when one is not public, or in a denied network
   * @throws {NameNotResolved}
   */
  resolve(hostname: string, port: number): Promise<LookupAddress[]>;
}

export interface GuardRules {
  /** `*` stands for every port. */
  allowedHosts: readonly string[];
  deniedNetworks: readonly string[];
  dnsServers?: readonly string[];
  lookupTimeoutMs?: number | undefined;
}

/** Twice. */
const QUERY_TIMEOUT_MS = 1_500;
const LOOKUP_TIMEOUT_MS = 5_000;
/** A name with more addresses would make one connection try that many hosts. */
const MAX_ADDRESSES_PER_FAMILY = 4;

/** The guard between servers that customers name and the networks of the operator. Asked for every connection. */
export function openAddressGuard({
  allowedHosts,
  deniedNetworks,
  dnsServers = [],
  lookupTimeoutMs = LOOKUP_TIMEOUT_MS,
}: GuardRules): AddressGuard {
  const allowed = new Set(allowedHosts);
  const denied = deniedNetworks.map((network) => ipaddr.parseCIDR(network));
  // Not dns.lookup: it occupies a thread for as long as the slowest server likes, and asks the system's servers alone.
  const resolver = new Resolver({ timeout: QUERY_TIMEOUT_MS, maxTimeout: QUERY_TIMEOUT_MS, tries: 2 });
  if (dnsServers.length > 0) resolver.setServers(dnsServers);
  const isAllowed = (hostname: string, port: number) =>
    allowed.has(`${hostname}:${port}`) || allowed.has(`${hostname}:*`);

  const checkAddresses = (addresses: readonly string[], unlessPublic: RefusalReason) => {
    if (!addresses.every(isPublic)) throw new AddressRefused(unlessPublic);
    for (const address of addresses.map((text) => ipaddr.parse(text))) {
      const isDenied = denied.some(
        ([network, bits]) => network.kind() === address.kind() && address.match(network, bits),
      );
      if (isDenied) throw new AddressRefused("network_denied");
    }
  };

  const checkHost = (hostname: string, port: number) => {
    if (isAllowed(hostname, port)) return;
    if (isLocalName(hostname)) throw new AddressRefused("address_not_public");
    const literal = literalAddress(hostname);
    if (literal) checkAddresses([literal.address], "address_not_public");
  };

  return {
    isAllowed,
    checkHost,

    async resolve(hostname, port) {
      checkHost(hostname, port);
      const literal = literalAddress(hostname);
      if (literal) return [literal];
      if (isLocalName(hostname)) return LOOPBACK;
      const [v4, v6] = await lookUp(resolver, hostname, lookupTimeoutMs);
      if (!isAllowed(hostname, port)) checkAddresses([...v4, ...v6], "resolves_not_public");
      return [
        ...v4.slice(0, MAX_ADDRESSES_PER_FAMILY).map((address) => ({ address, family: 4 })),
        ...v6.slice(0, MAX_ADDRESSES_PER_FAMILY).map((address) => ({ address, family: 6 })),
      ];
    },
  };
}

export function literalAddress(hostname: string): LookupAddress | undefined {
  if (hostname.startsWith("[")) return { address: hostname.slice(1, -1), family: 6 };
  return ipaddr.IPv4.isValidFourPartDecimal(hostname) ? { address: hostname, family: 4 } : undefined;
}

/** Loopback by name (RFC 6761), even when a DNS server says otherwise. */
const isLocalName = (hostname: string): boolean => hostname === "localhost" || hostname.endsWith(".localhost");

const LOOPBACK: LookupAddress[] = [
  { address: "127.0.0.1", family: 4 },
  { address: "::1", family: 6 },
];

async function lookUp(resolver: Resolver, hostname: string, timeoutMs: number): Promise<[string[], string[]]> {
  const { promise: deadline, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error("no answer in time")), timeoutMs);
  const answers = await Promise.allSettled([
    Promise.race([resolver.resolve4(hostname), deadline]),
    Promise.race([resolver.resolve6(hostname), deadline]),
  ]).finally(() => clearTimeout(timer));
  const [v4, v6] = answers.map((answer) => (answer.status === "fulfilled" ? answer.value : [])) as [string[], string[]];
  if (v4.length > 0 || v6.length > 0) return [v4, v6];
  const failures = answers.map((answer) =>
    answer.status === "rejected" ? ((answer.reason as { code?: string }).code ?? "ETIMEOUT") : "",
  );
  throw new NameNotResolved(failures.every((code) => NO_SUCH_NAME.has(code)));
}

const NO_SUCH_NAME = new Set(["ENOTFOUND", "ENODATA", "EBADNAME", ""]);
