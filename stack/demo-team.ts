import type { Env } from "../config/env.ts";
import { kysely, openDatabase, type Tenant } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import { type KeyGrant, mintKey } from "../domain/access/keys.ts";
import { SCOPES, type Scope } from "../domain/access/scopes.ts";
import { connectAccount } from "../domain/accounts/accounts.ts";
import { createList } from "../domain/audience/lists.ts";
import { openAdmitted } from "../domain/secrets/admission.ts";
import { openVault } from "../domain/secrets/crypto.ts";
import { grantCredits } from "../domain/teams/credits.ts";
import { createTeam } from "../domain/teams/teams.ts";
import type { Demo } from "./state.ts";

/** The domain the demo team sends from; `.example` never resolves. */
export const DEMO_DOMAIN = "demo.example";
/** The address of the demo team's sending account. */
export const DEMO_FROM = `news@${DEMO_DOMAIN}`;

/** Mails a day and credits of the demo team: more than trying things out uses up. */
const PLENTY = 10_000_000;
const CONNECTIONS = 100;

const SENDS: readonly Scope[] = ["newsletters:send", "campaigns:send"];

/** Everything that may stand together with sending. */
const LIVE_SCOPES = SCOPES.filter((scope) => scope !== "suppressions:delete");
/** Lifts suppressions and looks around; sends nothing. */
const CLEANUP_SCOPES = SCOPES.filter((scope) => scope === "suppressions:delete" || scope.endsWith(":read"));

interface DemoOptions {
  env: Env;
  /** SMTP of the mail catcher. */
  mail: { host: string; port: number };
}

/**
 * Makes a team to try things with: keys of every kind, a sending account on the mail catcher, a list, and credits.
 * Each call makes another team; its keys cannot be shown again, so the caller stores them.
 */
export async function seedDemo({ env, mail }: DemoOptions): Promise<Demo> {
  const vault = openVault(env);
  const { orm, connect } = await openAdmitted(env, vault, { poolMax: 1 });
  try {
    await connect();
    return await transaction(orm.em, async (em) => {
      const { team, owner } = await createTeam(em, {
        name: "Demo",
        plan: "BUSINESS",
        timeZone: "UTC",
        owner: { email: `owner@${DEMO_DOMAIN}`, name: "Demo Owner" },
      });
      const live: Tenant = { teamId: team.id, environment: "LIVE" };
      const mint = async (name: string, scopes: Scope[], grant: Partial<KeyGrant> = {}) => {
        const whole: KeyGrant = {
          ...live,
          memberId: owner.id,
          name,
          scopes,
          sendDomains: scopes.some((scope) => SENDS.includes(scope)) ? [DEMO_DOMAIN] : [],
          dailySendCap: PLENTY,
          ...grant,
        };
        const { key } = await mintKey(em, vault, whole, env.MAX_API_KEYS);
        return key;
      };
      const keys = {
        live: await mint("demo", LIVE_SCOPES),
        test: await mint("demo test", LIVE_SCOPES, { environment: "TEST" }),
        cleanup: await mint("demo clean-up", CLEANUP_SCOPES),
      };
      for (const environment of ["LIVE", "TEST"] as const) {
        await grantCredits(em, { ...live, environment }, PLENTY, "demo");
      }
      em.setFilterParams("tenant", live);
      await createList(em, live, { name: "Demo list", description: null, optin: "SINGLE" }, env.MAX_LISTS);
      const account = {
        ...mail,
        ...({ provider: "SMTP_OTHER", security: "none", username: null, password: null } as const),
        ...{ email: DEMO_FROM, displayName: "Demo news", allowedDomains: [DEMO_DOMAIN] },
        ...{ maxConnections: CONNECTIONS, hourlyLimit: null, dailyLimit: null },
      };
      // The catcher takes every login, and the stack itself checks that it is up.
      await connectAccount(em, live, account, { vault, verify: async () => ({ ok: true }) });
      return { team: { id: team.id, owner: owner.id }, keys };
    });
  } finally {
    await orm.close(true);
  }
}

/** Points the demo team's sending account at a mail catcher that came up on another port than the last time. */
export async function pointDemoAccount(
  databaseUrl: string,
  teamId: string,
  mail: { host: string; port: number },
): Promise<void> {
  const orm = await openDatabase(databaseUrl, { poolMax: 1 });
  try {
    await kysely(orm.em.fork())
      .updateTable("email_accounts")
      .set(mail)
      .where("team_id", "=", teamId)
      .where("email", "=", DEMO_FROM)
      .execute();
  } finally {
    await orm.close(true);
  }
}
