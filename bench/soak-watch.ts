import { sql } from "kysely";
import { kysely, type MikroORM } from "../db/orm.ts";
import type { CaughtMail } from "../stack/mail-store.ts";
import { backdoor } from "../test/support/factories.ts";
import { stack } from "../test/support/stack.ts";

/** A row's number in its send, its address and its state. */
interface LedgerRow {
  send_id: string;
  seq: number;
  email: string;
  state: string;
}

/** A Message-ID is made of the ledger's row. */
const MESSAGE_ID = /^<(\d+)\.(send_[0-9a-z]+)@/;
/** States in which a mail may have reached the server. */
const MAYBE_CAUGHT = new Set(["SENT", "SENDING", "UNKNOWN"]);

/** Compares the ledger, the credits and the caught mail again and again, and keeps every violation. */
export class Watch {
  readonly violations = new Set<string>();
  /** Mails caught so far. */
  caught = 0;
  summary: Record<string, number> = {};
  readonly #orm: MikroORM;
  readonly #mailApi: string;
  readonly #teams = new Set<string>();
  readonly #sends = new Set<string>();
  /** Sends that were found settled and right: only the last check looks at them again. */
  readonly #done = new Set<string>();
  /** By send, how often each row's mail was caught. */
  readonly #mails = new Map<string, Map<number, number>>();
  /** By send, the addresses that it must not mail. */
  readonly #forbidden = new Map<string, Set<string>>();
  #lastMail = 0;

  private constructor(orm: MikroORM, mailApi: string) {
    this.#orm = orm;
    this.#mailApi = mailApi;
  }

  static async open(): Promise<Watch> {
    return new Watch((await backdoor()).orm, (await stack()).mail.api);
  }

  async close(): Promise<void> {
    this.#sends.clear();
  }

  violated(what: string): void {
    if (this.violations.has(what)) return;
    this.violations.add(what);
    console.log(`VIOLATED: ${what}`);
  }

  async addTeam(teamId: string): Promise<void> {
    this.#teams.add(teamId);
  }

  async addSend(sendId: string): Promise<void> {
    this.#sends.add(sendId);
  }

  /** These addresses may not be caught by this send from now on. */
  forbid(sendId: string, emails: ReadonlySet<string>): void {
    this.#forbidden.set(sendId, new Set([...(this.#forbidden.get(sendId) ?? []), ...emails]));
  }

  get #db() {
    return kysely(this.#orm.em.fork());
  }

  /** Sends that have not ended, or whose credits are not settled, each with the refusal that its account waits for. */
  openSends(): Promise<{ id: string; status: string; refusal: unknown }[]> {
    return this.#db
      .selectFrom("sends")
      .select([
        "id",
        "status",
        sql<unknown>`(select json_agg(r) from account_refusals r join send_lanes l using (account_id)
          where l.send_id = sends.id)`.as("refusal"),
      ])
      .where("team_id", "in", [...this.#teams, ""])
      .where("settled_at", "is", null)
      .execute();
  }

  /** Accounts that are not ACTIVE. */
  async failedAccounts(): Promise<string[]> {
    const rows = await this.#db
      .selectFrom("email_accounts")
      .select("id")
      .where("team_id", "in", [...this.#teams, ""])
      .where("status", "<>", "ACTIVE")
      .execute();
    return rows.map(({ id }) => id);
  }

  async #collect(): Promise<void> {
    for (;;) {
      const url = new URL("/api/messages", this.#mailApi);
      url.searchParams.set("after", String(this.#lastMail));
      url.searchParams.set("limit", "5000");
      const { messages } = (await (await fetch(url)).json()) as { messages: CaughtMail[] };
      if (messages.length === 0) return;
      for (const mail of messages) this.#count(mail);
      this.#lastMail = messages.at(-1)?.id ?? this.#lastMail;
    }
  }

  #count({ messageId, to }: CaughtMail): void {
    this.caught++;
    const [, seq, sendId] = MESSAGE_ID.exec(messageId) ?? [];
    if (seq === undefined || sendId === undefined) return;
    const rows = this.#mails.get(sendId) ?? new Map<number, number>();
    this.#mails.set(sendId, rows);
    const times = (rows.get(Number(seq)) ?? 0) + 1;
    rows.set(Number(seq), times);
    if (times > 1) this.violated(`${sendId}: row ${seq} was mailed ${times} times`);
    for (const email of to) {
      if (this.#forbidden.get(sendId)?.has(email)) {
        this.violated(`${sendId}: row ${seq} was mailed, who had left before`);
      }
    }
  }

  #rows(sendIds: string[]): Promise<LedgerRow[]> {
    return this.#db
      .selectFrom("send_recipients")
      .select(["send_id", "seq", "email", "state"])
      .where("send_id", "in", [...sendIds, ""])
      .execute();
  }

  async check(): Promise<void> {
    const looked = [...this.#sends].filter((id) => !this.#done.has(id));
    await this.#checkSums(looked);
    await this.#checkCredits();
    // Read before the catcher is asked: a row that is SENT now is in its answer, and a row in its answer is not QUEUED.
    const before = await this.#rows(looked);
    const settled = await this.#db
      .selectFrom("sends")
      .select("id")
      .where("id", "in", [...looked, ""])
      .where("settled_at", "is not", null)
      .execute();
    await this.#collect();
    for (const { send_id, seq, state } of before) {
      if (state === "SENT" && !this.#mails.get(send_id)?.has(seq)) {
        this.violated(`${send_id}: row ${seq} is SENT, and no mail of it was caught`);
      }
    }
    for (const { send_id, seq, state } of await this.#rows(looked)) {
      if (!MAYBE_CAUGHT.has(state) && this.#mails.get(send_id)?.has(seq)) {
        this.violated(`${send_id}: row ${seq} is ${state}, and its mail was caught`);
      }
    }
    for (const { id } of settled) this.#done.add(id);
  }

  async #checkSums(sendIds: string[]): Promise<void> {
    const { rows } = await sql<{ id: string; recipients: number; rows: number }>`
      select s.id, s.recipients, (select count(*)::int from send_recipients r where r.send_id = s.id) as rows
      from sends s where s.id = any(${sendIds}::text[])`.execute(this.#db);
    for (const { id, recipients, rows: found } of rows) {
      if (found !== recipients) this.violated(`${id}: its states add up to ${found} of ${recipients} recipients`);
    }
    const { rows: differing } = await sql<{ id: string }>`
      select distinct id from (
        select s.id, 'QUEUED' as state, s.recipients as count from sends s where s.id = any(${sendIds}::text[])
        union all
        select c.send_id, c.state, c.count from send_counts c where c.send_id = any(${sendIds}::text[])
        union all
        select r.send_id, r.state, -count(*) from send_recipients r where r.send_id = any(${sendIds}::text[])
        group by r.send_id, r.state
      ) both_ways group by id, state having sum(count) <> 0`.execute(this.#db);
    for (const { id } of differing) this.violated(`${id}: its counts are not those of its ledger`);
  }

  async #checkCredits(): Promise<void> {
    const { rows } = await sql<{ team_id: string }>`
      select b.team_id from credit_balances b join (
        select team_id, environment,
          sum(case kind when 'GRANT' then amount when 'RELEASE' then amount when 'RESERVE' then -amount else 0 end) as available,
          sum(case kind when 'RESERVE' then amount when 'RELEASE' then -amount when 'CONSUME' then -amount else 0 end) as reserved
        from credit_entries group by team_id, environment) e using (team_id, environment)
      where b.available <> e.available or b.reserved <> e.reserved`.execute(this.#db);
    for (const { team_id } of rows) this.violated(`${team_id}: its balance is not the sum of its credit entries`);
  }

  /** Everything once more, every send from its plan to its credits. */
  async checkAtEnd(): Promise<void> {
    this.#done.clear();
    await this.check();
    const ids = [...this.#sends];
    const found: Record<string, number> = {};
    for (const { send_id, seq, state } of await this.#rows(ids)) {
      found[state] = (found[state] ?? 0) + 1;
      if (["QUEUED", "SENDING", "DEFERRED"].includes(state)) {
        this.violated(`${send_id}: row ${seq} is ${state} at the end`);
      }
    }
    const { rows } = await sql<{ team_id: string; reserved: number; used: number; consumed: number }>`
      select b.team_id, b.reserved::int as reserved,
        (select count(*)::int from send_recipients r join sends s on s.id = r.send_id
          where s.team_id = b.team_id and r.state in ('SENT', 'UNKNOWN')) as used,
        (select coalesce(sum(amount), 0)::int from credit_entries e
          where e.team_id = b.team_id and e.kind = 'CONSUME') as consumed
      from credit_balances b where b.team_id = any(${[...this.#teams]}::text[])`.execute(this.#db);
    for (const { team_id, reserved, used, consumed } of rows) {
      if (reserved !== 0) this.violated(`${team_id}: ${reserved} credits are reserved at the end`);
      if (used !== consumed) this.violated(`${team_id}: ${consumed} credits consumed for ${used} mails`);
    }
    const statuses = await this.#db
      .selectFrom("sends")
      .select(["status", (eb) => eb.fn.countAll<string>().as("count")])
      .where("id", "in", [...ids, ""])
      .groupBy("status")
      .execute();
    this.summary = {
      ...Object.fromEntries(statuses.map((row) => [`sends ${row.status}`, Number(row.count)])),
      ...found,
    };
  }
}
