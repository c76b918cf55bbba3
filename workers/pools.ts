import type { Client } from "@temporalio/client";
import type { WorkerOptions } from "@temporalio/worker";
import type { Registry } from "prom-client";
import { createAccountCheckActivities } from "../activities/account-checks.ts";
import type { ActivityDeps } from "../activities/deps.ts";
import { createDispatchActivities } from "../activities/dispatch.ts";
import { createOrderedWorkActivities } from "../activities/ordered-work.ts";
import { createReconcileActivities } from "../activities/reconcile.ts";
import { createRetentionActivities } from "../activities/retention.ts";
import { createSendActivities } from "../activities/sends.ts";
import { createSequenceActivities } from "../activities/sequences.ts";
import type { Secret } from "../config/env.ts";
import { startExaminations } from "../domain/mail/examination.ts";
import { type PoolName, TASK_QUEUES } from "../temporal/ids.ts";
import { addDatabaseMetrics } from "./database-metrics.ts";
import { startMaintenance } from "./maintenance.ts";
import { startWebhooks } from "./webhooks.ts";

/** A pool polls one task queue, and may run loops besides. */
export interface PoolDefinition {
  /** A pool without one does not need Temporal. */
  taskQueue?: string;
  /** Secrets that its work needs: its processes get no others. */
  secrets: readonly Secret[];
  /** Runs workflows as well as activities. */
  workflows?: boolean;
  /** Activities at once, where they mostly wait for other servers. */
  activities?: number;
  /** How far its heap may grow between two full collections, in per cent of its size; by default as V8 estimates. */
  heapGrowthPercent?: number;
  /** Options of the SDK's worker. */
  options?: Pick<WorkerOptions, "maxConcurrentWorkflowTaskExecutions">;
  /** Metrics of this pool alone. */
  addMetrics?(registry: Registry, deps: ActivityDeps): void;
  /** @param registry gets the metrics of the pool */
  start(deps: ActivityDeps, registry: Registry): Running | Promise<Running>;
}

interface Running {
  activities?: Record<string, unknown>;
  /** Called once Postgres is reached; the process is ready when it resolves. */
  listen?(): Promise<void>;
  /** Called once the cluster is reached. */
  connected?(client: Client): void;
  close?(): Promise<void>;
}

/** Activities a worker runs at once unless its pool or a setting says otherwise. */
export const DEFAULT_ACTIVITIES = 10;

/** Slices mostly wait for relays; each team has a few of them at most. */
const DISPATCH_ACTIVITIES = 40;

/**
 * Messages in flight outlive collections of the young generation, and fill the old one. As V8 estimates, a send through a slow
 * server has two full collections per second, each of which keeps its connections waiting.
 */
const DISPATCH_HEAP_GROWTH_PERCENT = 150;

export const POOLS = {
  sends: {
    taskQueue: TASK_QUEUES.sends,
    secrets: [],
    workflows: true,
    start: (deps) => {
      startExaminations();
      return { activities: { ...createSendActivities(deps) } };
    },
  },
  dispatch: {
    taskQueue: TASK_QUEUES.dispatch,
    // Links in mails; passwords and tokens of sending accounts.
    secrets: ["SIGNING_SECRET", "ENCRYPTION_KEYS"],
    activities: DISPATCH_ACTIVITIES,
    heapGrowthPercent: DISPATCH_HEAP_GROWTH_PERCENT,
    start: (deps) => {
      startExaminations();
      const places = deps.env.ACTIVITY_CONCURRENCY ?? DISPATCH_ACTIVITIES;
      const { close, ...activities } = createDispatchActivities(deps, places);
      return { activities: { ...activities, ...createAccountCheckActivities(deps) }, close };
    },
  },
  webhooks: {
    taskQueue: TASK_QUEUES.webhooks,
    // Secrets and headers of endpoints.
    secrets: ["ENCRYPTION_KEYS"],
    workflows: true,
    // Runs of endpoints mostly wait for receivers.
    activities: 500,
    options: { maxConcurrentWorkflowTaskExecutions: 100 },
    start: startWebhooks,
  },
  maintenance: {
    taskQueue: TASK_QUEUES.maintenance,
    // Links in opt-in mails, the server that takes these mails, and the key under which addresses are hashed.
    secrets: ["SIGNING_SECRET", "SYSTEM_SMTP_URL", "ENCRYPTION_KEYS"],
    addMetrics: addDatabaseMetrics,
    start: (deps) => ({
      activities: {
        ...createReconcileActivities(deps),
        ...createRetentionActivities(deps),
        ...createOrderedWorkActivities(deps),
        ...createSequenceActivities(deps),
      },
      ...startMaintenance(deps),
    }),
  },
  intake: {
    // Return paths and links in returned mails.
    secrets: ["SIGNING_SECRET"],
    // Only the intake loads an SMTP server.
    start: async (deps, registry) => (await import("./intake.ts")).startIntake(deps, registry),
  },
} as const satisfies Record<PoolName, PoolDefinition>;

export const isPoolName = (value: unknown): value is PoolName =>
  typeof value === "string" && Object.hasOwn(POOLS, value);
