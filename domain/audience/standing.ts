import { type RawBuilder, sql } from "kysely";
import type { Optin, SubscriptionStatus } from "../../db/entities/audience.ts";
import type { Environment } from "../../db/entities/shared.ts";

interface Standing {
  status: SubscriptionStatus;
  confirmed_at: RawBuilder<string> | null;
  confirmation_due_at: RawBuilder<string> | null;
}

const now = sql<string>`now()`;

/**
 * How a subscription starts: CONFIRMED by SINGLE opt-in, PENDING by DOUBLE with a confirmation mail due. The test
 * environment never mails, so nothing becomes due there.
 */
export function initialStanding(optin: Optin, environment: Environment): Standing {
  return optin === "SINGLE" ? confirmedStanding : pendingStanding(environment);
}

/** Opted in. */
export const confirmedStanding: Standing = { status: "CONFIRMED", confirmed_at: now, confirmation_due_at: null };

/** Waits for the link of a confirmation mail. */
export const pendingStanding = (environment: Environment): Standing => ({
  status: "PENDING",
  confirmed_at: null,
  confirmation_due_at: environment === "LIVE" ? now : null,
});
