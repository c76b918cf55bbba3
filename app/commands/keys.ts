import { ApiKey, Member } from "../../db/entities/team.ts";
import type { EntityManager } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import {
  DEFAULT_DAILY_SEND_CAP,
  keyState,
  type MintedKey,
  mintKey,
  presentKeyId,
  revokeKey,
  rotateKey,
} from "../../domain/access/keys.ts";
import { SCOPES } from "../../domain/access/scopes.ts";
import { ApiError } from "../../domain/errors.ts";
import { type Commands, command, flag, LIMIT, OF_TEAM, OF_TENANT, option, required } from "../command.ts";
import { domains, futureInstant, recordName, wholeNumber, words } from "../options.ts";
import { table } from "../output.ts";
import { type Outcome, teamOf, tenantOf } from "../session.ts";

const KEY = { ...OF_TEAM, key: required("<id>", "the key's id, or its visible part mk_live_…") };

/** API keys. */
export const commands: Commands = {
  "key:mint": command(
    "mint an API key; it is shown this once",
    {
      ...OF_TENANT,
      name: required("<name>", "the purpose of the key", recordName),
      scopes: required("<scopes>", `comma-separated, of: ${SCOPES.join(", ")}`, words),
      member: option("<id>", "the member it acts for; the team's first owner unless given"),
      sendDomains: option(
        "<domains>",
        "comma-separated domains it may send from; none means it cannot send",
        domains,
        [],
      ),
      dailyCap: option("<mails>", "mails it may send a UTC day", wholeNumber(0), DEFAULT_DAILY_SEND_CAP),
      forList: option("<id>", "a list that each newsletter of the key targets from the start"),
      requiresApproval: flag("every send by this key needs an approval"),
      expires: option("<instant>", "when it stops working, ISO 8601", futureInstant),
    },
    async (session, { team, environment, member, ...options }) => {
      const { dailyCap: dailySendCap, forList: forListId = null, expires: expiresAt = null, ...grant } = options;
      const tenant = await tenantOf(session, { team, environment });
      const minted = await transaction(session.orm.em, async (em) => {
        const memberId = member ?? (await firstOwner(em, tenant.teamId));
        const whole = { ...tenant, ...grant, memberId, dailySendCap, forListId, expiresAt };
        return mintKey(em, session.vault, whole, session.env.MAX_API_KEYS);
      });
      return shown(minted);
    },
  ),

  "key:list": command(
    "list the keys of a team in both environments, the newest first; no key is shown again",
    { ...OF_TEAM, ...LIMIT },
    async (session, { limit, ...options }) => {
      const teamId = await teamOf(session, options);
      const keys = await session.orm.em.fork().find(ApiKey, { teamId }, { orderBy: { id: "desc" }, limit });
      return {
        text: table(keys, "No key", {
          KEY: ({ id }) => id,
          "VISIBLE PART": ({ environment, publicId }) => presentKeyId(environment, publicId),
          NAME: ({ name }) => name,
          MEMBER: ({ memberId }) => memberId,
          STATE: keyState,
          EXPIRES: ({ expiresAt }) => expiresAt ?? null,
          "FOR LIST": ({ forListId }) => forListId ?? null,
          SCOPES: ({ grantedScopes }) => grantedScopes.join(","),
        }),
        data: {
          team: teamId,
          keys: keys.map((key) => ({
            ...recordOf(key),
            ...{ name: key.name, member: key.memberId, state: keyState(key), created_at: key.createdAt },
          })),
        },
      };
    },
  ),

  "key:rotate": command(
    "replace a key by a new one with the same rights and the same daily count",
    { ...KEY, graceHours: option("<hours>", "how long the old key still works", wholeNumber(0, 24 * 365), 0) },
    async (session, { key, graceHours, ...options }) => {
      const teamId = await teamOf(session, options);
      const { orm, vault, env } = session;
      return shown(await rotateKey(orm.em.fork(), vault, { teamId, key }, env.MAX_API_KEYS, graceHours));
    },
  ),

  "key:revoke": command("revoke a key for good", KEY, async (session, { key, ...options }) => {
    await revokeKey(session.orm.em.fork(), { teamId: await teamOf(session, options), key });
    return { text: `Key ${key} is revoked`, data: { key: { id: key, revoked: true } } };
  }),
};

async function firstOwner(em: EntityManager, teamId: string): Promise<string> {
  const owner = await em.findOne(Member, { teamId, role: "OWNER", removedAt: null }, { orderBy: { id: "asc" } });
  if (!owner) throw new ApiError("not_found", "The team has no owner; name a member with --member.");
  return owner.id;
}

/** Without the key itself. */
const recordOf = (record: ApiKey) => ({
  id: record.id,
  key_id: presentKeyId(record.environment, record.publicId),
  scopes: record.grantedScopes,
  send_domains: record.sendDomains,
  daily_send_cap: record.dailySendCap,
  requires_approval: record.requiresApproval,
  for_list: record.forListId ?? null,
  expires_at: record.expiresAt?.toISOString() ?? null,
});

function shown({ key, record }: MintedKey): Outcome {
  return {
    text: `${key}\nKey ${record.id}. Keep it: it is not shown again.`,
    data: { key: { ...recordOf(record), secret: key } },
  };
}
