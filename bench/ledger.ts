import { sql } from "kysely";
import { kysely } from "../db/orm.ts";
import { newId } from "../domain/ids.ts";
import type { TestTeam } from "../test/support/factories.ts";
import { recordSend } from "../test/support/factories.ts";

/** Writes a send of an hour ago with tracking on and with mails that are numbered from 1. @returns its id */
export async function writeLedger(
  { em, team }: TestTeam,
  mails: number,
  newsletterId = newId("newsletter"),
): Promise<string> {
  const tenant = { teamId: team.id, environment: "LIVE" } as const;
  const sendId = await recordSend(em, tenant, newsletterId, mails, { tracking: "ALL" });
  await sql`insert into send_recipients (send_id, seq, member_id, email, state, tracked, updated_at)
    select ${sendId}, i, 'sub_' || i, 'person' || i || '@audience.example', 'SENT', true, now() - interval '1 hour'
    from generate_series(1, ${mails}::int) i`.execute(kysely(em));
  return sendId;
}
