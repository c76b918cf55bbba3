/**
 * `npm run prepare:cluster`: makes a Postgres and a Temporal cluster of your own ready for this version. Migrates the
 * database, creates the namespace and its search attributes where they are missing. Safe to run again, and on every
 * rollout.
 */

import { givenVariables, readEnv } from "../config/env.ts";
import { migrate } from "../db/orm.ts";
import { prepareNamespace } from "./temporal.ts";
import { explain } from "./terminal.ts";

try {
  const env = readEnv();
  await migrate(env.DATABASE_URL);
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
