import { isDeepStrictEqual } from "node:util";
import type { EntityManager } from "../../db/orm.ts";
import { type LaneContent, readContent } from "../../domain/sends/content.ts";
import { foldCounts } from "../../domain/sends/counts.ts";
import { type OpenedDispatch, readDue } from "../../domain/sends/lanes.ts";
import { pauseForComplaints } from "../../domain/sends/lifecycle.ts";
import { logMove } from "../../domain/sends/send-log.ts";
import type { AccountPool, AccountPools } from "../account-pools.ts";
import type { ActivityDeps } from "../deps.ts";

/**
 * Looks at all that a slice looks at when it begins, so that a slice that continues knows no less than one that follows it.
 * @param slice `content` as it was when the slice began
 * @returns deferred rows that are due; undefined when the next slice has to take over what has changed
 */
export async function passCheckpoint(
  { env, log }: Pick<ActivityDeps, "env" | "log">,
  pools: AccountPools,
  slice: { em: EntityManager; dispatch: OpenedDispatch; content: LaneContent; pool: AccountPool["pool"] },
): Promise<readonly number[] | undefined> {
  const { dispatch, content, pool } = slice;
  const em = slice.em.fork();
  const paused = await pauseForComplaints(em, dispatch);
  for (const move of paused) logMove(log, move);
  if (paused.length > 0 || !isDeepStrictEqual(await readContent(em, dispatch), content)) return undefined;
  // Its connections, in equal shares with other processes by now.
  const acquired = await pools.acquire(dispatch, {});
  if (!("pool" in acquired)) return undefined;
  await pools.release(dispatch.accountId, acquired);
  if (acquired.pool !== pool) return undefined;
  await foldCounts(em, dispatch.sendId);
  return readDue(em, dispatch, env.DISPATCH_SLICE_ROWS);
}
