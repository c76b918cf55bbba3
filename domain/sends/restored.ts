import type { EntityManager } from "../../db/orm.ts";
import { pauseSend } from "./lifecycle.ts";
import { PAUSE_REASONS } from "./pause-reasons.ts";
import { readUnfinishedSends } from "./unfinished.ts";

const PAGE = 500;

/**
 * Pauses each send of all teams that has not ended, in Postgres alone: for a database that was restored, before a process
 * mails by it. One that is PAUSED already gets the reason, so that its operator knows of it.
 * @returns how many sends are held
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
