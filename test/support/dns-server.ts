import { createSocket } from "node:dgram";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import dnsPacket, { type Answer } from "dns-packet";

/** The records of a name. `silent`: the server does not answer. A name without records does not exist. */
export interface DnsRecords {
  a?: string[];
  aaaa?: string[];
  txt?: string[];
  mx?: string[];
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

const NXDOMAIN = 3;
const TTL_SECONDS = 1;

export async function startDnsServer(names: Record<string, DnsRecords> = {}): Promise<DnsServer> {
  const known = new Map(Object.entries(names));
  const asked: string[] = [];
  const socket = createSocket("udp4");
  socket.on("message", (message, { address, port }) => {
    const query = dnsPacket.decode(message);
    const [question] = query.questions ?? [];
    if (!question) return;
    const name = question.name.toLowerCase();
    asked.push(name);
    const answers = resolve(known, name, question.type);
    if (answers === "silent") return;
    const response = dnsPacket.encode({
      type: "response",
      id: query.id ?? 0,
      flags: dnsPacket.RECURSION_DESIRED | dnsPacket.RECURSION_AVAILABLE | (answers === "unknown" ? NXDOMAIN : 0),
      questions: [question],
      answers: answers === "unknown" ? [] : answers,
    });
    socket.send(response, port, address);
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

function resolve(names: Map<string, DnsRecords>, name: string, type: string): Answer[] | "silent" | "unknown" {
  const records = names.get(name);
  if (!records) return "unknown";
  const kind = type === "A" ? "a" : type === "AAAA" ? "aaaa" : undefined;
  if (records.silent === "both" || (kind && records.silent === kind)) return "silent";
  if (records.cname !== undefined) {
    const target = resolve(names, records.cname, type);
    const alias: Answer = { type: "CNAME", name, ttl: TTL_SECONDS, data: records.cname };
    return Array.isArray(target) ? [alias, ...target] : target;
  }
  if (type === "TXT") {
    const strings = (text: string) => text.match(/.{1,255}/gs) ?? [];
    return (records.txt ?? []).map((text) => ({ type, name, ttl: TTL_SECONDS, data: strings(text) }));
  }
  if (type === "MX") {
    return (records.mx ?? []).map((exchange) => ({ type, name, ttl: TTL_SECONDS, data: { preference: 10, exchange } }));
  }
  if (type !== "A" && type !== "AAAA") return [];
  const addresses = (type === "A" ? records.a : records.aaaa) ?? [];
  return addresses.map((data) => ({ type, name, ttl: TTL_SECONDS, data }));
}
