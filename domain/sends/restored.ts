import type { EntityManager } from "../../db/orm.ts";
import { pauseSend } from "./lifecycle.ts";
import { PAUSE_REASONS } from "./pause-reasons.ts";
import { readUnfinishedSends } from "./unfinished.ts";

const PAGE = 500;

/**
 * For a database that was restored, before a process mails by it: pauses each send that has not ended. @returns how
 * many are held
 */
export async function holdOpenSends(em: EntityManager): Promise<number> {
  let held = 0;
  for (let after = ""; ; ) {
    const page = await readUnfinishedSends(em, after, PAGE);
    for (const { id } of page) {
      const { state } = await pauseSend(em, id, PAUSE_REASONS.databaseRestored);
      if (state?.status === "PAUSED") held++;
    }
    const last = page.at(-1);
    if (!last || page.length < PAGE) return held;
    after = last.id;
  }
}
