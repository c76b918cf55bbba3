import { type RawBuilder, sql } from "kysely";
import type { EntityManager } from "../../db/orm.ts";
import { defineStatement, type NamedValues } from "../../db/prepared.ts";

/** How long a relay leads without renewing it, in seconds: as long, events wait after it was killed. */
export const LEAD_SECONDS = 2;

interface Holder extends NamedValues {
  holder: string;
}

/**
 * Takes the lead among the relays while none has it, or renews it. One relay at a time makes fewer and larger transactions
 * than several that share the work.
 * @param holder names the relay; no other has the name
 * @returns whether it leads, for `LEAD_SECONDS` from now
 */
export async function takeLead(em: EntityManager, holder: string): Promise<boolean> {
  const { rows } = await take(em, { holder });
  return rows.length > 0;
}

/** Gives the lead up, so that another relay may take it at once. */
export async function giveLeadUp(em: EntityManager, holder: string): Promise<void> {
  await giveUp(em, { holder });
}

const leadUntil: RawBuilder<unknown> = sql`now() + make_interval(secs => ${sql.lit(LEAD_SECONDS)})`;

const take = defineStatement(
  (_em, { holder }: Holder) => sql<{ holder: string }>`
    insert into webhook_relay_lead (id, holder, lead_until) values ('webhooks', ${holder}, ${leadUntil})
    on conflict (id) do update set holder = excluded.holder, lead_until = excluded.lead_until
    where webhook_relay_lead.holder = excluded.holder or webhook_relay_lead.lead_until <= now()
    returning holder`,
);

const giveUp = defineStatement(
  (_em, { holder }: Holder) => sql`
    update webhook_relay_lead set lead_until = now() where holder = ${holder} and lead_until > now()`,
);
