import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";

const REVIEW = sql`interval '7 days'`;

/**
 * Opens the review of a send that has just ended with unknown outcomes, or keeps it open; without any, closes it. One
 * that an operator closed stays closed. @returns milliseconds until it closes by itself; 0 when there is nothing to
 * review
 */
export async function openReview(
  em: EntityManager,
  sendId: string,
  unknown: number,
  hasJustEnded: boolean,
): Promise<number> {
  if (unknown === 0) {
    await closeReview(em, sendId);
    return 0;
  }
  const row = await kysely(em)
    .updateTable("sends")
    .set({
      review_until: sql<string>`case when review_until > clock_timestamp() then review_until else clock_timestamp() + ${REVIEW} end`,
    })
    .where("id", "=", sendId)
    .$if(!hasJustEnded, (query) => query.where("review_until", ">", sql<string>`clock_timestamp()`))
    .returning(sql<number>`ceil(extract(epoch from review_until - clock_timestamp()) * 1000)::float8`.as("ms"))
    .executeTakeFirst();
  return row?.ms ?? 0;
}

export async function closeReview(em: EntityManager, sendId: string): Promise<void> {
  await kysely(em)
    .updateTable("sends")
    .set({ review_until: null })
    .where("id", "=", sendId)
    .where("review_until", "is not", null)
    .execute();
}
