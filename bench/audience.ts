import { randomBytes } from "node:crypto";
import { sql } from "kysely";
import type { TrackingMode } from "../db/entities/team.ts";
import { kysely } from "../db/orm.ts";
import { ID_PREFIX } from "../domain/ids.ts";
import { makeSender, type Sender } from "../test/support/sending.ts";

export interface AudienceOptions {
  recipients: number;
  /** Connections each sending account allows. */
  connections: number;
  /** Accounts that mail its sends; one by default. */
  accounts?: number;
  smtp: { host: string; port: number };
  /** A body with links, whose opens and clicks are counted of these people, who all agreed; one without links unless given. */
  tracking?: TrackingMode | undefined;
}

const SENTENCE =
  "We wrote this month about the garden in late summer, what to plant before the first frost, and which of your " +
  "neighbours opened their greenhouses to visitors; there is more of it behind the links than fits into a letter.";

/** An HTML body of about 3 KB with every common merge tag in it. */
export const BODY = [
  '<!doctype html><html><head><meta charset="utf-8"><title>Letter</title></head><body>',
  "<h1>Good morning, {{ first_name }} {{ last_name }}</h1>",
  "<p>This is {{ list_name }}, sent to {{ email }}.</p>",
  ...Array.from({ length: 10 }, (_, i) => `<h2>Part ${i + 1}</h2><p style="color:#333333">${SENTENCE}</p>`),
  '<p><a href="{{ unsubscribe_url }}">Unsubscribe</a></p>',
  "</body></html>",
].join("\n");

/** The same with a link in each part. */
export const LINKED_BODY = BODY.replaceAll(
  /<h2>Part (\d+)<\/h2>/g,
  '<h2><a href="https://garden.example/letters/2026/part-$1?utm_source=letter&amp;utm_medium=email">Part $1</a></h2>',
);

/** The subject beside it. */
export const SUBJECT = "News for {{ first_name }}";

/** A team with a newsletter to so many subscribers, which are written straight into the database. */
export async function makeAudience({
  recipients,
  connections,
  accounts = 1,
  smtp,
  tracking,
}: AudienceOptions): Promise<Sender> {
  const sender = await makeSender({
    recipients: [],
    credits: 10_000_000,
    dailySendCap: 10_000_000,
    subject: SUBJECT,
    body: tracking === undefined ? BODY : LINKED_BODY,
    account: { host: smtp.host, port: smtp.port, maxConnections: connections },
    furtherAccounts: Array.from({ length: accounts - 1 }, () => ({})),
  });
  const { em, team, listId, audience } = sender;
  const db = kysely(em);
  if (tracking) await db.updateTable("teams").set({ tracking }).where("id", "=", team.id).execute();
  // Ids that sort by age, like real ones, and are unique.
  const stem = `${ID_PREFIX.subscriber}_${Date.now().toString(36).padStart(10, "0")}${randomBytes(4).toString("hex")}`;
  const id = sql`${stem} || lpad(i::text, 8, '0')`;
  await sql`
    insert into subscribers (id, team_id, environment, email, first_name, last_name)
    select ${id}, ${team.id}, 'LIVE', 'person' || i || '@' || ${audience}::text, 'First' || i, 'Last' || i
    from generate_series(1, ${recipients}::int) i`.execute(db);
  if (tracking === "AGREED") {
    await sql`
      insert into tracking_consents (team_id, environment, email, status, way, at)
      select ${team.id}, 'LIVE', 'person' || i || '@' || ${audience}::text, 'GRANTED', 'API', now()
      from generate_series(1, ${recipients}::int) i`.execute(db);
  }
  await sql`
    insert into subscriptions (list_id, subscriber_id, team_id, environment, status)
    select ${listId}, ${id}, ${team.id}, 'LIVE', 'CONFIRMED'
    from generate_series(1, ${recipients}::int) i`.execute(db);
  // Else Postgres would write the pages of the import to disk during the measurement.
  await sql`checkpoint`.execute(db);
  // As autovacuum leaves a list that was not imported this very minute.
  for (const table of ["subscribers", "subscriptions"]) await sql`vacuum analyze ${sql.table(table)}`.execute(db);
  return sender;
}
