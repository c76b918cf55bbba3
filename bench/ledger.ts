import { sql } from "kysely";
import { kysely } from "../db/orm.ts";
import { newId } from "../domain/ids.ts";
import type { TestTeam } from "../test/support/factories.ts";

/** Writes a send of an hour ago with so many mails, numbered from 1, and tracking on. @returns its id */
export async function writeLedger({ em, team }: TestTeam, mails: number): Promise<string> {
  const sendId = newId("send");
  const db = kysely(em);
  await db
    .insertInto("sends")
    .values({
      id: sendId,
      team_id: team.id,
      environment: "LIVE",
      resource_type: "newsletter",
      resource_id: newId("newsletter"),
      api_key_id: "key",
      status: "SENT",
      recipients: mails,
      credits_reserved: mails,
      cap_limit: mails,
      cap_used_today: mails,
      tracking: true,
      send_at: new Date(),
      settled_at: new Date(),
    })
    .execute();
  await sql`insert into send_recipients (send_id, seq, member_id, email, state, updated_at)
    select ${sendId}, i, 'sub_' || i, 'person' || i || '@audience.example', 'SENT', now() - interval '1 hour'
    from generate_series(1, ${mails}::int) i`.execute(db);
  return sendId;
}
