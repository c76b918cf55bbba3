import { sql } from "kysely";
import nodemailer from "nodemailer";
import type { SuppressionReason } from "../../db/entities/audience.ts";
import type { RecipientState } from "../../db/entities/send.ts";
import { kysely, type Tenant } from "../../db/orm.ts";
import type { MailRef } from "../../domain/mail/links.ts";
import { recordSentNewsletter } from "../public/ledger.ts";
import { api } from "../support/api.ts";
import type { TestTeam } from "../support/factories.ts";

export const live = ({ team }: Pick<TestTeam, "team">): Tenant => ({ teamId: team.id, environment: "LIVE" });

/** Records a newsletter of a team that went to these addresses, `seq` 1 first. @returns the send's id */
export async function mailed(
  team: TestTeam,
  emails: readonly string[],
  state: RecipientState = "SENT",
): Promise<{ sendId: string; newsletterId: string }> {
  const draft = await api(team.keys.live).post("/newsletters", { name: "Letter" });
  const newsletterId: string = draft.body.data.id;
  const sendId = await recordSentNewsletter(team, newsletterId, emails.length);
  await sql`
    insert into send_recipients (send_id, seq, member_id, email, state, updated_at)
    select ${sendId}, n, 'sub_x', email, ${state}, now() - interval '1 hour'
    from unnest(${emails}::text[]) with ordinality as g (email, n)`.execute(kysely(team.em));
  return { sendId, newsletterId };
}

export const mailTo = async (team: TestTeam, email: string, state?: RecipientState): Promise<MailRef> => ({
  sendId: (await mailed(team, [email], state)).sendId,
  seq: 1,
});

/** Why the team does not mail an address; undefined when it does. */
export async function reasonOf(team: TestTeam, email: string): Promise<SuppressionReason | undefined> {
  const { status, body } = await api(team.keys.live).get(`/suppressions/${encodeURIComponent(email)}`);
  return status === 404 ? undefined : body.data.reason;
}

export async function recordedKinds({ em }: TestTeam, sendId: string): Promise<string[]> {
  const rows = await kysely(em)
    .selectFrom("mail_reports")
    .select(["seq", "kind"])
    .where("send_id", "=", sendId)
    .orderBy("seq")
    .orderBy("kind")
    .execute();
  return rows.map(({ seq, kind }) => `${seq} ${kind}`);
}

export interface MailClient {
  from?: string | undefined;
  localAddress?: string;
  isEncrypted?: boolean;
}

/** Sends a mail to the intake on a port. @returns the code of the last answer; undefined without one */
export async function giveMail(
  port: number,
  to: string,
  raw: string | Buffer,
  { from = "", localAddress, isEncrypted = false }: MailClient = {},
): Promise<number | undefined> {
  const tls = isEncrypted ? { requireTLS: true, tls: { rejectUnauthorized: false } } : { ignoreTLS: true };
  const transport = nodemailer.createTransport({ host: "127.0.0.1", port, localAddress, ...tls });
  try {
    const { response } = await transport.sendMail({ envelope: { from, to }, raw });
    return Number(response.slice(0, 3));
  } catch (error) {
    return (error as { responseCode?: number }).responseCode;
  } finally {
    transport.close();
  }
}
