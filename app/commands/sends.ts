import { readFile } from "node:fs/promises";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { RECIPIENT_STATES, type RecipientState, SEND_STATUSES } from "../../db/entities/send.ts";
import { ApiError } from "../../domain/errors.ts";
import { NOT_SENT } from "../../domain/sends/ledger/unknown.ts";
import {
  type FoundSend,
  findSend,
  type LaneFacts,
  listSends,
  type RecipientFacts,
  readRecipients,
  readSendFacts,
  type SendFacts,
} from "../../domain/sends/operators/inspection.ts";
import { holdOpenSends } from "../../domain/sends/operators/unfinished.ts";
import { GONE } from "../../domain/sends/pause-reasons.ts";
import { TOKEN_LIFETIME_SECONDS } from "../../domain/sends/plan/token.ts";
import { holdSequences } from "../../domain/sequences/state.ts";
import { sendWorkflowId } from "../../temporal/ids.ts";
import {
  type AppCommand,
  argument,
  type Commands,
  command,
  flag,
  LIMIT,
  OF_ANY_TEAM,
  option,
  required,
} from "../command.ts";
import { listOf, wholeNumber } from "../options.ts";
import { counted, csvLine, RESTORED, refusedText, table, toJson } from "../output.ts";
import { anyTeamOf, noteTenant, type Outcome, type Session, uiOf } from "../session.ts";
import { WEEKDAYS } from "../weekdays.ts";

const SEND = { id: argument("a newsletter (nl_…), a campaign (cmp_…) or a send (send_…)") };

/** A command that gives the send's workflow an update. */
const updating = (update: string, description: string): AppCommand =>
  command(`${description}; the update ${update} of its workflow`, SEND, (session, { id }) =>
    giveUpdate(session, id, update),
  );

/** Sends of newsletters and campaigns: their state, their recipients, and the operators' commands. */
export const commands: Commands = {
  "send:show": command(
    "print a send: status and reason, times, recipients by state and account, its workflow",
    SEND,
    async (session, { id }) => {
      const em = session.orm.em.fork();
      const facts = await readSendFacts(em, await findSend(em, id));
      const workflow = sendWorkflowId(facts.sendId);
      const ui = uiOf(session, workflow);
      const details = session.hasTemporal
        ? await (await import("../workflows.ts")).readDetails(session, workflow)
        : null;
      return {
        text: describe(facts, { workflow, ui, details }),
        data: { send: { ...dataOf(facts), workflow, ui, details } },
      };
    },
  ),

  "send:list": command(
    "list sends: those that need an operator first, then those that have not ended; each the newest first",
    {
      ...LIMIT,
      status: option("<statuses>", ...listOf(SEND_STATUSES)),
      ...OF_ANY_TEAM,
    },
    async (session, { status: statuses, limit, ...options }) => {
      const teamId = await anyTeamOf(session, options);
      const sends = await listSends(session.orm.em.fork(), { statuses, teamId, limit });
      return {
        text: table(sends, "No send", {
          SEND: ({ sendId }) => sendId,
          OF: ({ resourceId }) => resourceId,
          NAME: ({ name }) => name,
          TEAM: ({ teamId }) => teamId,
          STATUS: ({ status }) => status,
          SENT: ({ sent, total }) => `${sent} of ${total}`,
          "A MINUTE": ({ perMinute }) => perMinute,
          LEFT: ({ minutesLeft }) => (minutesLeft === null ? null : hoursAndMinutes(minutesLeft)),
          "SEND AT": ({ sendAt }) => sendAt,
          "NEEDS YOU": ({ needs }) => needs,
        }),
        data: {
          sends: sends.map(({ sendId: id, resourceId: resource, teamId: team, needs, total, accountIds, ...send }) =>
            toJson({ id, resource, team, ...send, needsOperator: needs, recipients: total, accounts: accountIds }),
          ),
        },
      };
    },
  ),

  "send:recipients": command(
    "print the recipients of a send with their Message-IDs; with --json one object per line",
    {
      ...SEND,
      state: option("<states>", ...listOf(RECIPIENT_STATES)),
      csv: flag("print CSV (RFC 4180) with a header row"),
    },
    (session, { id, state: states, csv }) => print(session, { id, csv, states }, RECIPIENT),
  ),

  "send:unknown": command(
    "print the recipients of a send whose outcome is unknown, by row; fill in the last column of --csv for send:settle",
    { ...SEND, csv: flag("print CSV (RFC 4180) with a header row") },
    (session, { id, csv }) => print(session, { id, csv, states: ["UNKNOWN"] }, UNKNOWN),
  ),

  "send:settle": command(
    "record what the relay's log says of mails whose outcome is unknown: sent is final, not_sent is what send:resend-unknown mails",
    {
      ...SEND,
      file: required("<file>", "CSV: first a Message-ID or row, last sent or not_sent; - reads standard input"),
    },
    settle,
  ),

  "send:hold-all": command(
    "after a restore of the database, before dispatch starts: pause every send that has not ended, and every sequence",
    {},
    async ({ orm }) => {
      const held = await holdOpenSends(orm.em.fork());
      const sequences = await holdSequences(orm.em.fork());
      return {
        text: `PAUSED with database_restored: ${counted(held, "send")}, which send:resume or send:cancel takes on, and ${counted(sequences, "sequence")}, each of which sequence:resume asks about.`,
        data: { held, sequences },
      };
    },
  ),

  "send:pause": updating("pause", "hold a send; answers when no mail is in flight any more"),
  "send:resume": command(
    "continue a paused send; the update resume of its workflow",
    {
      ...SEND,
      althoughMailed: option(
        "<number>",
        "after a restore: mail again although so many mails had been sent, as send:show says",
        wholeNumber(1),
      ),
      gone: flag(
        "after policy_refusals: the mailboxes that the server calls unknown do not exist; they are suppressed",
      ),
    },
    (session, { id, althoughMailed, gone }) => giveUpdate(session, id, "resume", gone ? GONE : althoughMailed),
  ),
  "send:cancel": updating("cancel", "end a send for good, and release the credits of mails that were not sent"),
  "send:retry": updating(
    "retry",
    "try again now instead of waiting; of a send that has ended, count the unknown outcomes again",
  ),
  "send:resend-unknown": updating(
    "resendUnknown",
    "mail once more the recipients settled as not_sent, or all whose outcome is unknown where none is: some of those may get it twice",
  ),
};

/** A line for each fact; facts that there are not are left out. */
function describe(facts: SendFacts, { workflow, ui, details }: Record<"workflow" | "ui" | "details", string | null>) {
  const { sendId, resource, status, reason, needs, recipients, total, lanes } = facts;
  const days = facts.sendDays.map((day) => WEEKDAYS[day - 1]).join(", ");
  const isOfUnknown = needs === "unknown_outcomes";
  return linesOf([
    ["send", `${sendId} of ${resource.type} ${resource.id}, team ${facts.teamId}, ${facts.environment.toLowerCase()}`],
    ["status", reason === null ? status : `${status}: ${reason}`],
    [
      "needs you",
      isOfUnknown
        ? `unknown outcomes: send:unknown, send:settle, send:resend-unknown, or send:cancel to leave them`
        : needs,
    ],
    ["send_at", facts.sendAt],
    ["send days", days === "" ? "any" : `${days} in ${facts.timeZone}`],
    ["started", facts.startedAt],
    ["completed", facts.completedAt],
    ["decide until", facts.reviewUntil],
    ["recipients", `${total}${recipients ? `: ${countsText(recipients)}` : " in its preview"}`],
    ...lanes.map((lane) => ["account", laneText(lane)] as const),
    ["workflow", workflow],
    ["in the UI", ui],
    ["details", details],
  ]);
}

const linesOf = (facts: (readonly [string, string | null])[]): string =>
  facts.flatMap(([name, value]) => (value === null ? [] : [`${name.padEnd(13)}${value}`])).join("\n");

const countsText = (counts: Partial<Record<RecipientState, number>>): string =>
  RECIPIENT_STATES.flatMap((state) => (counts[state] ? [`${counts[state]} ${state}`] : [])).join(", ") || "none";

function laneText({ accountId, status, lastError, refusal, recipients }: LaneFacts): string {
  const error = lastError === null || status === "ACTIVE" ? "" : ` (${lastError})`;
  const refused = refusal ? `; ${refusedText(refusal)}` : "";
  return `${accountId} ${status ?? "is connected no longer"}${error}: ${countsText(recipients)}${refused}`;
}

const lowerCase = (counts: Partial<Record<RecipientState, number>>) =>
  Object.fromEntries(Object.entries(counts).map(([state, count]) => [state.toLowerCase(), count]));

const dataOf = (facts: SendFacts) => ({
  id: facts.sendId,
  [facts.resource.type]: facts.resource.id,
  team: facts.teamId,
  environment: facts.environment,
  status: facts.status,
  status_reason: facts.reason,
  needs_operator: facts.needs,
  send_at: facts.sendAt,
  send_days: facts.sendDays,
  time_zone: facts.timeZone,
  started_at: facts.startedAt,
  completed_at: facts.completedAt,
  review_until: facts.reviewUntil,
  recipients: { total: facts.total, ...(facts.recipients && lowerCase(facts.recipients)) },
  accounts: facts.lanes.map(({ accountId, status, lastError, refusal, recipients }) => ({
    id: accountId,
    status,
    last_error: lastError,
    refusal: refusal && toJson(refusal),
    recipients: lowerCase(recipients),
  })),
});

const hoursAndMinutes = (minutes: number): string => `${Math.floor(minutes / 60)} h ${minutes % 60} min`;

/** How recipients are printed: as columns of CSV or names of JSON, and as a line for people. */
interface Format {
  columns: Readonly<Record<string, (recipient: RecipientFacts) => string | number | null>>;
  line(recipient: RecipientFacts): string;
}

const outcomeOf = ({ reason }: RecipientFacts): string | null => (reason === NOT_SENT ? NOT_SENT : null);

const RECIPIENT: Format = {
  columns: {
    message_id: ({ messageId }) => messageId,
    email: ({ email }) => email,
    state: ({ state }) => state,
    reason: ({ reason }) => reason,
    attempts: ({ attempts }) => attempts,
    account: ({ accountId }) => accountId,
    updated_at: ({ updatedAt }) => updatedAt,
  },
  line: ({ messageId, email, state, reason, updatedAt }) =>
    `${messageId}  ${email}  ${state}${reason === null ? "" : ` (${reason})`}  ${updatedAt}`,
};

const UNKNOWN: Format = {
  columns: {
    row: ({ row }) => row,
    email: ({ email }) => email,
    message_id: ({ messageId }) => messageId,
    outcome: outcomeOf,
  },
  line: (recipient) => `${recipient.row}  ${recipient.email}  ${recipient.messageId}  ${outcomeOf(recipient) ?? ""}`,
};

/** Prints recipients as fast as they are read: by `head` for example, only the first ones. */
async function print(
  { orm, terminal, isJson }: Session,
  { id, csv, states }: { id: string; csv: boolean; states: RecipientState[] | undefined },
  { columns, line }: Format,
): Promise<undefined> {
  const em = orm.em.fork();
  const recipients = readRecipients(em, await findSend(em, id), states);
  const fields = Object.entries(columns);
  async function* lines() {
    if (csv) yield csvLine(Object.keys(columns));
    for await (const recipient of recipients) {
      if (csv) yield csvLine(fields.map(([, pick]) => pick(recipient)));
      else if (isJson)
        yield `${JSON.stringify(Object.fromEntries(fields.map(([name, pick]) => [name, pick(recipient)])))}\n`;
      else yield `${line(recipient)}\n`;
    }
  }
  try {
    await pipeline(Readable.from(lines()), terminal.stdout, { end: false });
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EPIPE")) throw error;
  }
}

const hasUnknown = ({ status, recipients }: SendFacts): boolean => status === "SENT" && (recipients?.UNKNOWN ?? 0) > 0;

/** The input of a send's workflow that continues from its state in Postgres. */
const resumedInput = ({ sendId, teamId, environment, resource }: FoundSend) => ({
  ...{ previewId: sendId, teamId, environment, resource },
  expiresInMs: TOKEN_LIFETIME_SECONDS * 1_000,
  resume: {},
});

/** The sentence that follows "no workflow runs": how the send continues, or why it does not. */
function remedyWithoutWorkflow(facts: SendFacts): string {
  const { status } = facts;
  if (status === "SCHEDULED" || status === "SENDING" || status === "PAUSED") return ` ${RESTORED}`;
  if (status !== "SENT") return "";
  return hasUnknown(facts)
    ? " Its review has ended, and its unknown outcomes stay as they are unless send:resend-unknown mails them again."
    : " No outcome is unknown.";
}

async function giveUpdate(
  session: Session,
  id: string,
  update: string,
  input?: number | typeof GONE,
): Promise<Outcome> {
  const { updateEndedSend, updateWorkflow, withTemporal } = await import("../workflows.ts");
  const em = session.orm.em.fork();
  const found = await findSend(em, id);
  noteTenant(session, found);
  const workflow = sendWorkflowId(found.sendId);
  const answer = await withTemporal(session, async (temporal) => {
    const given = await updateWorkflow(temporal, workflow, update, input);
    if (given !== undefined || update !== "resendUnknown" || !hasUnknown(await readSendFacts(em, found))) return given;
    // Its review has ended, and its workflow with it.
    return updateEndedSend(temporal, resumedInput(found), update);
  });
  const facts = await readSendFacts(em, found);
  const { status } = facts;
  if (answer === undefined) {
    const remedy = remedyWithoutWorkflow(facts);
    throw new ApiError(
      "resource_state_invalid",
      `No workflow of ${found.sendId} runs: the send is ${status}.${remedy}`,
    );
  }
  return {
    text: `${answer}\n${found.sendId} is ${status}`,
    data: { send: found.sendId, [found.resource.type]: found.resource.id, update, answer, status },
  };
}

async function settle(session: Session, { id, file }: { id: string; file: string }): Promise<Outcome> {
  const { parseOutcomes, settleUnknown } = await import("../../domain/sends/operators/settle-unknown.ts");
  const em = session.orm.em.fork();
  const found = await findSend(em, id);
  noteTenant(session, found);
  const csv = file === "-" ? await text(session.terminal.stdin) : await readFile(file, "utf8");
  const settled = await settleUnknown(em, found, parseOutcomes(csv, found.sendId));
  const facts = await readSendFacts(em, found);
  const left = facts.recipients?.UNKNOWN ?? 0;
  if (facts.reviewUntil !== null) {
    const { updateWorkflow, withTemporal } = await import("../workflows.ts");
    await withTemporal(session, (temporal) => updateWorkflow(temporal, sendWorkflowId(found.sendId), "retry"));
  }
  const known = settled.known > 0 ? ` ${settled.known} were known already, and stay as they are.` : "";
  return {
    text: `${settled.sent} sent, ${settled.not_sent} not sent.${known} ${left} are unknown now: send:resend-unknown mails those not sent alone, and all where there is none.`,
    data: { send: found.sendId, ...settled, unknown: left },
  };
}
