import { SECRETS, type Secret } from "../../config/env.ts";
import { POOLS, type PoolDefinition } from "../../workers/pools.ts";

/** Secrets that the work of each process needs. */
export const NEEDED: Record<string, readonly string[]> = {
  api: ["SIGNING_SECRET", "ENCRYPTION_KEYS"],
  prepare: ["MIGRATION_DATABASE_URL"],
  ...Object.fromEntries(Object.entries<PoolDefinition>(POOLS).map(([pool, { secrets }]) => [pool, secrets])),
};

export const unneeded = (name: string): Secret[] => SECRETS.filter((secret) => !NEEDED[name]?.includes(secret));
