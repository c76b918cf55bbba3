import { backdoor, unique } from "./factories.ts";

/** Inserts into a table that wait until the test lets them go. */
export interface HeldInserts {
  /** How many inserts have waited so far, also in transactions that were rolled back. */
  begun(): Promise<number>;
  release(): Promise<void>;
}

/** Lets the statement take as long as one of very many rows. @param rows a condition on `new` */
export async function whileInsertsAreHeld<T>(
  table: "send_previews" | "send_recipients",
  rows: string,
  work: (held: HeldInserts) => Promise<T>,
): Promise<T> {
  const { orm } = await backdoor();
  const name = unique("hold").replace("-", "_");
  const run = (statement: string) => orm.em.fork().execute(statement);
  const lock = `hashtextextended('${name}', 0)`;
  await run(`create sequence ${name}`);
  await run(`create function ${name}() returns trigger language plpgsql security definer as $$ begin
    perform nextval('public.${name}'); perform pg_advisory_xact_lock_shared(${lock}); return new; end $$`);
  await run(`create trigger ${name} before insert on ${table} for each row when (${rows}) execute function ${name}()`);
  const holder = orm.em.fork();
  await holder.begin();
  // Postgres would end it while a busy machine has not come to the insert.
  await holder.execute("set local idle_in_transaction_session_timeout = 0");
  await holder.execute(`select pg_advisory_xact_lock(${lock})`);
  try {
    return await work({
      begun: async () => {
        const [row] = await orm.em
          .fork()
          .execute<{ begun: string }[]>(`select case when is_called then last_value else 0 end as begun from ${name}`);
        return Number(row?.begun);
      },
      release: () => holder.rollback(),
    });
  } finally {
    if (holder.isInTransaction()) await holder.rollback();
    await run(`drop trigger ${name} on ${table}; drop function ${name}(); drop sequence ${name}`);
  }
}
