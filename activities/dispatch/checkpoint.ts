import { isDeepStrictEqual } from "node:util";
import type { EntityManager } from "../../db/orm.ts";
import { type LaneContent, readContent } from "../../domain/sends/content.ts";
import { foldCounts } from "../../domain/sends/counts.ts";
import { type OpenedDispatch, readDue } from "../../domain/sends/lanes.ts";
import { pauseForComplaints } from "../../domain/sends/lifecycle.ts";
import { logMove } from "../../domain/sends/send-log.ts";
import type { AccountPool, AccountPools } from "../account-pools.ts";
import type { ActivityDeps } from "../deps.ts";
import type { CheckpointResult } from "./stager.ts";

/** A slice under way. */
interface SliceUnderWay {
  em: EntityManager;
  dispatch: OpenedDispatch;
  /** The content as it was when the slice began. */
  content: LaneContent;
  pool: AccountPool["pool"];
}

/**
 * Decides whether a slice mails on after DISPATCH_SLICE_ROWS recipients, while its connections stay busy. It looks at all
 * that a slice looks at when it begins, so that a slice that continues knows no less than one that follows it.
 */
export async function passCheckpoint(
  { env, log }: Pick<ActivityDeps, "env" | "log">,
  pools: AccountPools,
  { em, dispatch, content, pool }: SliceUnderWay,
): Promise<CheckpointResult> {
  const looks = [
    pauseForComplaints(em.fork(), dispatch),
    readContent(em.fork(), dispatch),
    keepsPool(pools, dispatch, pool),
    readDue(em.fork(), dispatch, env.DISPATCH_SLICE_ROWS),
    foldCounts(em.fork(), dispatch.sendId),
  ] as const;
  // Where one fails, the others are waited for: none may lease connections after its slice has ended.
  await Promise.allSettled(looks);
  const [paused, contentNow, hasPool, due] = await Promise.all(looks);
  for (const move of paused) logMove(log, move);
  // The next slice takes over what has changed.
  if (paused.length > 0 || !hasPool || !isDeepStrictEqual(contentNow, content)) return { continues: false };
  return { continues: true, due };
}

/** Leases the account's connections anew, in equal shares with other processes. @returns whether they are this pool's still */
async function keepsPool(pools: AccountPools, dispatch: OpenedDispatch, pool: AccountPool["pool"]): Promise<boolean> {
  const acquired = await pools.acquire(dispatch, {});
  if (!("pool" in acquired)) return false;
  await pools.release(dispatch.accountId, acquired);
  return acquired.pool === pool;
}
