import { sql } from "kysely";
import type { Env } from "../../config/env.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";
import { KEY_SETTINGS, type KeySetting } from "./admission.ts";
import { countSealed, forgetDatabaseKeys } from "./sealed.ts";

const DAY_MS = 86_400_000;

export interface KeyState {
  setting: KeySetting;
  id: string;
  /** It signs or encrypts in this process. */
  isFirst: boolean;
  /** Null for one that is only accepted so far. */
  usedSince: Date | null;
  retiredAt: Date | null;
  /** Null for a signing secret. */
  sealedTexts: number | null;
  neededFor: string | null;
}

/** A signing secret is kept for as long as the links in mails work: `LEDGER_DAYS`. */
type Keys = Pick<Env, KeySetting | "LEDGER_DAYS">;

export async function readKeyStates(em: EntityManager, env: Keys): Promise<KeyState[]> {
  const rows = await kysely(em)
    .selectFrom("secret_fingerprints")
    .select(["setting", "key_id", "used_since", "retired_at"])
    .orderBy("created_at")
    .orderBy("key_id")
    .execute();
  const sealed = await countSealed(em);
  return KEY_SETTINGS.flatMap((setting) => {
    const keys = rows.filter((row) => row.setting === setting);
    const firstUses = keys.flatMap(({ used_since, retired_at }) =>
      used_since === null || retired_at !== null ? [] : [Date.parse(used_since)],
    );
    return keys.map(({ key_id: id, used_since, retired_at }): KeyState => {
      const usedSince = used_since === null ? null : new Date(used_since);
      const laterUses = usedSince ? firstUses.filter((at) => at > usedSince.getTime()) : [];
      const replacedAt = laterUses.length > 0 ? Math.min(...laterUses) : undefined;
      const key = {
        setting,
        id,
        isFirst: env[setting][0]?.[0] === id,
        usedSince,
        retiredAt: retired_at === null ? null : new Date(retired_at),
        sealedTexts: setting === "ENCRYPTION_KEYS" ? (sealed.get(id) ?? 0) : null,
      };
      return { ...key, neededFor: neededFor(key, replacedAt, env.LEDGER_DAYS) };
    });
  });
}

/** @param replacedAt when the next key was first used, in ms since 1970 */
function neededFor(
  { isFirst, usedSince, retiredAt, sealedTexts }: Omit<KeyState, "neededFor">,
  replacedAt: number | undefined,
  linkDays: number,
): string | null {
  if (isFirst) return sealedTexts === null ? "it signs" : "it encrypts";
  if (sealedTexts !== null) return sealedTexts > 0 ? `${sealedTexts} stored texts; secrets:reencrypt` : null;
  if (usedSince === null || retiredAt !== null) return null;
  if (replacedAt === undefined) return "it signs, in other processes";
  const until = replacedAt + linkDays * DAY_MS;
  return until > Date.now() ? `links in mails, until ${new Date(until).toISOString()}` : null;
}

export interface Retired {
  /** Hashes of API keys among others: the key that they need was sealed under the retired one. */
  hashesLost: boolean;
}

/**
 * Lets processes start without a key from now on, and none start with it in the first place.
 * @param force also while it is needed: for a key that has leaked or is lost
 * @throws {ApiError} `not_found`; `resource_state_invalid` for the first key of the settings, for one that is needed,
 * and, forced or not, for an encryption key of the settings that still opens texts
 */
export async function retireKey(
  em: EntityManager,
  env: Keys,
  { setting, id }: Pick<KeyState, "setting" | "id">,
  { force }: { force: boolean },
): Promise<Retired> {
  const key = (await readKeyStates(em, env)).find((each) => each.setting === setting && each.id === id);
  if (!key) throw new ApiError("not_found", `The database knows no key ${id} of ${setting}.`);
  if (key.isFirst || (key.neededFor !== null && !force)) {
    throw new ApiError("resource_state_invalid", `The key ${id} of ${setting} is needed: ${key.neededFor}.`);
  }
  const isLost = !env[setting].some(([given]) => given === id);
  if (key.sealedTexts && !isLost) {
    const remedy = "Run secrets:reencrypt first, or take the key out of this command's settings to lose them";
    throw new ApiError("resource_state_invalid", `The key ${id} of ${setting} opens stored texts. ${remedy}.`);
  }
  const lost = key.sealedTexts ? await forgetDatabaseKeys(em, id) : 0;
  await kysely(em)
    .updateTable("secret_fingerprints")
    .set({ retired_at: sql`now()` })
    .where("setting", "=", setting)
    .where("key_id", "=", id)
    .where("retired_at", "is", null)
    .execute();
  return { hashesLost: lost > 0 };
}
