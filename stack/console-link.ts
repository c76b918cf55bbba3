import { readEnv } from "../config/env.ts";
import { openDatabase } from "../db/orm.ts";
import { makeLink, signInUrl } from "../domain/access/sessions.ts";
import { openVault } from "../domain/secrets/crypto.ts";
import type { StackFile } from "./state.ts";

/** A link by which the owner of the demo team signs in to the console. */
export async function signInLink({ database, settings, team }: StackFile): Promise<string> {
  const env = readEnv(settings, ["SYSTEM_SMTP_URL"]);
  const orm = await openDatabase(database, { poolMax: 1 });
  try {
    return signInUrl(openVault(env), env.PUBLIC_URL, await makeLink(orm.em.fork(), team.owner));
  } finally {
    await orm.close(true);
  }
}
