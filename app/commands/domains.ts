import { type Command, Option } from "commander";
import { forTenant, type Tenant } from "../../db/orm.ts";
import { ApiError } from "../../domain/errors.ts";
import { DKIM_ALGORITHMS, type DkimAlgorithm } from "../../domain/mail/dkim.ts";
import { checkKey, checkRecords, type RecordCheck } from "../../domain/sending-domains/check.ts";
import {
  activateKey,
  addKey,
  listKeys,
  readKey,
  removeKey,
  type SendingKey,
} from "../../domain/sending-domains/keys.ts";
import {
  type DnsRecord,
  type DomainRecords,
  dkimRecord,
  recordsOf,
  zoneLine,
} from "../../domain/sending-domains/records.ts";
import { openLookup } from "../../lib/dns.ts";
import { asciiDomain, oneOf, withTenant } from "../options.ts";
import { inTenant, type Outcome, ownerOf, type Run, type Session, type TenantOptions, tenantOf } from "../session.ts";

interface DomainOptions extends TenantOptions {
  domain: string;
}
interface KeyOptions {
  key: string;
}
interface DnsOptions {
  dnsServer?: string;
}

/** How long a signed mail may be under way: servers try for four to five days (RFC 5321, section 4.5.4.1). */
const UNDER_WAY_DAYS = 7;
const DAY_MS = 86_400_000;

const withDomain = (command: Command): Command =>
  withTenant(command).requiredOption("--domain <name>", "the domain that mails are sent from", asciiDomain);
const withAlgorithm = (command: Command): Command =>
  command.addOption(
    new Option("--algorithm <name>", `${DKIM_ALGORITHMS.join(" or ")}; not every mailbox provider verifies ed25519`)
      .default("rsa")
      .argParser(oneOf(DKIM_ALGORITHMS)),
  );
const withKey = (command: Command): Command => command.requiredOption("--key <id>", "the key");
const withDns = (command: Command): Command =>
  command.option("--dns-server <address>", "DNS server to ask, with or without a port; the machine's own unless given");
const lookupOf = ({ dnsServer }: DnsOptions) => openLookup(dnsServer === undefined ? [] : [dnsServer]);

/** Sending domains: the keys that sign their mails, and their records in DNS. */
export function domainCommands(program: Command, run: Run): void {
  const making = [
    ["domain:add", "make the first key that signs a domain's mails, and show the DNS records to publish", true],
    ["domain:rotate", "make the next key of a domain; the one before it signs until this one is activated", false],
  ] as const;
  for (const [name, description, isFirst] of making) {
    withAlgorithm(withDomain(program.command(name)).description(description)).action(
      (options: DomainOptions & { algorithm: DkimAlgorithm }) => run((session) => make(session, options, isFirst)),
    );
  }

  withDns(withKey(program.command("domain:activate")).description("let a key sign, once its record is found in DNS"))
    .option("--unchecked", "do not look its record up")
    .action((options: KeyOptions & DnsOptions & { unchecked?: boolean }) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "dkim_keys", options.key);
        if (!options.unchecked) {
          const key = await inTenant(session, tenant, (em) => readKey(em, tenant, options.key));
          const check = await checkKey(lookupOf(options), key);
          if (check.state !== "ok") throw new ApiError("resource_state_invalid", `Its record is ${stateOf(check)}.`);
        }
        return shown([await inTenant(session, tenant, (em) => activateKey(em, tenant, options.key))]);
      }),
    );

  withTenant(program.command("domain:list"))
    .description("list the keys of a team's domains")
    .action((options: TenantOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        return shown(await inTenant(session, tenant, (em) => listKeys(em, tenant)));
      }),
    );

  withDns(
    withDomain(program.command("domain:check")).description(
      "look up the DNS records of a domain: DKIM, SPF, DMARC and the return path",
    ),
  ).action((options: DomainOptions & DnsOptions) =>
    run(async (session) => {
      const tenant = await tenantOf(session, options);
      const records = await recordsFor(session, tenant, options.domain, await keysOf(session, tenant, options));
      const checks = await checkRecords(lookupOf(options), records);
      const isSigned = records.keys.some(({ use }) => use === "signing");
      const notes = isSigned ? [] : [`No key signs the mails of ${options.domain}`];
      notes.push(...spfNotes(records));
      return {
        text: [...checks.map(reportOf), ...notes].join("\n"),
        data: {
          domain: options.domain,
          signed: isSigned,
          ok: isSigned && records.spfTerms.length > 0 && checks.every(({ state }) => state === "ok"),
          records: checks.map(({ record, ...check }) => ({ ...record, ...check })),
        },
      };
    }),
  );

  withKey(program.command("domain:remove"))
    .description("delete a key; its record may go once the mails that it signed have arrived")
    .option("--force", "also the key that signs")
    .action((options: KeyOptions & { force?: boolean }) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "dkim_keys", options.key);
        const force = options.force === true;
        const key = await inTenant(session, tenant, (em) => removeKey(em, tenant, options.key, { force }));
        const keepUntil = keptUntil(key);
        const { name } = dkimRecord(key);
        const advice = keepUntil ? `Keep its record until ${keepUntil}` : "Delete its record";
        return {
          text: `${key.id} is removed. ${advice}: ${name}`,
          data: { key: { id: key.id, removed: true, record: name, keep_record_until: keepUntil } },
        };
      }),
    );
}

const keysOf = (session: Session, tenant: Tenant, { domain }: DomainOptions): Promise<SendingKey[]> =>
  inTenant(session, tenant, (em) => listKeys(em, tenant, domain));

const recordsFor = (session: Session, tenant: Tenant, domain: string, keys: SendingKey[]) =>
  inTenant(session, tenant, (em) => recordsOf(em, tenant, domain, keys, session.env.RETURN_PATH_DOMAIN));

/** Makes a key and shows the records to publish. */
async function make(
  session: Session,
  options: DomainOptions & { algorithm: DkimAlgorithm },
  isFirst: boolean,
): Promise<Outcome> {
  const { domain, algorithm } = options;
  const tenant = await tenantOf(session, options);
  const em = forTenant(session.orm.em, tenant);
  const key = await addKey(em, tenant, session.vault, { domain, algorithm, isFirst });
  const toPublish = await recordsFor(session, tenant, domain, [key]);
  const { records } = toPublish;
  const next = `Then: domain:activate --key ${key.id}; until then it signs nothing`;
  return {
    text: [`${key.id} of ${domain} waits. Publish:`, ...records.map(lineOf), ...spfNotes(toPublish), next].join("\n"),
    data: { key: dataOf(key), records },
  };
}

const spfNotes = ({ spfTerms }: DomainRecords): string[] =>
  spfTerms.length > 0
    ? []
    : ["No account sends from this domain yet: account:connect one, and domain:check shows its SPF record"];

const lineOf = (record: DnsRecord): string => `  ${record.purpose}: ${zoneLine(record)}`;

/** The state of a record, and the next step. */
const stateOf = ({ state, todo }: RecordCheck): string => (todo === undefined ? state : `${state}: ${todo}`);

function reportOf(check: RecordCheck): string {
  const { record, state, found, todo } = check;
  return [
    `${record.purpose} ${record.name}: ${state}`,
    ...(found.length > 0 ? found.map((text) => `  found     ${text}`) : ["  found     nothing"]),
    ...(state === "ok" ? [] : [`  expected  ${record.value}`]),
    ...(todo === undefined ? [] : [`  to do     ${todo}`]),
  ].join("\n");
}

/** Until when mails that a key signed may still be under way; null for one that never signed. */
function keptUntil({ activeSince, replacedAt }: SendingKey): string | null {
  if (activeSince === null) return null;
  return new Date((replacedAt?.getTime() ?? Date.now()) + UNDER_WAY_DAYS * DAY_MS).toISOString();
}

const dataOf = (key: SendingKey) => ({
  id: key.id,
  domain: key.domain,
  selector: key.selector,
  algorithm: key.algorithm,
  use: key.use,
  active_since: key.activeSince,
  record: dkimRecord(key).name,
  ...(key.use === "replaced" && { keep_record_until: keptUntil(key) }),
});

function listed(key: SendingKey): string {
  const until = key.use === "replaced" ? `; keep its record until ${keptUntil(key)}` : "";
  return `${key.id} ${key.algorithm} ${dkimRecord(key).name} is ${key.use}${until}`;
}

const shown = (keys: readonly SendingKey[]): Outcome => ({
  text: keys.map(listed).join("\n") || "There is none; domain:add makes one",
  data: { keys: keys.map(dataOf) },
});
