import { readFile } from "node:fs/promises";
import { type EntityManager, forTenant, type Tenant } from "../../db/orm.ts";
import { parseKey, presentKeyId } from "../../domain/access/keys.ts";
import { ApiError } from "../../domain/errors.ts";
import { listSequences, type ShownSequence, showSequence } from "../../domain/sequences/progress.ts";
import {
  createSequence,
  deleteSequence,
  resumeSequence,
  startSequence,
  stopSequence,
} from "../../domain/sequences/sequences.ts";
import { pauseSequence, type Sequence } from "../../domain/sequences/state.ts";
import { saveSteps } from "../../domain/sequences/steps.ts";
import {
  type AppCommand,
  argument,
  type Commands,
  command,
  flag,
  LIMIT,
  OF_ANY_TEAM,
  OF_TEAM,
  option,
  required,
} from "../command.ts";
import { address, listOf, parseJson, recordName } from "../options.ts";
import { counted, table, toJson } from "../output.ts";
import { anyTeamOf, inOwnersTenant, inTenant, ownerOf, type Session, teamOf } from "../session.ts";
import { WEEKDAYS } from "../weekdays.ts";

const STATUSES = ["DRAFT", "ACTIVE", "PAUSED", "STOPPED"] as const;
const SEQUENCE = { id: argument("the sequence (cmp_…)") };

const moving = (description: string, move: (em: EntityManager, id: string) => Promise<Sequence>): AppCommand =>
  command(description, SEQUENCE, async (session, { id }) => {
    const { status, reason } = await move(session.orm.em.fork(), id);
    await ownerOf(session, "campaigns", id);
    return {
      text: `${id} is ${statusText({ status, reason })}`,
      data: { sequence: { id, status, status_reason: reason } },
    };
  });

/** Sequences of mails over time: the API reads them, and never writes them. */
export const commands: Commands = {
  "sequence:create": command(
    "make a sequence as a draft: mails that follow each other, to those who come onto a list or into a segment",
    {
      name: argument("its name, for the team alone", recordName),
      ...OF_TEAM,
      list: { ...option("<id>", "the list whose confirmed subscribers it mails"), conflicts: ["segment"] },
      segment: option("<id>", "the segment whose contacts it mails"),
      from: required("<address>", "the address in From", address),
      fromName: option("<name>", "the name in From; that of the sending account unless given", recordName),
    },
    async (session, { name, list: listId, segment: segmentId, from: fromEmail, fromName = null, ...options }) => {
      const tenant: Tenant = { teamId: await teamOf(session, options), environment: "LIVE" };
      const sequence = { name, listId, segmentId, fromEmail, fromName };
      const id = await inTenant(session, tenant, (em) =>
        createSequence(em, tenant, sequence, session.env.MAX_CAMPAIGNS),
      );
      return { text: `${id} is drafted: give it steps with sequence:steps`, data: { sequence: { id } } };
    },
  ),

  "sequence:steps": command(
    "set the steps of a sequence, also while it runs; those that are left out are removed",
    {
      ...SEQUENCE,
      file: required(
        "<file>",
        "JSON: a list of steps, each with id, wait_minutes, subject and body, and perhaps time_of_day, send_days, stop_if and skip_if",
      ),
    },
    async (session, { id, file }) => {
      const tenant = await ownerOf(session, "campaigns", id);
      const given = parseJson(await readFile(file, "utf8"), `${file} is not valid JSON.`);
      const saved = await saveSteps(forTenant(session.orm.em, tenant), tenant, id, given);
      const { steps, added, changed, removed } = saved;
      return {
        text: `${id} has ${counted(steps, "step")}: ${added} added, ${changed} changed, ${removed} removed`,
        data: { sequence: { id, ...saved } },
      };
    },
  ),

  "sequence:start": command(
    "start a sequence: those who come onto its list, or into its segment, from now on enter it",
    {
      ...SEQUENCE,
      key: option(
        "<id>",
        "the key that gives it its domains and its daily cap: its id, or its visible part mk_live_…; that of a running stack unless given",
      ),
      includeMembers: flag("let those who are there now enter it, too"),
    },
    async (session, { id, key, includeMembers }) => {
      const start = { key: key ?? keyOfStack(session), includeMembers };
      await inOwnersTenant(session, "campaigns", id, (em, tenant) => startSequence(em, tenant, id, start));
      return { text: `${id} is ACTIVE`, data: { sequence: { id, status: "ACTIVE" } } };
    },
  ),

  "sequence:pause": moving("hold a sequence; mails that are under way are mailed", (em, id) =>
    pauseSequence(em, id, null),
  ),

  "sequence:resume": command(
    "continue a paused sequence: of those who fell due, 1,000 are mailed at once and the others within the hour",
    {
      ...SEQUENCE,
      key: option("<id>", "in place of the key that it was started with"),
      mailDue: {
        ...flag("mail those who were due when it was paused: after a restore, some of them get the mail twice"),
        conflicts: ["skipDue"],
      },
      skipDue: flag("let those pass their step unmailed: after a restore, some of them never get the mail"),
    },
    async (session, { id, key, mailDue, skipDue }) => {
      const resumption = { key, due: mailDue ? "mail" : skipDue ? "skip" : undefined } as const;
      const counts = await inOwnersTenant(session, "campaigns", id, (em) => resumeSequence(em, id, resumption));
      const { due, spread, skipped } = counts;
      return {
        text: `${id} is ACTIVE; mailed now: ${due - spread}, within the hour: ${spread}, skipped: ${skipped}`,
        data: { sequence: { id, status: "ACTIVE", ...counts } },
      };
    },
  ),

  "sequence:stop": moving("end a sequence for good: those who wait leave it", stopSequence),

  "sequence:show": command(
    "print a sequence: status and reason, its people, and by step those who wait, and what became of its mails",
    SEQUENCE,
    async (session, { id }) => {
      const tenant = await ownerOf(session, "campaigns", id);
      const shown = await showSequence(forTenant(session.orm.em, tenant), tenant, id);
      // `toJson` would rewrite their keys: states of people, and ids of steps.
      const { people, steps, waiting, unknown, ...facts } = shown;
      return { text: describe(shown), data: { sequence: { id, ...toJson(facts), people, waiting, unknown, steps } } };
    },
  ),

  "sequence:list": command(
    "list sequences: those that are paused first, then the newest",
    {
      ...LIMIT,
      status: option("<statuses>", ...listOf(STATUSES)),
      ...OF_ANY_TEAM,
    },
    async (session, { status: statuses, limit, ...options }) => {
      const teamId = await anyTeamOf(session, options);
      const tenant = teamId === undefined ? undefined : ({ teamId, environment: "LIVE" } as const);
      const filter = { tenant, statuses, isForOperators: true, limit };
      const sequences = await listSequences(session.orm.em.fork(), filter);
      const text = table(sequences, "No sequence", {
        SEQUENCE: ({ id }) => id,
        NAME: ({ name }) => name,
        TEAM: ({ team }) => team,
        STATUS: ({ status }) => status,
        REASON: ({ status_reason }) => status_reason,
        WAITING: ({ waiting }) => waiting,
        "NEXT DUE": ({ next_due_at }) => next_due_at,
      });
      return { text, data: { sequences } };
    },
  ),

  "sequence:delete": command(
    "delete a sequence that has mailed no person: a draft, or a stopped one",
    SEQUENCE,
    async (session, { id }) => {
      await inOwnersTenant(session, "campaigns", id, (em) => deleteSequence(em, id));
      return { text: `${id} is deleted`, data: { sequence: { id } } };
    },
  ),
};

/** The visible part of the key of the demo team. */
export function keyOfStack({ stack }: Session): string {
  const key = stack && parseKey(stack.keys.live);
  if (!key) throw new ApiError("validation_failed", "Name the key with --key.");
  return presentKeyId(key.environment, key.publicId);
}

const statusText = ({ status, reason }: { status: string; reason: string | null }): string =>
  reason === null ? status : `${status}: ${reason}`;

function describe(sequence: ShownSequence): string {
  const { campaignId, name, status, listId, segmentId, fromEmail, areMembersNoted } = sequence;
  const people = Object.entries(sequence.people).map(([state, count]) => `${count} ${state}`);
  return [
    `${campaignId}  ${name}`,
    `status       ${statusText(sequence)}`,
    `mails        ${listId ?? segmentId} from ${fromEmail}`,
    `people       ${people.join(", ") || "none"}${areMembersNoted || status === "DRAFT" ? "" : "; members are being noted"}`,
    `next due     ${sequence.nextDueAt ?? "none"}`,
    `mailed today ${sequence.mailedToday}`,
    ...sequence.waves.map((wave) => `wave         ${wave.id} ${statusText(wave)}`),
    ...sequence.steps.map(({ id, wait_minutes, time_of_day, send_days, ...counts }) => {
      const days = send_days.map((day) => WEEKDAYS[day - 1]).join(", ");
      const time = `${time_of_day === null ? "" : ` at ${time_of_day}`}${days === "" ? "" : ` on ${days}`}`;
      const { waiting, sent, opened, clicked, left } = counts;
      const unknown = sequence.unknown[id] ?? 0;
      return `step ${id}, after ${wait_minutes} min${time}: ${waiting} waiting, ${sent} sent, ${unknown} unknown, ${opened} opened, ${clicked} clicked, ${left} left`;
    }),
  ].join("\n");
}
