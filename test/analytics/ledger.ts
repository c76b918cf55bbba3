import { sql } from "kysely";
import { type EngagementKind, type MailReportKind, WITHDRAWN } from "../../db/entities/engagement.ts";
import type { RecipientState } from "../../db/entities/send.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { settleHits } from "../../domain/tracking/settle.ts";
import { api } from "../support/api.ts";
import type { TestTeam } from "../support/factories.ts";
import { recordSend } from "../support/factories.ts";

/** A send with its ledger, written past the service, so that its mails can have any outcome at any time. */
export interface TestLedger {
  tenant: Tenant;
  newsletterId: string;
  sendId: string;
}

/**
 * Makes a newsletter whose send has ended, with recipients that are QUEUED: no worker takes it up.
 * @param options `tracked`: opens and clicks of every second one are counted by consent
 */
export async function makeLedger(
  { em, team, keys }: TestTeam,
  recipients: number,
  { tracked = false } = {},
): Promise<TestLedger> {
  const tenant: Tenant = { teamId: team.id, environment: "LIVE" };
  const newsletterId: string = (await api(keys.live).post("/newsletters", { name: "Letter" })).body.data.id;
  const sendId = await recordSend(em, tenant, newsletterId, recipients);
  await sql`insert into send_recipients (send_id, seq, member_id, email, tracked)
    select ${sendId}, n, 'sub_x', n || '@example.com', ${tracked}::boolean and n % 2 = 0 from generate_series(1, ${recipients}::int) n`.execute(
    kysely(em.fork()),
  );
  return { tenant, newsletterId, sendId };
}

const FROM = {
  QUEUED: ["SENDING", "UNKNOWN", "DEFERRED"],
  SENDING: ["QUEUED"],
  SENT: ["SENDING", "UNKNOWN"],
  REJECTED: ["SENDING", "UNKNOWN"],
  DEFERRED: ["SENDING"],
  UNKNOWN: ["SENDING", "QUEUED"],
  EXPIRED: ["SENDING"],
  SUPPRESSED: ["QUEUED"],
  CANCELLED: ["QUEUED", "DEFERRED"],
} as const satisfies Record<RecipientState, readonly RecipientState[]>;

export async function setState(
  em: EntityManager,
  { sendId }: TestLedger,
  seqs: readonly number[],
  state: RecipientState,
  at: string,
): Promise<void> {
  await kysely(em)
    .updateTable("send_recipients")
    .set({ state, updated_at: at })
    .where("send_id", "=", sendId)
    .where("seq", "in", seqs)
    .where("state", "in", FROM[state])
    .execute();
}

export async function accept(
  em: EntityManager,
  ledger: TestLedger,
  seqs: readonly number[],
  at: string,
): Promise<void> {
  await setState(em, ledger, seqs, "SENDING", at);
  await setState(em, ledger, seqs, "SENT", at);
}

export async function report(
  em: EntityManager,
  { tenant, sendId }: TestLedger,
  seqs: readonly number[],
  kinds: readonly MailReportKind[],
  at: string,
): Promise<void> {
  await kysely(em)
    .insertInto("mail_reports")
    .values(
      seqs.flatMap((seq) =>
        kinds.map((kind) => ({
          send_id: sendId,
          seq,
          kind,
          team_id: tenant.teamId,
          environment: tenant.environment,
          created_at: at,
        })),
      ),
    )
    .onConflict((conflict) => conflict.columns(["send_id", "seq", "kind"]).doNothing())
    .execute();
}

export async function withdraw(em: EntityManager, { sendId }: TestLedger, seqs: readonly number[]): Promise<void> {
  await sql`insert into mail_reports (send_id, seq, kind, team_id, environment)
    select send_id, seq, ${WITHDRAWN}, team_id, environment from mail_reports
    where send_id = ${sendId} and seq = any(${seqs}::int[]) and kind = 'complaint'
    on conflict do nothing`.execute(kysely(em));
}

export async function engage(
  em: EntityManager,
  { tenant, sendId, newsletterId }: TestLedger,
  seqs: readonly number[],
  kind: EngagementKind,
  count: number,
): Promise<void> {
  await sql`
    insert into engagements as e (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
    select ${sendId}, seq, ${kind}, ${tenant.teamId}, ${tenant.environment}, ${newsletterId}, seq || '@example.com',
      ${count}::int, now(), now()
    from unnest(${seqs}::int[]) s (seq)
    on conflict (send_id, seq, kind) do update set count = e.count + excluded.count, last_at = now()`.execute(
    kysely(em),
  );
}

export async function optOut(
  em: EntityManager,
  { tenant, newsletterId }: TestLedger,
  seqs: readonly number[],
  at: string,
): Promise<void> {
  await kysely(em)
    .insertInto("unsubscribes")
    .values(
      seqs.map((seq) => ({
        id: newId("unsubscribe"),
        team_id: tenant.teamId,
        environment: tenant.environment,
        email: `${seq}@example.com`,
        reason: "UNSUBSCRIBED",
        source: "link" as const,
        campaign_id: newsletterId,
        unsubscribed_at: at,
      })),
    )
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

/** Settles the hits of ledgers that are stored now, as many as there are. */
export async function settle(em: EntityManager, ledgers: readonly TestLedger[]): Promise<void> {
  await sql`update pending_hits set created_at = created_at - interval '2 minutes'
    where send_id = any(${ledgers.map(({ sendId }) => sendId)})`.execute(kysely(em));
  await settleHits(em, 1_000);
}

/** As an erasure does: takes the addresses out of engagements, and hits that are not settled yet away. */
export async function erase(em: EntityManager, { sendId }: TestLedger, seqs: readonly number[]): Promise<void> {
  await sql`delete from pending_hits where send_id = ${sendId} and seq = any(${seqs}::int[])`.execute(kysely(em));
  await sql`update engagements set email = 'erased' where send_id = ${sendId} and seq = any(${seqs}::int[])`.execute(
    kysely(em),
  );
}
