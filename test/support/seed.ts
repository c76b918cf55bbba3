import { randomInt } from "node:crypto";

/** The test's title shows it; to repeat a run: `SEED=123 npm test -- FILE`. */
export const SEED = Number(process.env["SEED"] ?? randomInt(1_000_000));
