import { domainToASCII } from "node:url";
import { z } from "zod";
import { domainsOfAccounts } from "../../../domain/access/session-key.ts";
import { checkRecords, refuseUnpublished } from "../../../domain/sending-domains/check.ts";
import {
  activateKey,
  addKey,
  keptUntil,
  listKeys,
  readKey,
  removeKey,
  type SendingKey,
} from "../../../domain/sending-domains/keys.ts";
import { dkimRecord, recordsOf } from "../../../domain/sending-domains/records.ts";
import { openLookup } from "../../../lib/dns.ts";
import type { RequestContext } from "../../context.ts";
import { router } from "../../rest/route.ts";
import { consoleMutation, consoleQuery, noInput } from "../procedure.ts";
import { withLookups } from "./checks.ts";
import { domainBody, keyParams, newKeyBody } from "./schema.ts";

const presentKey = (key: SendingKey) => ({
  id: key.id,
  domain: key.domain,
  algorithm: key.algorithm,
  use: key.use,
  active_since: key.activeSince?.toISOString() ?? null,
  record_name: dkimRecord(key).name,
  keep_record_until: key.use === "waiting" ? null : keptUntil(key),
});

/** Those of the return path are the operator's to publish. */
const recordsOfDomain = ({ em, tenant }: RequestContext, domain: string, keys: SendingKey[]) =>
  recordsOf(em, tenant, domain, keys, undefined);

/** Sending domains: the keys that sign their mails, and their records in DNS. */
export const domainsRouter = router({
  list: consoleQuery({ role: "VIEWER", input: noInput }, async ({ ctx }) => {
    const { em, tenant } = ctx;
    const byDomain = Map.groupBy(await listKeys(em, tenant), ({ domain }) => domain);
    const domains = [];
    for (const [domain, keys] of byDomain) {
      const { records } = await recordsOfDomain(ctx, domain, keys);
      domains.push({ domain, keys: keys.map(presentKey), records });
    }
    const ofAccounts = (await domainsOfAccounts(em, tenant)).map(domainToASCII);
    return { domains, unsigned: ofAccounts.filter((domain) => !byDomain.has(domain)) };
  }),

  /** A write in name alone, so that no read of the team waits for DNS. */
  check: consoleMutation(
    { role: "VIEWER", input: z.strictObject({ body: domainBody }), ownCommit: true },
    async ({ ctx, input: { body } }) => {
      const keys = await listKeys(ctx.em, ctx.tenant, body.domain);
      const records = await recordsOfDomain(ctx, body.domain, keys);
      const checks = await withLookups(ctx, () => checkRecords(openLookup(), records));
      return checks.map(({ record, state, found, todo }) => ({
        ...{ purpose: record.purpose, name: record.name, state, found },
        todo: (state !== "ok" && todo) || null,
      }));
    },
  ),

  /** Outside a transaction: a key takes a while to make. */
  addKey: consoleMutation(
    { role: "ADMIN", input: z.strictObject({ body: newKeyBody }), ownCommit: true },
    async ({ ctx, input: { body } }) =>
      presentKey(
        await addKey(ctx.em, ctx.tenant, ctx.vault, {
          ...{ domain: body.domain, algorithm: body.algorithm, isFirst: body.is_first },
        }),
      ),
  ),

  /** Lets a key sign, once its record is found in DNS. */
  activate: consoleMutation(
    {
      role: "ADMIN",
      input: z.strictObject({ params: keyParams, body: z.strictObject({ unchecked: z.boolean().default(false) }) }),
      ownCommit: true,
    },
    async ({ ctx, input: { params, body } }) => {
      const key = await readKey(ctx.em, ctx.tenant, params.keyId);
      if (!body.unchecked) await withLookups(ctx, () => refuseUnpublished(openLookup(), key));
      return presentKey(await activateKey(ctx.em, ctx.tenant, key.id));
    },
  ),

  remove: consoleMutation(
    {
      role: "ADMIN",
      input: z.strictObject({ params: keyParams, body: z.strictObject({ force: z.boolean().default(false) }) }),
    },
    async ({ ctx, input: { params, body } }) => presentKey(await removeKey(ctx.em, ctx.tenant, params.keyId, body)),
  ),
});
