import { randomInt } from "node:crypto";

/**
 * Seed of a test's random choices. The test's title shows it; to repeat a run, set it:
 * `SEED=123 npm test -- FILE`.
 */
export const SEED = Number(process.env["SEED"] ?? randomInt(1_000_000));
