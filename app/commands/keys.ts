import type { Command } from "commander";
import { Member } from "../../db/entities/team.ts";
import type { EntityManager } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import {
  DEFAULT_DAILY_SEND_CAP,
  type KeyGrant,
  type MintedKey,
  mintKey,
  presentKeyId,
  revokeKey,
  rotateKey,
} from "../../domain/access/keys.ts";
import { SCOPES } from "../../domain/access/scopes.ts";
import { ApiError } from "../../domain/errors.ts";
import { domains, futureInstant, recordName, wholeNumber, withTeam, withTenant, words } from "../options.ts";
import { type Outcome, type Run, type TeamOption, type TenantOptions, teamOf, tenantOf } from "../session.ts";

interface MintOptions extends TenantOptions {
  name: string;
  member?: string;
  scopes: string[];
  sendDomains: string[];
  dailyCap: number;
  requiresApproval?: boolean;
  expires?: Date;
}

/** API keys. */
export function keyCommands(program: Command, run: Run): void {
  withTenant(program.command("key:mint"))
    .description("mint an API key; it is shown this once")
    .requiredOption("--name <name>", "the purpose of the key", recordName)
    .requiredOption("--scopes <scopes>", `comma-separated, of: ${SCOPES.join(", ")}`, words)
    .option("--member <id>", "the member it acts for; the team's first owner unless given")
    .option(
      "--send-domains <domains>",
      "comma-separated domains it may send from; none means it cannot send",
      domains,
      [],
    )
    .option("--daily-cap <mails>", "mails it may send a UTC day", wholeNumber(0), DEFAULT_DAILY_SEND_CAP)
    .option("--requires-approval", "every send by this key needs an approval")
    .option("--expires <instant>", "when it stops working, ISO 8601", futureInstant)
    .action((options: MintOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        const minted = await transaction(session.orm.em, async (em) => {
          const grant: KeyGrant = {
            ...tenant,
            memberId: options.member ?? (await firstOwner(em, tenant.teamId)),
            name: options.name,
            scopes: options.scopes,
            sendDomains: options.sendDomains,
            dailySendCap: options.dailyCap,
            requiresApproval: options.requiresApproval ?? false,
            expiresAt: options.expires ?? null,
          };
          return mintKey(em, session.vault, grant, session.env.MAX_API_KEYS);
        });
        return shown(minted);
      }),
    );

  withTeam(program.command("key:rotate"))
    .description("replace a key by a new one with the same rights and the same daily count")
    .requiredOption("--key <id>", "the key's id, or its visible part mk_live_…")
    .option("--grace-hours <hours>", "how long the old key still works", wholeNumber(0, 24 * 365), 0)
    .action(({ key, graceHours, ...options }: TeamOption & { key: string; graceHours: number }) =>
      run(async (session) => {
        const teamId = await teamOf(session, options);
        const { orm, vault, env } = session;
        return shown(await rotateKey(orm.em.fork(), vault, { teamId, key }, env.MAX_API_KEYS, graceHours));
      }),
    );

  withTeam(program.command("key:revoke"))
    .description("revoke a key for good")
    .requiredOption("--key <id>", "the key's id, or its visible part mk_live_…")
    .action(({ key, ...options }: TeamOption & { key: string }) =>
      run(async (session) => {
        const teamId = await teamOf(session, options);
        await revokeKey(session.orm.em.fork(), { teamId, key });
        return { text: `Key ${key} is revoked`, data: { key: { id: key, revoked: true } } };
      }),
    );
}

async function firstOwner(em: EntityManager, teamId: string): Promise<string> {
  const owner = await em.findOne(Member, { teamId, role: "OWNER", removedAt: null }, { orderBy: { id: "asc" } });
  if (!owner) throw new ApiError("not_found", "The team has no owner; name a member with --member.");
  return owner.id;
}

function shown({ key, record }: MintedKey): Outcome {
  return {
    text: `${key}\nKey ${record.id}. Keep it: it is not shown again.`,
    data: {
      key: {
        id: record.id,
        key_id: presentKeyId(record.environment, record.publicId),
        secret: key,
        scopes: record.grantedScopes,
        send_domains: record.sendDomains,
        daily_send_cap: record.dailySendCap,
        requires_approval: record.requiresApproval,
        expires_at: record.expiresAt?.toISOString() ?? null,
      },
    },
  };
}
