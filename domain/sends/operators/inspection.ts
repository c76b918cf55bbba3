import { sql } from "kysely";
import type { AccountStatus } from "../../../db/entities/account.ts";
import { RESOURCE_TYPES, type RecipientState, type ResourceType, type SendStatus } from "../../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { isoInstant } from "../../../db/sql.ts";
import { ApiError } from "../../errors.ts";
import { ID_PREFIX } from "../../ids.ts";
import { mailId, messageIdOf } from "../../mail/message-id.ts";
import { domainOf } from "../../sending-domains/keys.ts";
import { shownEmail } from "../../webhooks/records.ts";
import { readResourceContent } from "../ledger/content.ts";
import { readCounts, sentCount } from "../ledger/counts.ts";
import { laneAccounts } from "../ledger/lanes.ts";
import { PAUSE_REASONS } from "../pause-reasons.ts";
import type { SendResource } from "../resource.ts";

/*
 * Sends as operators read them, at a command line. Instants are ISO 8601, UTC.
 */

export interface FoundSend extends Tenant {
  sendId: string;
  resource: SendResource;
}

const RESOURCE_TYPE_OF: ReadonlyMap<string, ResourceType> = new Map(
  RESOURCE_TYPES.map((type) => [ID_PREFIX[type], type]),
);

/** The kind of a resource that is sent, by its id; undefined for the id of another kind. */
export const resourceTypeOf = (id: string): ResourceType | undefined => RESOURCE_TYPE_OF.get(id.split("_")[0] ?? "");

/**
 * Finds a send by its own id, or by that of its resource; also one that was never confirmed.
 * @throws {ApiError} `validation_failed` for the id of another kind; `not_found`; `resource_state_invalid` without a
 *   send
 */
export async function findSend(em: EntityManager, id: string): Promise<FoundSend> {
  if (id.startsWith(`${ID_PREFIX.send}_`)) return readOwner(em, id);
  const type = resourceTypeOf(id);
  if (type === undefined) {
    throw new ApiError(
      "validation_failed",
      `${id} is no id of a newsletter (nl_…), a campaign (cmp_…) or a send (send_…).`,
    );
  }
  const row = await kysely(em)
    .selectFrom(`${type}s`)
    .select(["send_id", "status"])
    .where("id", "=", id)
    .executeTakeFirst();
  if (!row) throw new ApiError("not_found", `There is no ${type} ${id}.`);
  if (row.send_id === null) {
    throw new ApiError(
      "resource_state_invalid",
      `The ${type} ${id} is ${row.status} and has no send: none was confirmed.`,
    );
  }
  return readOwner(em, row.send_id);
}

async function readOwner(em: EntityManager, sendId: string): Promise<FoundSend> {
  // A preview has the id of its send.
  const { rows } = await sql<Omit<FoundSend, "resource"> & SendResource>`
    select s.id as "sendId", s.team_id as "teamId", s.environment, s.resource_type as type, s.resource_id as id
    from (
      select id, team_id, environment, resource_type, resource_id from sends where id = ${sendId}
      union
      select id, team_id, environment, resource_type, resource_id from send_previews where id = ${sendId}
    ) s`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw new ApiError("not_found", `There is no send ${sendId}.`);
  const { type, id, ...send } = row;
  return { ...send, resource: { type, id } };
}

export interface AccountRefusal {
  reason: string;
  temporary: boolean;
  count: number;
  since: string;
  retryAt: string;
}

/** SQL: an `AccountRefusal` of a row of `account_refusals f`; null without one. */
export const refusalJson = sql<AccountRefusal | null>`
  case when f.account_id is not null then json_build_object('reason', f.reason, 'temporary', f.temporary,
    'count', f.count, 'since', ${isoInstant(sql`f.since`)}, 'retryAt', ${isoInstant(sql`f.retry_at`)}) end`;

export interface LaneFacts {
  accountId: string;
  /** Null when it is connected no longer. */
  status: AccountStatus | null;
  lastError: string | null;
  refusal: AccountRefusal | null;
  /** Recipients that it holds or mailed, by state; states without any are missing. */
  recipients: Partial<Record<RecipientState, number>>;
}

export interface SendFacts extends FoundSend {
  /** A preview is `PREVIEW` while its token is valid, then `EXPIRED`; `VOIDED` when an operator cancelled it. */
  status: SendStatus | "PREVIEW" | "EXPIRED" | "VOIDED";
  /** Why it is paused; null when an operator paused it, and in every other status. */
  reason: string | null;
  /** As a code, or codes behind accounts' ids. */
  needs: string | null;
  sendAt: string | null;
  /** ISO weekdays; none means any day. */
  sendDays: number[];
  timeZone: string;
  startedAt: string | null;
  completedAt: string | null;
  /** Until when an operator may decide about unknown outcomes. */
  reviewUntil: string | null;
  total: number;
  recipients: Record<RecipientState, number> | null;
  lanes: LaneFacts[];
}

const needs = sql<string | null>`
  case when s.status = 'PAUSED' then nullif(s.pause_reason, ${PAUSE_REASONS.client})
    when s.review_until > now() then 'unknown_outcomes'
    when s.status = 'SENDING' then (
      select string_agg(l.account_id || ' ' || case when a.id is null then 'account_gone'
          else coalesce(r.reason, a.last_error, 'account_not_active') end, ', ' order by l.account_id)
      from send_lanes l
      left join email_accounts a on a.id = l.account_id
      left join account_refusals r on r.account_id = l.account_id
      where l.send_id = s.id and (a.id is null or a.status <> 'ACTIVE' or r.account_id is not null))
    end`;

/** Reads a send in detail. With several accounts, it reads the whole ledger of the send. */
export async function readSendFacts(em: EntityManager, found: FoundSend): Promise<SendFacts> {
  const { sendId, resource } = found;
  const resources = sql.table(`${resource.type}s`);
  const { rows } = await sql<Omit<SendFacts, keyof FoundSend | "recipients" | "lanes">>`
    select coalesce(s.status, case when p.voided_at is not null then 'VOIDED' when p.expires_at > now() then 'PREVIEW'
        else 'EXPIRED' end) as status,
      s.pause_reason as reason, ${needs} as needs, ${isoInstant(sql`s.send_at`)} as "sendAt",
      ${isoInstant(sql`s.started_at`)} as "startedAt", ${isoInstant(sql`s.completed_at`)} as "completedAt",
      ${isoInstant(sql`s.review_until`)} as "reviewUntil", coalesce(s.recipients, p.eligible) as total,
      coalesce(d.send_days, '{}')::int[] as "sendDays", t.time_zone as "timeZone"
    from teams t
    left join sends s on s.id = ${sendId} and ${ofTenant(found, "s")}
    left join send_previews p on p.id = ${sendId} and ${ofTenant(found, "p")}
    left join ${resources} d on d.id = ${resource.id} and ${ofTenant(found, "d")}
    where t.id = ${found.teamId}`.execute(kysely(em));
  const [facts] = rows;
  if (!facts) throw new ApiError("not_found", `There is no send ${sendId}.`);
  return {
    ...found,
    ...facts,
    recipients: facts.sendAt === null ? null : await readCounts(em, found, sendId),
    lanes: await readLanes(em, found),
  };
}

async function readLanes(em: EntityManager, found: FoundSend): Promise<LaneFacts[]> {
  const { sendId } = found;
  const { rows } = await sql<LaneFacts>`
    with lanes as (select account_id, count(*) over () as number from send_lanes where send_id = ${sendId}),
    counts as (
      select coalesce(r.account_id, l.account_id) as account_id, r.state, count(*)::int as count
      from send_recipients r left join lanes l on l.number = 1
      where r.send_id = ${sendId} group by 1, 2
    )
    select l.account_id as "accountId", a.status, a.last_error as "lastError",
      ${refusalJson} as refusal,
      coalesce((select json_object_agg(c.state, c.count) from counts c where c.account_id = l.account_id), '{}') as recipients
    from lanes l
    left join email_accounts a on a.id = l.account_id and ${ofTenant(found, "a")}
    left join account_refusals f on f.account_id = l.account_id
    order by l.account_id`.execute(kysely(em));
  return rows;
}

export interface ListedSend {
  sendId: string;
  resourceId: string;
  teamId: string;
  /** Of its newsletter or campaign. */
  name: string | null;
  environment: Tenant["environment"];
  status: SendStatus;
  needs: string | null;
  sent: number;
  total: number;
  /** Recipients settled in a minute, by the last ones of five minutes; null when it is not SENDING, or none was settled. */
  perMinute: number | null;
  /** At this rate. */
  minutesLeft: number | null;
  sendAt: string;
  accountIds: string[];
}

const OPEN_STATES = sql.raw("('QUEUED', 'SENDING', 'DEFERRED')");
const RATED_ROWS = 10_000;

/** A field that is missing lets all through. */
export interface SendFilter {
  statuses?: readonly SendStatus[] | undefined;
  teamId?: string | undefined;
  limit: number;
}

/** Lists sends: those that need an operator, then those that have not ended, then the others; each the newest first. */
export async function listSends(em: EntityManager, { statuses, teamId, limit }: SendFilter): Promise<ListedSend[]> {
  const isOpen = sql`s.status in ('SCHEDULED', 'SENDING', 'PAUSED')`;
  const { rows } = await sql<ListedSend>`
    with found as (
      select s.*, ${needs} as needs, ${isOpen} as open from sends s
      where (${statuses ?? null}::text[] is null or s.status = any(${statuses ?? null}::text[]))
        and (${teamId ?? null}::text is null or s.team_id = ${teamId ?? null})
    ), listed as (
      select * from found f order by f.needs is null, not f.open, f.created_at desc, f.id limit ${limit}
    )
    select s.id as "sendId", s.resource_id as "resourceId", s.team_id as "teamId", s.environment, s.status, s.needs,
      ${sentCount} as sent, s.recipients as total, coalesce(n.name, c.name) as name, round(r.per_minute)::int as "perMinute",
      ceil((s.recipients + (select coalesce(sum(c.count), 0) from send_counts c
        where c.send_id = s.id and c.state in ${OPEN_STATES})) / r.per_minute)::int as "minutesLeft",
      ${isoInstant(sql`s.send_at`)} as "sendAt", ${laneAccounts} as "accountIds"
    from listed s
    left join newsletters n on n.id = s.resource_id
    left join campaigns c on c.id = s.resource_id
    left join lateral (
      select nullif(count(*), 0) * 60 / greatest(extract(epoch from now() - min(r.updated_at)), 1) as per_minute
      from (select max(after_seq) as seq from send_lanes where send_id = s.id) staged
      join send_recipients r on r.send_id = s.id and r.seq between staged.seq - ${sql.lit(RATED_ROWS)} and staged.seq
      where s.status = 'SENDING' and r.state not in ${OPEN_STATES} and r.updated_at > now() - interval '5 minutes'
    ) r on true
    order by s.needs is null, not s.open, s.created_at desc, s.id`.execute(kysely(em));
  return rows;
}

export interface RecipientFacts {
  /** Its number in the ledger, from 1. */
  row: number;
  /** Without angle brackets. Of a recipient that no account has taken, or whose account is gone, the part before the @. */
  messageId: string;
  email: string;
  state: RecipientState;
  reason: string | null;
  attempts: number;
  accountId: string | null;
  updatedAt: string;
}

const PAGE = 1_000;

/** @throws {ApiError} `resource_state_invalid` for a send whose recipients are kept no longer */
export async function refuseWithoutLedger(em: EntityManager, found: FoundSend): Promise<void> {
  const send = await kysely(em)
    .selectFrom("sends")
    .select("ledger_state")
    .where("id", "=", found.sendId)
    .where(ofTenant(found))
    .executeTakeFirst();
  if (send === undefined || send.ledger_state === "COMPLETE" || send.ledger_state === "NAMELESS") return;
  throw new ApiError(
    "resource_state_invalid",
    `The recipients of ${found.sendId} are kept no longer: LEDGER_DAYS have passed since its end. send:show has its counts.`,
  );
}

/** Reads a send's ledger page by page, in its order. @throws {ApiError} as `refuseWithoutLedger` */
export async function* readRecipients(
  em: EntityManager,
  found: FoundSend,
  states: readonly RecipientState[] | undefined,
): AsyncGenerator<RecipientFacts> {
  const { sendId, resource } = found;
  await refuseWithoutLedger(em, found);
  const { fromEmail } = await readResourceContent(em, found, resource, sendId);
  for (let after = 0; ; ) {
    const { rows } = await sql<Omit<RecipientFacts, "messageId" | "row"> & { seq: number; from: string | null }>`
      with page as (
        select * from send_recipients
        where send_id = ${sendId} and seq > ${after}
          and (${states ?? null}::text[] is null or state = any(${states ?? null}::text[]))
        order by seq limit ${sql.lit(PAGE)}
      ), single as (
        select min(account_id) as id from send_lanes where send_id = ${sendId} having count(*) = 1
      )
      select r.seq, ${shownEmail("r")} as email, r.state, r.reason, r.attempts, ${isoInstant(sql`r.updated_at`)} as "updatedAt",
        coalesce(r.account_id, single.id) as "accountId", coalesce(${fromEmail}::text, a.email) as "from"
      from page r left join single on true
      left join email_accounts a on a.id = coalesce(r.account_id, single.id) and ${ofTenant(found, "a")}
      order by r.seq`.execute(kysely(em));
    for (const { seq, from, ...recipient } of rows) {
      const mail = { sendId, seq };
      yield { row: seq, messageId: from === null ? mailId(mail) : messageIdOf(mail, domainOf(from)), ...recipient };
    }
    const last = rows.at(-1);
    if (!last || rows.length < PAGE) return;
    after = last.seq;
  }
}
