import { sql } from "kysely";
import { kysely } from "../db/orm.ts";
import { resumeSequence } from "../domain/sequences/sequences.ts";
import { pauseSequence } from "../domain/sequences/state.ts";
import { makeSender, type Sender } from "../test/support/sending.ts";
import { addPerson, makeSequence, soon, stateOf } from "../test/support/sequences.ts";
import type { Random } from "./soak-chance.ts";

interface Person {
  email: string;
  state: string;
  reason: string | null;
  /** For each step in order, the states of their rows in waves. */
  steps: Record<string, string[]>;
}

/** States of a mail that may have arrived, and those that pass the step without one. */
const MAYBE_GOT = new Set(["SENT", "UNKNOWN"]);
const PASSED = new Set([...MAYBE_GOT, "EXPIRED", "REJECTED"]);
const STEPS = ["a", "b"];

/** A sequence of two steps, onto whose list people come all the time. */
export class SoakSequence {
  readonly sender: Sender;
  readonly #id: string;

  private constructor(sender: Sender, id: string) {
    this.sender = sender;
    this.#id = id;
  }

  static async make(): Promise<SoakSequence> {
    const sender = await makeSender({ recipients: [], credits: 100_000, dailySendCap: 100_000 });
    const steps = [soon("a"), soon("b", { wait_minutes: 1 })];
    return new SoakSequence(sender, await makeSequence(sender, { steps }));
  }

  get #em() {
    return this.sender.em.fork();
  }

  /** Someone comes onto the list, leaves it, or an operator pauses. @returns what was done */
  async meddle(chance: Random): Promise<string> {
    const roll = chance.between(1, 20);
    if (roll === 1) {
      await pauseSequence(this.#em, this.#id, null);
      return "pauses of the sequence";
    }
    if (roll === 2) {
      await sql`update subscriptions set status = 'UNSUBSCRIBED' where subscriber_id = (
        select id from subscribers where team_id = ${this.sender.team.id} order by random() limit 1)`.execute(
        kysely(this.#em),
      );
      return "people who left the list";
    }
    await addPerson({ ...this.sender, em: this.#em }, `p${chance.between(0, 1e9)}@${this.sender.audience}`);
    return "people who came onto the list";
  }

  async waves(): Promise<{ id: string; status: string }[]> {
    const { rows } = await sql<{ id: string; status: string }>`
      select id, status from sends where resource_id = ${this.#id}`.execute(kysely(this.#em));
    return rows;
  }

  /** As an operator does. @returns why it was PAUSED, undefined when it was not */
  async resume(): Promise<string | undefined> {
    const { status, reason } = await stateOf(this.#em, this.#id);
    if (status !== "PAUSED") return undefined;
    await resumeSequence(this.#em, this.#id);
    return reason ?? "a command";
  }

  async #people(): Promise<Person[]> {
    const { rows } = await sql<Person>`
      select m.email, e.state, e.reason, (
        select coalesce(json_object_agg(w.step_id, w.states), '{}') from (
          select v.step_id, json_agg(r.state) as states from sends s join sequence_step_versions v on v.id = s.step_version_id
          join send_recipients r on r.send_id = s.id and r.member_id = m.id where s.resource_id = ${this.#id} group by v.step_id) w) as steps
      from subscribers m left join sequence_enrolments e on e.campaign_id = ${this.#id} and e.member_id = m.id
      where m.team_id = ${this.sender.team.id}`.execute(kysely(this.#em));
    return rows;
  }

  /** No person waits. */
  async isDone(): Promise<boolean> {
    return (await this.#people()).every(({ state }) => state !== "ACTIVE");
  }

  /** No person got a step twice, and no person who stayed lost one. @returns counts, of unknown mails too */
  async check(violated: (what: string) => void): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const { email, state, reason, steps } of await this.#people()) {
      const name = `sequence ${state}${reason === null ? "" : ` ${reason}`}`;
      counts[name] = (counts[name] ?? 0) + 1;
      if (state !== "COMPLETED" && state !== "LEFT") violated(`${email} is ${state} in the sequence at the end`);
      for (const step of STEPS) {
        const states = steps[step] ?? [];
        if (states.filter((each) => MAYBE_GOT.has(each)).length > 1)
          violated(`${email} got step ${step} twice: ${states}`);
        if (state === "COMPLETED" && !states.some((each) => PASSED.has(each))) {
          violated(`${email} completed the sequence without step ${step}: ${states}`);
        }
        const unknown = states.filter((each) => each === "UNKNOWN").length;
        if (unknown > 0) counts["sequence unknown"] = (counts["sequence unknown"] ?? 0) + unknown;
      }
    }
    return counts;
  }
}
