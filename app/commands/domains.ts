import { forTenant, type Tenant } from "../../db/orm.ts";
import { DKIM_ALGORITHMS } from "../../domain/mail/dkim.ts";
import { checkRecords, type RecordCheck, refuseUnpublished } from "../../domain/sending-domains/check.ts";
import {
  activateKey,
  addKey,
  keptUntil,
  listKeys,
  readKey,
  removeKey,
  type SendingKey,
} from "../../domain/sending-domains/keys.ts";
import { type DomainRecords, dkimRecord, recordsOf, zoneLine } from "../../domain/sending-domains/records.ts";
import { openLookup } from "../../lib/dns.ts";
import { type AppCommand, type Commands, command, flag, OF_TENANT, option, required } from "../command.ts";
import { asciiDomain, oneOf } from "../options.ts";
import { table } from "../output.ts";
import { inTenant, inTenantOf, type Outcome, ownerOf, type Session, tenantOf } from "../session.ts";

const DOMAIN = { ...OF_TENANT, domain: required("<name>", "the domain that mails are sent from", asciiDomain) };
const KEY = { key: required("<id>", "the key") };
const DNS = {
  dnsServer: option("<address>", "DNS server to ask, with or without a port; the machine's own unless given"),
};
const lookupOf = (dnsServer: string | undefined) => openLookup(dnsServer === undefined ? [] : [dnsServer]);

/** Makes a key and shows the records to publish. */
const making = (description: string, isFirst: boolean): AppCommand =>
  command(
    description,
    {
      ...DOMAIN,
      algorithm: option(
        "<name>",
        `${DKIM_ALGORITHMS.join(" or ")}; not every mailbox provider verifies ed25519`,
        oneOf(DKIM_ALGORITHMS),
        "rsa",
      ),
    },
    async (session, { domain, algorithm, ...options }) => {
      const tenant = await tenantOf(session, options);
      const em = forTenant(session.orm.em, tenant);
      const key = await addKey(em, tenant, session.vault, { domain, algorithm, isFirst });
      const toPublish = await recordsFor(session, tenant, domain, [key]);
      const lines = toPublish.records.map((record) => `  ${record.purpose}: ${zoneLine(record)}`);
      const next = `Then: domain:activate --key ${key.id}; until then it signs nothing`;
      return {
        text: [`${key.id} of ${domain} waits. Publish:`, ...lines, ...spfNotes(toPublish), next].join("\n"),
        data: { key: dataOf(key), records: toPublish.records },
      };
    },
  );

/** Sending domains: the keys that sign their mails, and their records in DNS. */
export const commands: Commands = {
  "domain:add": making("make the first key that signs a domain's mails, and show the DNS records to publish", true),
  "domain:rotate": making("make the next key of a domain; the one before it signs until this one is activated", false),

  "domain:activate": command(
    "let a key sign, once its record is found in DNS",
    { ...KEY, ...DNS, unchecked: flag("do not look its record up") },
    async (session, { key: id, dnsServer, unchecked }) => {
      const tenant = await ownerOf(session, "dkim_keys", id);
      if (!unchecked) {
        const key = await inTenant(session, tenant, (em) => readKey(em, tenant, id));
        await refuseUnpublished(lookupOf(dnsServer), key);
      }
      return shown([await inTenant(session, tenant, (em) => activateKey(em, tenant, id))]);
    },
  ),

  "domain:list": command("list the keys of a team's domains", OF_TENANT, async (session, options) =>
    shown(await inTenantOf(session, options, (em, tenant) => listKeys(em, tenant))),
  ),

  "domain:check": command(
    "look up the DNS records of a domain: DKIM, SPF, DMARC and the return path",
    { ...DOMAIN, ...DNS },
    async (session, { domain, dnsServer, ...options }) => {
      const tenant = await tenantOf(session, options);
      const keys = await inTenant(session, tenant, (em) => listKeys(em, tenant, domain));
      const records = await recordsFor(session, tenant, domain, keys);
      const checks = await checkRecords(lookupOf(dnsServer), records);
      const isSigned = records.keys.some(({ use }) => use === "signing");
      const notes = isSigned ? [] : [`No key signs the mails of ${domain}`];
      return {
        text: [...checks.map(reportOf), ...notes, ...spfNotes(records)].join("\n"),
        data: {
          domain,
          signed: isSigned,
          ok: isSigned && records.spfTerms.length > 0 && checks.every(({ state }) => state === "ok"),
          records: checks.map(({ record, ...check }) => ({ ...record, ...check })),
        },
      };
    },
  ),

  "domain:remove": command(
    "delete a key; its record may go once the mails that it signed have arrived",
    { ...KEY, force: flag("also the key that signs") },
    async (session, { key: id, force }) => {
      const tenant = await ownerOf(session, "dkim_keys", id);
      const key = await inTenant(session, tenant, (em) => removeKey(em, tenant, id, { force }));
      const keepUntil = keptUntil(key);
      const { name } = dkimRecord(key);
      const advice = keepUntil ? `Keep its record until ${keepUntil}` : "Delete its record";
      return {
        text: `${id} is removed. ${advice}: ${name}`,
        data: { key: { id, removed: true, record: name, keep_record_until: keepUntil } },
      };
    },
  ),
};

const recordsFor = (session: Session, tenant: Tenant, domain: string, keys: SendingKey[]) =>
  inTenant(session, tenant, (em) => recordsOf(em, tenant, domain, keys, session.env.RETURN_PATH_DOMAIN));

const spfNotes = ({ spfTerms }: DomainRecords): string[] =>
  spfTerms.length > 0
    ? []
    : ["No account sends from this domain yet: account:connect one, and domain:check shows its SPF record"];

function reportOf(check: RecordCheck): string {
  const { record, state, found, todo } = check;
  return [
    `${record.purpose} ${record.name}: ${state}`,
    ...(found.length > 0 ? found.map((text) => `  found     ${text}`) : ["  found     nothing"]),
    ...(state === "ok" ? [] : [`  expected  ${record.value}`]),
    ...(todo === undefined ? [] : [`  to do     ${todo}`]),
  ].join("\n");
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

const shown = (keys: readonly SendingKey[]): Outcome => ({
  text: table(keys, "There is none; domain:add makes one", {
    KEY: ({ id }) => id,
    ALGORITHM: ({ algorithm }) => algorithm,
    RECORD: (key) => dkimRecord(key).name,
    USE: ({ use }) => use,
    "KEEP RECORD UNTIL": (key) => (key.use === "replaced" ? keptUntil(key) : null),
  }),
  data: { keys: keys.map(dataOf) },
});
