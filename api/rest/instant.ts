import { z } from "zod";

const LAST = Date.parse("9999-12-31T23:59:59.999Z");

/**
 * A date-time with a zone, as milliseconds since 1970. No record is older, and a later one, the last hours of year 9999 west of UTC,
 * would have a year that Postgres does not read.
 */
export const instant = z.iso
  .datetime({ offset: true })
  .transform((text) => Math.min(Math.max(Date.parse(text), 0), LAST));
