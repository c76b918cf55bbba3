import { sql } from "kysely";
import { type EntityManager, kysely } from "./orm.ts";

interface Copy {
  pid: number;
  /** When its statement began, by Postgres's clock. */
  begun: string;
  bytes: string;
}

/**
 * Ends COPYs whose client is frozen. Postgres ends other statements after their time, and idle transactions too
 * (`limitSession`), but a COPY that waits for its client after no time at all, and it would hold its locks as long. Statements of one
 * copy begin with the same comment: while one of them works, the other one rightly waits for rows.
 */
export class StalledCopies {
  /** The copies that waited at the latest look: bytes by process and begin. */
  #seen = new Map<string, string>();

  /**
   * Ends those that wait for their client, and have copied nothing since the latest call.
   * @returns how many
   */
  async end(em: EntityManager): Promise<number> {
    const db = kysely(em);
    const { rows: waiting } = await sql<Copy>`
      select c.pid, a.query_start::text as begun, c.bytes_processed::text as bytes
      from pg_stat_progress_copy c join pg_stat_activity a on a.pid = c.pid
      where a.datname = current_database() and a.usename = current_user and a.wait_event_type = 'Client'
        and not exists (
          select from pg_stat_activity other
          where other.state = 'active' and other.wait_event_type is distinct from 'Client'
            and split_part(other.query, '*/', 1) = split_part(a.query, '*/', 1))`.execute(db);
    const keyOf = ({ pid, begun }: Copy) => `${pid} ${begun}`;
    const stalled = waiting.filter((copy) => this.#seen.get(keyOf(copy)) === copy.bytes);
    this.#seen = new Map(waiting.map((copy) => [keyOf(copy), copy.bytes]));
    let ended = 0;
    for (const { pid, begun } of stalled) {
      // The process may run another statement by now.
      const { rows } = await sql`
        select pg_terminate_backend(a.pid) from pg_stat_activity a
        where a.pid = ${pid} and a.query_start = ${begun}::timestamptz and a.wait_event_type = 'Client'`.execute(db);
      ended += rows.length;
    }
    return ended;
  }
}
