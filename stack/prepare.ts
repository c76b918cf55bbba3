/**
 * `npm run prepare:cluster`: makes a Postgres and a Temporal cluster of your own ready for this version. Migrates the
 * database, makes the application's role where it is missing and grants its rights, creates the namespace and its search
 * attributes where they are missing. Safe to run again, and on every rollout.
 */

import { givenVariables, readEnv, SECRETS, SettingsError } from "../config/env.ts";
import { migrate } from "../db/orm.ts";
import { isUnreachable } from "../db/unreachable.ts";
import { databaseRefusal } from "./infra.ts";
import { prepareNamespace } from "./temporal.ts";
import { explain } from "./terminal.ts";

try {
  // It signs and seals nothing, and makes no link.
  const env = readEnv({ PUBLIC_URL: "http://127.0.0.1", ...givenVariables(process.env) }, SECRETS);
  if (env.MIGRATION_DATABASE_URL === undefined) {
    throw new SettingsError("MIGRATION_DATABASE_URL is not set: the database with the role that owns it.");
  }
  const { MIGRATION_DATABASE_URL: ownerUrl } = env;
  await migrate(ownerUrl, env.DATABASE_URL).catch((error) => {
    throw isUnreachable(error) ? databaseRefusal(ownerUrl, error) : error;
  });
  console.log("The database schema is up to date.");
  await prepareNamespace({
    env: givenVariables(process.env),
    namespace: env.TEMPORAL_NAMESPACE,
    embedded: false,
    create: true,
  });
  console.log(`The namespace ${env.TEMPORAL_NAMESPACE} is ready.`);
} catch (error) {
  console.error(explain(error));
  process.exitCode = 1;
}
