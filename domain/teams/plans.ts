import type { Team } from "../../db/entities/team.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";

/** On any plan. Endpoints that the app makes are not counted. */
export const MAX_ENDPOINTS = 20;

const MAX_INTEGER = 2 ** 31 - 1;

interface PlanLimit {
  /** As `GET /usage` names it. */
  name: string;
  counts: string;
  min: number;
  max: number;
}

/** By the column of `teams` that holds the value; null there sets no limit. */
export const PLAN_LIMITS = {
  requestsPerMinute: {
    name: "api.requests_per_minute",
    counts: "requests of each API key and OAuth client in a minute",
    min: 1,
    max: MAX_INTEGER,
  },
  contactSlots: {
    name: "contacts.slots",
    counts: "distinct addresses of contacts and subscribers in each environment",
    min: 0,
    max: MAX_INTEGER,
  },
  webhookEndpoints: {
    name: "webhooks.endpoints",
    counts: "webhook endpoints in each environment",
    min: 0,
    max: MAX_ENDPOINTS,
  },
} as const satisfies Partial<Record<keyof Team, PlanLimit>>;

export type PlanLimitKey = keyof typeof PLAN_LIMITS;
export const PLAN_LIMIT_KEYS = Object.keys(PLAN_LIMITS) as PlanLimitKey[];
export type PlanLimits = Record<PlanLimitKey, number | null>;

export const readPlanLimits = (em: EntityManager, teamId: string): Promise<PlanLimits> =>
  kysely(em)
    .selectFrom("teams")
    .select([
      "requests_per_minute as requestsPerMinute",
      "contact_slots as contactSlots",
      "webhook_endpoints as webhookEndpoints",
    ])
    .where("id", "=", teamId)
    .executeTakeFirstOrThrow();

export const endpointLimit = ({ webhookEndpoints }: PlanLimits): number =>
  Math.min(MAX_ENDPOINTS, webhookEndpoints ?? MAX_ENDPOINTS);
