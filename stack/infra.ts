import { mkdir } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { claimPort, PORT_PICKS } from "../config/ports.ts";
import { type Processes, StackError } from "./processes.ts";
import { loadSecrets } from "./state.ts";

interface InfraOptions {
  /** Folder of the databases, secrets and logs. */
  dataDir: string;
  ports: Record<"POSTGRES_PORT" | "TEMPORAL_PORT" | "TEMPORAL_UI_PORT" | "SMTP_PORT" | "MAIL_PORT", number>;
  /** For tests: gives durability up for speed. */
  ephemeral: boolean;
  /** The user's settings: DATABASE_URL and TEMPORAL_ADDRESS name servers to use instead of the embedded ones. */
  source: Record<string, string>;
  /** The Temporal CLI to use instead of looking for one. */
  temporalCli: string | undefined;
  processes: Processes;
  /** Reports each step as it is done. */
  step: Step;
}

/** Runs one step of the start and shows the user how it went. */
export type Step = <T>(name: string, work: (report: (message: string) => void) => Promise<T>) => Promise<T>;

/** The servers that the API and the workers use. */
export interface Infra {
  databaseUrl: string;
  /** The database with the role that owns it. */
  migrationUrl: string;
  /** The embedded database was made just now. */
  databaseIsNew: boolean;
  /** host:port */
  temporalAddress: string;
  temporalUi: string | null;
  /** smtp:// URL of the mail catcher. */
  smtp: string;
  /** Base URL of the mail catcher's page and JSON. */
  mailApi: string;
}

/** Stopped in this order, after the processes that use them. */
export const INFRA_STOP_ORDER = ["temporal", "mail", "postgres"];

/** A port to reserve; 0 is any free one. */
export interface WantedPort {
  host?: string;
  port: number;
  /** The setting that gives it. */
  setting?: string;
}

/**
 * Checks that every port is free, and picks one where 0 is given.
 * @param wanted port by its name, which is that of its setting unless `setting` names that
 * @throws {StackError} naming the setting whose port cannot be had
 */
export async function reservePorts<Name extends string>(
  wanted: Record<Name, WantedPort>,
): Promise<Record<Name, number>> {
  const servers: Server[] = [];
  const ports: Partial<Record<Name, number>> = {};
  try {
    // All are held until the last one is known: no two get the same.
    for (const [name, { host = "127.0.0.1", port, setting = name }] of Object.entries(wanted) as [Name, WantedPort][]) {
      const { server, ...held } = await hold(setting, host, port);
      servers.push(server);
      ports[name] = held.port;
    }
    return ports as Record<Name, number>;
  } finally {
    await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  }
}

/** Listens on the port, or on a free one where that is 0. */
async function hold(name: string, host: string, port: number): Promise<{ server: Server; port: number }> {
  for (let tries = 1; ; tries++) {
    const candidate = port || (await claimPort());
    const server = createServer();
    try {
      await new Promise<void>((done, fail) => server.once("error", fail).listen(candidate, host, done));
      return { server, port: candidate };
    } catch (error) {
      const cause = error as NodeJS.ErrnoException;
      if (port === 0 && cause.code === "EADDRINUSE" && tries < PORT_PICKS) continue;
      throw new StackError(portFailure(name, host, port, cause));
    }
  }
}

function portFailure(name: string, host: string, port: number, error: NodeJS.ErrnoException): string {
  const advice = `Set ${name} to another port, or to 0 for any free one.`;
  if (error.code === "EADDRINUSE")
    return `${name}: port ${port} on ${host} is in use. Stop what uses it, or: ${advice}`;
  if (error.code === "EACCES") return `${name}: port ${port} is not open to this user. ${advice}`;
  return `HOST: cannot listen on ${host} (${error.code ?? error.message}). Set HOST to an address of this machine.`;
}

/**
 * The user's own database, with both of its roles; undefined for the embedded one.
 * @throws {StackError} when the owner's role is missing
 */
export function givenDatabase({ DATABASE_URL: url, MIGRATION_DATABASE_URL: ownerUrl }: Record<string, string>) {
  if (url === undefined) return undefined;
  if (ownerUrl === undefined) {
    throw new StackError(
      "MIGRATION_DATABASE_URL is not set: with DATABASE_URL, give the same database with the role that owns it too.",
    );
  }
  return { url, ownerUrl, isNew: false };
}

/** For an operator whose own database cannot be migrated. */
export function databaseRefusal(ownerUrl: string, cause: unknown): StackError {
  const { host, pathname } = new URL(ownerUrl);
  const reason = cause instanceof Error ? cause.message : String(cause);
  const message = `MIGRATION_DATABASE_URL: the database ${host}${pathname} cannot be used: ${reason}`;
  return new StackError(message, { cause });
}

/**
 * Brings up Postgres, Temporal with its UI, and the mail catcher, each in a process that ends with this one.
 * @throws {StackError} when one cannot be had; the others may be running then, `processes` stops them
 */
export async function startInfra(options: InfraOptions): Promise<Infra> {
  const { dataDir, ports, ephemeral, source, temporalCli, processes, step } = options;
  await mkdir(`${dataDir}/logs`, { recursive: true, mode: 0o700 });
  const log = (name: string) => `${dataDir}/logs/${name}.log`;

  const startPostgres = async () =>
    givenDatabase(source) ??
    step("Postgres", async () => {
      const { embeddedPostgres } = await import("./postgres.ts");
      const { postgresPasswords: passwords } = await loadSecrets(dataDir);
      const postgres = await embeddedPostgres({ dataDir, port: ports.POSTGRES_PORT, passwords, ephemeral });
      await processes.start({ name: "postgres", log: log("postgres"), env: { PATH: source["PATH"] }, ...postgres });
      return postgres;
    });

  const startTemporal = async () => {
    const namespace = source["TEMPORAL_NAMESPACE"] ?? "default";
    const { prepareNamespace, temporalDevServer } = await import("./temporal.ts");
    const given = source["TEMPORAL_ADDRESS"];
    if (given) {
      await step("Temporal namespace", () => prepareNamespace({ env: source, namespace, embedded: false }));
      return { address: given, ui: null };
    }
    const address = `127.0.0.1:${ports.TEMPORAL_PORT}`;
    await step("Temporal", async (report) => {
      const { findTemporalCli } = await import("./temporal-cli.ts");
      const cli = await findTemporalCli({ given: temporalCli, env: source, report });
      const file = `${dataDir}/temporal.db`;
      const [port, uiPort] = [ports.TEMPORAL_PORT, ports.TEMPORAL_UI_PORT];
      const server = temporalDevServer({ cli, file, port, uiPort, namespace, ephemeral });
      await processes.start({ name: "temporal", log: log("temporal"), env: source, ...server });
      await prepareNamespace({ env: { TEMPORAL_ADDRESS: address }, namespace, embedded: true });
    });
    return { address, ui: `http://127.0.0.1:${ports.TEMPORAL_UI_PORT}` };
  };

  const startMailCatcher = () =>
    step("mail catcher", () =>
      processes.start({
        name: "mail",
        entry: `${import.meta.dirname}/mail-catcher-main.ts`,
        args: [String(ports.SMTP_PORT), String(ports.MAIL_PORT)],
        log: log("mail"),
        env: source,
        graceMs: 2_000,
      }),
    );

  const startingPostgres = startPostgres();
  const [postgres, temporal] = await Promise.all([startingPostgres, startTemporal(), startMailCatcher()]).catch(
    async (error: unknown) => {
      // Else the program that makes its database would outlive this process, and leave the owner's password in a file.
      await startingPostgres.catch(() => undefined);
      throw error;
    },
  );
  return {
    databaseUrl: postgres.url,
    migrationUrl: postgres.ownerUrl,
    databaseIsNew: postgres.isNew,
    temporalAddress: temporal.address,
    temporalUi: temporal.ui,
    smtp: `smtp://127.0.0.1:${ports.SMTP_PORT}`,
    mailApi: `http://127.0.0.1:${ports.MAIL_PORT}`,
  };
}
