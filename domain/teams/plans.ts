import type { Plan, Team } from "../../db/entities/team.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { changesOf, type Patch } from "../patch.ts";
import { lockTeam } from "./teams.ts";

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

/** A limit below what is in use deletes nothing. @throws {ApiError} `not_found` */
export async function setPlan(
  em: EntityManager,
  teamId: string,
  patch: Patch<PlanLimits & { plan: Plan }>,
): Promise<Team> {
  const team = await lockTeam(em, teamId);
  em.assign(team, changesOf(patch));
  await em.flush();
  return team;
}

export async function readPlanLimits(em: EntityManager, teamId: string): Promise<PlanLimits> {
  const row = await kysely(em)
    .selectFrom("teams")
    .select(["requests_per_minute", "contact_slots", "webhook_endpoints"])
    .where("id", "=", teamId)
    .executeTakeFirstOrThrow();
  return {
    requestsPerMinute: row.requests_per_minute,
    contactSlots: row.contact_slots,
    webhookEndpoints: row.webhook_endpoints,
  };
}

export const endpointLimit = ({ webhookEndpoints }: PlanLimits): number =>
  Math.min(MAX_ENDPOINTS, webhookEndpoints ?? MAX_ENDPOINTS);
