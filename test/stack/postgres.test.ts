import assert from "node:assert/strict";
import { totalmem } from "node:os";
import { sharedBuffersMiB } from "../../stack/postgres.ts";
import { backdoor } from "../support/factories.ts";

const GIB = 1_073_741_824;

describe("The embedded Postgres", () => {
  it("keeps an eighth of the machine's memory in pages, within bounds", () => {
    const kept = [0.5, 4, 8, 64].map((memoryGiB) => sharedBuffersMiB(memoryGiB * GIB));
    assert.deepEqual(kept, [128, 512, 1_024, 1_024]);
  });

  it("has the memory that the machine allows, and large buffers for its log", async () => {
    const { orm } = await backdoor();
    const rows = await orm.em.fork().execute<{ name: string; bytes: string }[]>(
      `select name, pg_size_bytes(current_setting(name))::text as bytes from pg_settings
        where name in ('shared_buffers', 'wal_buffers') order by name`,
    );
    const bytes = (mib: number) => String(mib * 1_048_576);
    assert.deepEqual(
      rows.map(({ bytes: value }) => value),
      [bytes(sharedBuffersMiB(totalmem())), bytes(64)],
    );
  });
});
