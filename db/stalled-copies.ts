import { sql } from "kysely";
import { COPY_PATTERN } from "./copy-query.ts";
import { type EntityManager, kysely } from "./orm.ts";

interface Copy {
  pid: number;
  /** When its statement began, by Postgres's clock. */
  startedAt: string;
  bytes: string;
}

/**
 * Ends copies of `insertByCopy` whose process is frozen. No timeout of Postgres ends a COPY that waits for its client, and it keeps its
 * locks. Both statements of a copy begin with the same comment: while one of them works, the other one may wait.
 */
export class StalledCopies {
  /** The copies that waited at the latest look: bytes by process and begin. */
  #waitingBytes = new Map<string, string>();

  /**
   * Ends those that wait for their client, and have copied nothing since the latest call.
   * @returns how many connections
   */
  async end(em: EntityManager): Promise<number> {
    const db = kysely(em);
    const { rows: waiting } = await sql<Copy>`
      select c.pid, a.query_start::text as "startedAt", c.bytes_processed::text as bytes
      from pg_stat_progress_copy c join pg_stat_activity a on a.pid = c.pid
      where a.datname = current_database() and a.usename = current_user and a.wait_event_type = 'Client'
        and a.query like ${COPY_PATTERN} and not exists (
          select from pg_stat_activity other
          -- A parallel worker waits for its leader.
          where other.state = 'active' and other.leader_pid is null and other.wait_event_type is distinct from 'Client'
            and split_part(other.query, '*/', 1) = split_part(a.query, '*/', 1))`.execute(db);
    const keyOf = ({ pid, startedAt }: Copy) => `${pid} ${startedAt}`;
    const stalled = waiting.filter((copy) => this.#waitingBytes.get(keyOf(copy)) === copy.bytes);
    this.#waitingBytes = new Map(waiting.map((copy) => [keyOf(copy), copy.bytes]));
    let ended = 0;
    for (const { pid, startedAt } of stalled) {
      // The process may run another statement by now.
      const { rows } = await sql<{ ended: boolean }>`
        select pg_terminate_backend(a.pid) as ended from pg_stat_activity a
        where a.pid = ${pid} and a.query_start = ${startedAt}::timestamptz and a.wait_event_type = 'Client'`.execute(
        db,
      );
      ended += rows.filter((row) => row.ended).length;
    }
    return ended;
  }
}
