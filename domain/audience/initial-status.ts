import { type RawBuilder, sql } from "kysely";
import type { Optin, SubscriptionStatus } from "../../db/entities/audience.ts";
import type { Environment } from "../../db/entities/shared.ts";

/** The columns of a subscription that say whether it is confirmed. */
interface StatusColumns {
  status: SubscriptionStatus;
  confirmed_at: RawBuilder<string> | null;
  confirmation_due_at: RawBuilder<string> | null;
  confirmation_withheld: null;
}

const NOW = sql<string>`now()`;

/**
 * How a subscription starts: CONFIRMED by SINGLE opt-in, PENDING by DOUBLE with a confirmation mail due. The test
 * environment never mails, so nothing becomes due there.
 */
export function initialStatus(optin: Optin, environment: Environment): StatusColumns {
  return optin === "SINGLE" ? CONFIRMED : pending(environment);
}

/** The columns of a subscription whose person has opted in. */
export const CONFIRMED: StatusColumns = {
  status: "CONFIRMED",
  confirmed_at: NOW,
  confirmation_due_at: null,
  confirmation_withheld: null,
};

/** The columns of a subscription whose person has still to follow the link of a confirmation mail. */
export const pending = (environment: Environment): StatusColumns => ({
  status: "PENDING",
  confirmed_at: null,
  confirmation_due_at: environment === "LIVE" ? NOW : null,
  confirmation_withheld: null,
});
