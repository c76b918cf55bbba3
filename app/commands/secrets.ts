import { KEY_SETTINGS } from "../../domain/secrets/admission.ts";
import { type KeyState, readKeyStates, retireKey } from "../../domain/secrets/key-rotation.ts";
import { reencrypt } from "../../domain/secrets/sealed.ts";
import { argument, type Commands, command, flag } from "../command.ts";
import { oneOf } from "../options.ts";
import { toJson } from "../output.ts";
import type { Outcome } from "../session.ts";

/** SIGNING_SECRET and ENCRYPTION_KEYS: which keys are in use, and how an old one goes. */
export const commands: Commands = {
  "secrets:status": command(
    "list the keys that the database knows, and say which of them may go",
    {},
    async ({ orm, env }) => shown(await readKeyStates(orm.em.fork(), env)),
  ),

  "secrets:reencrypt": command(
    "seal under the first key of ENCRYPTION_KEYS what is sealed under others, and say which of them may go",
    {},
    async ({ orm, env, vault }) => {
      const em = orm.em.fork();
      const [[current] = [""]] = env.ENCRYPTION_KEYS;
      const { reencrypted, unreadable } = await reencrypt(em, vault, current);
      const { text, data } = shown(await readKeyStates(em, env));
      const lines = [`${reencrypted} texts are now sealed under ${current}`];
      if (unreadable.length > 0) lines.push(`${unreadable.length} texts cannot be opened:`, ...unreadable);
      return { text: [...lines, text].join("\n"), data: { ...data, reencrypted, unreadable } };
    },
  ),

  "secrets:retire": {
    // A key that is lost is missing here too.
    isAdmitted: false,
    ...command(
      "end a key for good: processes start without it, and none with it in the first place",
      {
        setting: argument(KEY_SETTINGS.join(" or "), oneOf(KEY_SETTINGS)),
        id: argument("the key's id"),
        force: flag("also while it is needed: for a key that has leaked or is lost"),
      },
      async ({ orm, env }, { setting, id, force }) => {
        const { hashesLost } = await retireKey(orm.em.fork(), env, { setting, id }, { force });
        const lines = [`Take ${id} out of ${setting} of every process.`];
        if (hashesLost)
          lines.push("API keys, Idempotency-Keys and erased addresses are no longer recognised: mint new API keys.");
        return { text: lines.join("\n"), data: { retired: { setting, id, hashes_lost: hashesLost } } };
      },
    ),
  },
};

const shown = (keys: KeyState[]): Outcome => ({
  text: keys.map((key) => `${key.setting} ${key.id}: ${stateOf(key)}`).join("\n"),
  data: {
    keys: keys.map(({ isFirst: first, ...key }) => toJson({ first, ...key })),
  },
});

function stateOf({ isFirst, usedSince, retiredAt, neededFor }: KeyState): string {
  if (retiredAt !== null) {
    return `retired: take it out of every process${neededFor === null ? "" : `; first: ${neededFor}`}`;
  }
  if (neededFor !== null) return isFirst ? neededFor : `needed for ${neededFor}`;
  return usedSince === null ? "accepted, and not used yet" : "may go: secrets:retire";
}
