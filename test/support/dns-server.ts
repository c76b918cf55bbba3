import { createSocket } from "node:dgram";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import dns, { type Answer } from "dns-packet";

/** The records of a name. `silent`: the server does not answer. A name without records does not exist. */
export interface DnsRecords {
  a?: string[];
  aaaa?: string[];
  /** Followed on the server, as recursive servers do */
  cname?: string;
  silent?: "a" | "aaaa" | "both";
}

export interface DnsServer {
  /** For WEBHOOK_DNS_SERVERS. */
  address: string;
  /** May be changed at any time. */
  names: Map<string, DnsRecords>;
  /** How often addresses of a name were asked for, A and AAAA each counted. */
  queries(name: string): number;
  close(): void;
}

const FLAGS = dns.RECURSION_DESIRED | dns.RECURSION_AVAILABLE;
const NXDOMAIN = 3;
const TTL_SECONDS = 1;

/** A DNS server on UDP with the names of a test. */
export async function startDnsServer(names: Record<string, DnsRecords> = {}): Promise<DnsServer> {
  const known = new Map(Object.entries(names));
  const asked: string[] = [];
  const socket = createSocket("udp4");
  socket.on("message", (query, { address, port }) => {
    const { id, questions } = dns.decode(query);
    const [question] = questions ?? [];
    if (id === undefined || !question) return;
    const name = question.name.toLowerCase();
    asked.push(name);
    const response = lookUp(known, name, question.type);
    if (!response) return;
    const packet = dns.encode({ type: "response", id, questions: [question], ...response });
    socket.send(packet, port, address);
  });
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  return {
    address: `127.0.0.1:${(socket.address() as AddressInfo).port}`,
    names: known,
    queries: (name) => asked.filter((one) => one === name).length,
    close: () => socket.close(),
  };
}

interface Response {
  flags: number;
  answers: Answer[];
}

/** @returns undefined when the server is to be silent */
function lookUp(names: Map<string, DnsRecords>, name: string, type: string): Response | undefined {
  const records = names.get(name);
  if (!records) return { flags: FLAGS | NXDOMAIN, answers: [] };
  if (records.silent === "both" || records.silent === type.toLowerCase()) return undefined;
  if (records.cname !== undefined) {
    const target = lookUp(names, records.cname, type);
    const alias = { type: "CNAME", name, ttl: TTL_SECONDS, data: records.cname } as const;
    return target && { ...target, answers: [alias, ...target.answers] };
  }
  const addresses = { A: records.a, AAAA: records.aaaa }[type] ?? [];
  return {
    flags: FLAGS,
    answers: addresses.map((data) => ({ type: type as "A" | "AAAA", name, ttl: TTL_SECONDS, data })),
  };
}
