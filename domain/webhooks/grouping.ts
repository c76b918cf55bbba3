import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { executePrepared } from "../../db/prepared.ts";
import { transaction } from "../../db/transaction.ts";
import { endpointHealth, SUCCESS_COUNTS_HOURS } from "./endpoint-health.ts";

/** Deliveries one workflow carries at most; at 100 the cost of a workflow is shared widely enough. */
export const GROUP_SIZE = 100;

/**
 * Groups of a working endpoint that may be at their first attempt at once: so many full ones, and so many that are not.
 * Deliveries that come meanwhile wait in Postgres, so that the busier an endpoint is, the fuller its groups get. Other
 * endpoints get one group at a time.
 */
const FULL_GROUPS = 6;
const PARTIAL_GROUPS = 2;
/**
 * The second group that is not full is formed only when a delivery has waited this long, in ms: the first is then held
 * up by a slow answer. Otherwise the first ends sooner, and deliveries that wait for it share the cost of one workflow.
 */
const HELD_UP_MS = 200;

/**
 * The condition that a delivery waits for a group: the one of the index `webhook_deliveries_waiting`. It does not name
 * the status, whose every change would then have to write all indexes of the row.
 * @param delivery alias of `webhook_deliveries`
 */
export const isWaiting = (delivery: string): RawBuilder<boolean> =>
  sql<boolean>`(${sql.ref(`${delivery}.group_id`)} is null and not ${sql.ref(`${delivery}.blocked_at_once`)})`;

/**
 * A recursive query for the endpoints that deliveries wait for, as `webhook_id`, with a null at the end: one step along
 * the index for each, however many deliveries wait.
 */
export const endpointsWaiting = sql`
  (select d.webhook_id from webhook_deliveries d where ${isWaiting("d")} order by d.webhook_id limit 1)
  union all
  select (select d.webhook_id from webhook_deliveries d
    where ${isWaiting("d")} and d.webhook_id > w.webhook_id order by d.webhook_id limit 1)
  from waiting w where w.webhook_id is not null`;

/** A group that was formed, or whose workflow was never started. */
export interface Group {
  id: string;
  webhookId: string;
  teamId: string;
  size: number;
  /** Its endpoint succeeded lately and has not failed since: the first attempt needs no activity of its own. */
  localFirstAttempt: boolean;
}

interface Candidate {
  webhook_id: string;
  team_id: string;
  environment: Tenant["environment"];
  failures: number;
  succeeded_lately: boolean;
  /** Groups at their first attempt. */
  busy: number;
}

/** An endpoint that may get more groups. */
interface Vacancy extends Candidate {
  isWorking: boolean;
  /** Full groups it may get. */
  full: number;
}

interface NewGroup extends Group {
  environment: Tenant["environment"];
  /** Its deliveries. */
  ids: string[];
}

/**
 * Puts waiting deliveries together in groups, as far as their endpoints may have another first attempt. The caller
 * starts a workflow for each; should that fail, `unstartedGroups` finds them.
 */
export function formGroups(em: EntityManager): Promise<Group[]> {
  return transaction(em, async (tx) => {
    const vacancies = (await lockCandidates(tx)).map(withVacancy).filter(({ full }) => full > 0);
    if (vacancies.length === 0) return [];
    const groups = await planGroups(tx, vacancies);
    if (groups.length > 0) await insertGroups(tx, groups);
    return groups;
  });
}

/** Endpoints that deliveries wait for, less those that another relay is forming groups of. */
async function lockCandidates(em: EntityManager): Promise<Candidate[]> {
  const { rows } = await executePrepared(
    em,
    "relay_candidates",
    sql<Candidate>`
    with recursive waiting as (${endpointsWaiting})
    select w.webhook_id, e.team_id, e.environment, h.consecutive_failures as failures,
      coalesce(h.last_success_at > now() - make_interval(hours => ${SUCCESS_COUNTS_HOURS}::int), false)
        as succeeded_lately, (
      select count(*)::int from webhook_groups g where g.webhook_id = w.webhook_id and g.phase = 'FIRST') as busy
    from waiting w join webhook_endpoints e on e.id = w.webhook_id join webhook_health h on h.webhook_id = e.id
    for update of h skip locked`,
  );
  return rows;
}

function withVacancy(candidate: Candidate): Vacancy {
  const isWorking = endpointHealth(candidate.failures, candidate.succeeded_lately) === "working";
  return { ...candidate, isWorking, full: Math.max(0, (isWorking ? FULL_GROUPS : 1) - candidate.busy) };
}

async function planGroups(em: EntityManager, vacancies: readonly Vacancy[]): Promise<NewGroup[]> {
  const { rows: waiting } = await executePrepared(
    em,
    "relay_waiting",
    sql<{ webhook_id: string; ids: string[]; held_up: boolean }>`
    select r.webhook_id, array(
      select d.id from webhook_deliveries d where d.webhook_id = r.webhook_id and ${isWaiting("d")}
      order by d.id limit r.most) as ids, coalesce((
      select d.created_at < now() - make_interval(secs => ${HELD_UP_MS / 1000}::float8) from webhook_deliveries d
      where d.webhook_id = r.webhook_id and ${isWaiting("d")} order by d.id limit 1), false) as held_up
    from unnest(${vacancies.map(({ webhook_id }) => webhook_id)}::text[],
      ${vacancies.map(({ full }) => full * GROUP_SIZE)}::int[]) as r (webhook_id, most)`,
  );
  const waitingOf = new Map(waiting.map((row) => [row.webhook_id, row]));
  return vacancies.flatMap((vacancy) => {
    const { ids = [], held_up = false } = waitingOf.get(vacancy.webhook_id) ?? {};
    return splitIntoGroups(vacancy, ids, held_up);
  });
}

function splitIntoGroups(vacancy: Vacancy, ids: readonly string[], heldUp: boolean): NewGroup[] {
  const { webhook_id, team_id, environment, failures, succeeded_lately, isWorking, busy } = vacancy;
  const partial = (isWorking && heldUp ? PARTIAL_GROUPS : 1) - busy;
  const groups: NewGroup[] = [];
  for (let from = 0; from < ids.length; from += GROUP_SIZE) {
    const members = ids.slice(from, from + GROUP_SIZE);
    const [id] = members;
    if (id === undefined || (members.length < GROUP_SIZE && groups.length >= partial)) break;
    groups.push({
      id,
      webhookId: webhook_id,
      teamId: team_id,
      environment,
      localFirstAttempt: failures === 0 && succeeded_lately,
      size: members.length,
      ids: members,
    });
  }
  return groups;
}

async function insertGroups(em: EntityManager, groups: readonly NewGroup[]): Promise<void> {
  await executePrepared(
    em,
    "relay_groups",
    sql`
    insert into webhook_groups (id, team_id, environment, webhook_id, size)
    select * from unnest(${groups.map(({ id }) => id)}::text[], ${groups.map(({ teamId }) => teamId)}::text[],
      ${groups.map(({ environment }) => environment)}::text[], ${groups.map(({ webhookId }) => webhookId)}::text[],
      ${groups.map(({ size }) => size)}::smallint[])`,
  );
  await executePrepared(
    em,
    "relay_members",
    sql`
    update webhook_deliveries d set group_id = m.group_id
    from unnest(${groups.flatMap(({ ids }) => ids)}::text[],
      ${groups.flatMap(({ id, ids }) => ids.map(() => id))}::text[]) as m (id, group_id)
    where d.id = m.id and d.group_id is null`,
  );
}

/** How long a group may stand without its first attempt before its workflow is started once more, in seconds. */
const UNSTARTED_SECONDS = 5;
/** Older ones are left to the reconciler: an operator may have ended their workflow. */
const UNSTARTED_UNTIL_SECONDS = 120;

/** Groups whose first attempt has not begun: the relay that formed them may have died before it started their workflow. */
export async function unstartedGroups(em: EntityManager, limit: number): Promise<Group[]> {
  const { rows } = await sql<Group>`
    select id, webhook_id as "webhookId", team_id as "teamId", size, false as "localFirstAttempt" from webhook_groups
    where begun_at is null and created_at < now() - make_interval(secs => ${UNSTARTED_SECONDS})
      and created_at > now() - make_interval(secs => ${UNSTARTED_UNTIL_SECONDS})
    order by created_at limit ${limit}`.execute(kysely(em));
  return rows;
}

/** How late an attempt is before its workflow is presumed dead, in seconds. */
const OVERDUE_SECONDS = 60;

/** A group whose attempt should have been made by now. */
export interface OverdueGroup extends Omit<Group, "localFirstAttempt"> {
  /** The attempt it continues with; the first is 1. */
  attempt: number;
}

/** Groups that are overdue, in order of their ids. */
export async function overdueGroups(em: EntityManager, after: string, limit: number): Promise<OverdueGroup[]> {
  const { rows } = await sql<OverdueGroup>`
    select id, webhook_id as "webhookId", team_id as "teamId", size, attempt + case when exists (
      select from webhook_deliveries d where d.group_id = g.id and d.status = 'PENDING') then 0 else 1 end as attempt
    from webhook_groups g
    where due_at < now() - make_interval(secs => ${OVERDUE_SECONDS}) and id > ${after}
    order by id limit ${limit}`.execute(kysely(em));
  return rows;
}
