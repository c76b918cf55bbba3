import { type ReplayProgress, replayPage } from "../../domain/webhooks/bulk-replay.ts";
import type { ActivityDeps } from "../deps.ts";

export interface ReplayActivities {
  /** Queues the next deliveries of a bulk replay. */
  replayNext(replayId: string): Promise<ReplayProgress>;
}

export function createReplayActivities({ orm }: Pick<ActivityDeps, "orm">): ReplayActivities {
  return { replayNext: (replayId) => replayPage(orm.em.fork(), replayId) };
}
