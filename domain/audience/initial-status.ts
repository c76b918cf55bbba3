import { type RawBuilder, sql } from "kysely";
import type { Optin, SubscriptionStatus } from "../../db/entities/audience.ts";
import type { Environment } from "../../db/entities/shared.ts";

interface StatusColumns {
  status: SubscriptionStatus;
  confirmed_at: RawBuilder<string> | null;
  confirmation_due_at: RawBuilder<string> | null;
  confirmation_withheld: null;
}

const NOW = sql<string>`now()`;

/** The test environment never mails, so nothing becomes due there. */
export function initialStatus(optin: Optin, environment: Environment): StatusColumns {
  return optin === "SINGLE" ? CONFIRMED : pending(environment);
}

export const CONFIRMED: StatusColumns = {
  status: "CONFIRMED",
  confirmed_at: NOW,
  confirmation_due_at: null,
  confirmation_withheld: null,
};

export const pending = (environment: Environment): StatusColumns => ({
  status: "PENDING",
  confirmed_at: null,
  confirmation_due_at: environment === "LIVE" ? NOW : null,
  confirmation_withheld: null,
});
