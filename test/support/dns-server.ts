import { createSocket } from "node:dgram";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import ipaddr from "ipaddr.js";

/** What the server knows of a name. `silent`: it does not answer. A name it does not know does not exist. */
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

const TYPES = { 1: "a", 28: "aaaa" } as const;
const CNAME = 5;
const NXDOMAIN = 3;

/** A DNS server on UDP with the names of a test, of one second's TTL. */
export async function startDnsServer(names: Record<string, DnsRecords> = {}): Promise<DnsServer> {
  const known = new Map(Object.entries(names));
  const asked: string[] = [];
  const socket = createSocket("udp4");
  socket.on("message", (query, { address, port }) => {
    const { name, type, question } = parse(query);
    asked.push(name);
    const answer = respond(known, name, type);
    if (answer) socket.send(pack(query, question, answer), port, address);
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
  code: number;
  records: { name: string; type: number; data: Buffer }[];
}

function respond(names: Map<string, DnsRecords>, name: string, type: number): Response | undefined {
  const of = names.get(name);
  if (!of) return { code: NXDOMAIN, records: [] };
  const kind = type === 1 || type === 28 ? TYPES[type] : undefined;
  if (of.silent === "both" || (kind && of.silent === kind)) return undefined;
  if (of.cname !== undefined) {
    const target = respond(names, of.cname, type);
    return target && { ...target, records: [{ name, type: CNAME, data: encodeName(of.cname) }, ...target.records] };
  }
  const addresses = kind ? (of[kind] ?? []) : [];
  return { code: 0, records: addresses.map((address) => ({ name, type, data: encodeAddress(address) })) };
}

/** The first question: its name in lower case, its type and its bytes. */
function parse(query: Buffer): { name: string; type: number; question: Buffer } {
  const labels: string[] = [];
  let at = 12;
  for (let length = query.readUInt8(at); length > 0; length = query.readUInt8(at)) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += length + 1;
  }
  return {
    name: labels.join(".").toLowerCase(),
    type: query.readUInt16BE(at + 1),
    question: query.subarray(12, at + 5),
  };
}

function pack(query: Buffer, question: Buffer, { code, records }: Response): Buffer {
  const header = Buffer.alloc(12);
  query.copy(header, 0, 0, 2);
  header.writeUInt16BE(0x8180 | code, 2); // response, recursion desired and available
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(records.length, 6);
  const answers = records.flatMap(({ name, type, data }) => {
    const fixed = Buffer.alloc(10);
    fixed.writeUInt16BE(type, 0);
    fixed.writeUInt16BE(1, 2); // class IN
    fixed.writeUInt32BE(1, 4); // TTL
    fixed.writeUInt16BE(data.length, 8);
    return [encodeName(name), fixed, data];
  });
  return Buffer.concat([header, question, ...answers]);
}

const encodeName = (name: string): Buffer =>
  Buffer.concat([
    ...name.split(".").map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)])),
    Buffer.alloc(1),
  ]);

function encodeAddress(address: string): Buffer {
  return Buffer.from(ipaddr.parse(address).toByteArray());
}
