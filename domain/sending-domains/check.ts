import { BlockList, isIPv4, isIPv6 } from "node:net";
import { type DnsLookup, LookupFailed } from "../../lib/dns.ts";
import { ApiError } from "../errors.ts";
import type { SendingKey } from "./keys.ts";
import { type DnsRecord, type DomainRecords, dkimRecord } from "./records.ts";

/** `wrong`: there is a record, with another content than needed. `unknown`: DNS did not answer. */
export type RecordState = "ok" | "missing" | "wrong" | "unknown";

export interface RecordCheck {
  record: DnsRecord;
  state: RecordState;
  found: string[];
  todo?: string;
}

type Finding = Omit<RecordCheck, "record">;

const todoOf = ({ name, type }: DnsRecord, verb = "publish"): string => `${verb} the ${type} record of ${name}`;

export async function checkRecords(dns: DnsLookup, { records, keys, spfTerms }: DomainRecords): Promise<RecordCheck[]> {
  const keyOf = (record: DnsRecord) => keys.find((key) => dkimRecord(key).name === record.name);
  const check = (record: DnsRecord): Promise<Finding> => {
    switch (record.purpose) {
      case "DKIM":
        return checkDkim(dns, record, keyOf(record));
      case "SPF":
      case "return path SPF":
        return checkSpf(dns, record, spfTerms);
      case "DMARC":
        return checkDmarc(dns, record);
      case "return path":
        return checkMailServer(dns, record);
    }
  };
  return Promise.all(
    records.map(async (record) => {
      const finding = await check(record).catch((error: unknown): Finding => {
        if (!(error instanceof LookupFailed)) throw error;
        return { state: "unknown", found: [], todo: `DNS did not answer (${error.message}); check again` };
      });
      return { record, ...finding };
    }),
  );
}

/** @throws {ApiError} `resource_state_invalid` unless the record of a key is found in DNS */
export async function refuseUnpublished(dns: DnsLookup, key: SendingKey): Promise<void> {
  const [check] = await checkRecords(dns, { records: [dkimRecord(key)], keys: [key], spfTerms: [] });
  if (check?.state === "ok") return;
  const why = check?.todo === undefined ? check?.state : `${check.state}: ${check.todo}`;
  throw new ApiError("resource_state_invalid", `Its record is ${why}.`);
}

const tagsOf = (text: string): Map<string, string> =>
  new Map(
    text.split(";").map((tag) => {
      const [name = "", ...value] = tag.split("=");
      return [name.trim(), value.join("=").replace(/\s/g, "")];
    }),
  );

async function checkDkim(dns: DnsLookup, record: DnsRecord, key: SendingKey | undefined): Promise<Finding> {
  const found = await dns.texts(record.name);
  const [only] = found;
  if (only === undefined) return { state: "missing", found, todo: todoOf(record) };
  // RFC 6376, section 3.6.2.2: the result of several records is undefined.
  if (found.length > 1) return { state: "wrong", found, todo: `remove all TXT records of ${record.name} but this one` };
  const [expected, tags] = [tagsOf(record.value), tagsOf(only)];
  const version = tags.get("v") ?? "DKIM1";
  const isSame =
    tags.get("p") === expected.get("p") && (tags.get("k") ?? "rsa") === expected.get("k") && version === "DKIM1";
  if (!isSame) return { state: "wrong", found, todo: todoOf(record, "replace") };
  return { state: "ok", found, ...(key?.use === "waiting" && { todo: `domain:activate --key ${key.id}` }) };
}

async function checkDmarc(dns: DnsLookup, record: DnsRecord): Promise<Finding> {
  // A domain without a record takes the one of a domain above it (RFC 7489, section 6.6.3).
  const labels = record.name.split(".").slice(1);
  for (let i = 0; i <= Math.max(0, labels.length - 2); i++) {
    const name = `_dmarc.${labels.slice(i).join(".")}`;
    const found = (await dns.texts(name)).filter((text) => /^v=DMARC1\s*(?:;|$)/.test(text));
    if (found.length === 0) continue;
    if (found.length > 1) return { state: "wrong", found, todo: `keep one of the DMARC records of ${name}` };
    const policy = tagsOf(found[0] ?? "").get("p") ?? "";
    if (!/^(?:none|quarantine|reject)$/i.test(policy)) {
      return { state: "wrong", found, todo: `give the record of ${name} a policy: p=none, p=quarantine or p=reject` };
    }
    return { state: "ok", found };
  }
  return { state: "missing", found: [], todo: todoOf(record) };
}

async function checkMailServer(dns: DnsLookup, record: DnsRecord): Promise<Finding> {
  const found = await dns.mailServers(record.name);
  // A host that is empty says that the domain takes no mail (RFC 7505).
  if (found.some((server) => /^\d+ \S/.test(server))) return { state: "ok", found };
  return { state: found.length === 0 ? "missing" : "wrong", found, todo: todoOf(record) };
}

/** Look-ups that a server makes for an SPF record at most (RFC 7208, section 4.6.4). */
const MAX_SPF_LOOKUPS = 10;
const SPF = /^v=spf1(?: |$)/i;
const ASKING = /^(?:include:|redirect=|a(?:[:/]|$)|mx(?:[:/]|$)|ptr(?::|$)|exists:)/;

/** The mechanisms by which an SPF record passes mail, with those of the records that it includes. */
class SpfTerms {
  readonly terms = new Set<string>();
  #lookups = 0;
  problem: string | undefined;
  readonly #dns: DnsLookup;

  constructor(dns: DnsLookup) {
    this.#dns = dns;
  }

  async add(record: string): Promise<void> {
    for (const term of record.toLowerCase().split(/\s+/).slice(1)) {
      // A mechanism with another qualifier does not pass mail.
      if (/^[-~?]/.test(term)) continue;
      const mechanism = term.replace(/^\+/, "");
      this.terms.add(mechanism);
      if (!ASKING.test(mechanism)) continue;
      this.#lookups++;
      if (this.#lookups > MAX_SPF_LOOKUPS) {
        this.problem ??= `takes more than ${MAX_SPF_LOOKUPS} look-ups; remove mechanisms that are not needed`;
        return;
      }
      const [, included] = /^(?:include:|redirect=)([^%]+)$/.exec(mechanism) ?? [];
      if (included !== undefined) await this.#include(included);
    }
  }

  async #include(name: string): Promise<void> {
    const [record] = (await this.#dns.texts(name)).filter((text) => SPF.test(text));
    if (record === undefined) this.problem ??= `names ${name}, which has no SPF record`;
    else await this.add(record);
  }

  /** By the mechanism of the server, or by networks that hold all of its addresses. */
  async covers(term: string): Promise<boolean> {
    if (this.terms.has(term)) return true;
    const [, kind, host = ""] = /^(a|ip4|ip6):(.+)$/.exec(term) ?? [];
    if (kind === undefined) return false;
    const addresses = kind === "a" ? await this.#dns.addresses(host) : [host];
    const networks = this.#networks();
    return addresses.length > 0 && addresses.every((each) => networks.check(each, isIPv6(each) ? "ipv6" : "ipv4"));
  }

  #networks(): BlockList {
    const networks = new BlockList();
    for (const term of this.terms) {
      const [, address = "", prefix] = /^ip[46]:([^/]+)(?:\/(\d{1,3}))?$/.exec(term) ?? [];
      const most = isIPv4(address) ? 32 : isIPv6(address) ? 128 : undefined;
      const bits = Number(prefix ?? most);
      if (most !== undefined && bits <= most) networks.addSubnet(address, bits, most === 32 ? "ipv4" : "ipv6");
    }
    return networks;
  }
}

async function checkSpf(dns: DnsLookup, record: DnsRecord, expected: readonly string[]): Promise<Finding> {
  const found = (await dns.texts(record.name)).filter((text) => SPF.test(text));
  const [only] = found;
  if (only === undefined) return { state: "missing", found, todo: todoOf(record) };
  // RFC 7208, section 4.5: several records are an error.
  if (found.length > 1) return { state: "wrong", found, todo: `join the SPF records of ${record.name} into one` };
  const spf = new SpfTerms(dns);
  await spf.add(only);
  if (spf.problem !== undefined) return { state: "wrong", found, todo: `the record ${spf.problem}` };
  const missing: string[] = [];
  for (const term of expected) if (!(await spf.covers(term))) missing.push(term);
  if (missing.length === 0) return { state: "ok", found };
  const servers = "or the addresses that its server sends from";
  return { state: "wrong", found, todo: `add ${missing.join(" ")} to the record, ${servers}` };
}
