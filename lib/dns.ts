import { Resolver } from "node:dns/promises";

/** Looks records up. @throws {LookupFailed} */
export interface DnsLookup {
  texts(name: string): Promise<string[]>;
  mailServers(name: string): Promise<string[]>;
  addresses(name: string): Promise<string[]>;
}

export class LookupFailed extends Error {
  override name = "LookupFailed";
}

const QUERY_TIMEOUT_MS = 5_000;

/** Records are shown on an operator's terminal, and their owner writes them: no control character may command it. */
const printable = (text: string): string => text.replace(/[^\P{Cc}\t]/gu, "\uFFFD");

/** @param servers `address` or `address:port` of DNS servers; the machine's own unless given */
export function openLookup(servers: readonly string[] = []): DnsLookup {
  const resolver = new Resolver({ timeout: QUERY_TIMEOUT_MS, maxTimeout: QUERY_TIMEOUT_MS, tries: 2 });
  if (servers.length > 0) resolver.setServers(servers);
  const ask = <T>(name: string, answer: Promise<T[]>): Promise<T[]> =>
    answer.catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENODATA" || error.code === "ENOTFOUND") return [];
      throw new LookupFailed(`${name}: ${error.code ?? error.message}`, { cause: error });
    });
  return {
    texts: async (name) => (await ask(name, resolver.resolveTxt(name))).map((strings) => printable(strings.join(""))),
    mailServers: async (name) =>
      (await ask(name, resolver.resolveMx(name))).map(({ priority, exchange }) => `${priority} ${printable(exchange)}`),
    addresses: async (name) =>
      (await Promise.all([ask(name, resolver.resolve4(name)), ask(name, resolver.resolve6(name))])).flat(),
  };
}
