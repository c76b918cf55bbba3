import { eventually } from "./eventually.ts";
import { backdoor } from "./factories.ts";

/** Waits until a minute of the database's clock has begun that is long enough for a test: requests are counted by it. */
export async function windowWithRoom(): Promise<void> {
  const em = (await backdoor()).orm.em.fork();
  await eventually(
    async () => {
      const [row] = await em.execute<{ second: number }[]>("select extract(second from now())::int as second");
      return row !== undefined && row.second < 50;
    },
    { everyMs: 200, what: "the first seconds of a minute" },
  );
}
