import type { TestApp } from "./app.ts";

/** Statements that reach Postgres during `work`, counted at the driver, on the connection that it takes first. */
export async function countStatements(app: TestApp, work: () => Promise<unknown>): Promise<number> {
  const pool = await app.deps.orm.em.getDriver().getConnection().getNativeClient();
  let statements = 0;
  const count = (client: { query: (...args: never[]) => unknown }) => {
    const query = client.query.bind(client);
    client.query = (...args: never[]) => {
      statements++;
      return query(...args);
    };
  };
  pool.once("acquire", count);
  await work();
  return statements;
}
