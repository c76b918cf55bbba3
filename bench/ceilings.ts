import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { kysely } from "../db/orm.ts";
import { readDraft } from "../domain/sends/drafts/draft.ts";
import { resolvePlan } from "../domain/sends/plan/plan.ts";
import { sendWorkflowId } from "../temporal/ids.ts";
import type { ApiAnswer } from "../test/support/api.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import {
  anotherNewsletter,
  confirm,
  credits,
  freshKey,
  ledgerStates,
  preview,
  resourceOf,
  type Sender,
  setTomorrow,
} from "../test/support/sending.ts";
import { stack } from "../test/support/stack.ts";
import { temporalClient } from "../test/support/temporal.ts";
import { makeAudience } from "./audience.ts";
import { type BenchReport, type Row, round, timed } from "./report.ts";

export interface CeilingsOptions extends StackChoice {
  recipients: number;
  /** Newsletters to the same list, one after the other. */
  repeat: number;
}

/** Between two tries of a request that was not answered: the times are exact to this. */
const REPEAT_MS = 100;
/** A request under a key whose first request is under way is answered within this time, without waiting for that one. */
const AT_ONCE_MS = 1_000;
/** Recipients of the two previews that come first. */
const WARM_UP_RECIPIENTS = 20;

/** A request, repeated under its Idempotency-Key until it is answered, as a client does. */
interface Repeated {
  answer: ApiAnswer;
  seconds: number;
  /** How often it was answered by 503, and by 409 `request_in_flight`. */
  unavailable: number;
  inFlight: number;
  /** The longest of the latter. */
  longestInFlightMs: number;
}

async function untilAnswered(request: () => Promise<ApiAnswer>): Promise<Repeated> {
  const startedAt = performance.now();
  const counts = { unavailable: 0, inFlight: 0, longestInFlightMs: 0 };
  for (;;) {
    const { ms, result: answer } = await timed(request);
    const code = answer.body?.error?.code;
    if (code === "request_in_flight") {
      counts.inFlight++;
      counts.longestInFlightMs = Math.max(counts.longestInFlightMs, ms);
    } else if (answer.status === 503) counts.unavailable++;
    else return { answer, seconds: (performance.now() - startedAt) / 1_000, ...counts };
    await delay(REPEAT_MS);
  }
}

async function untilPreviewed(sender: Sender): Promise<Repeated> {
  const key = freshKey();
  const previewed = await untilAnswered(() => preview(sender, key));
  if (previewed.answer.status !== 200) throw new Error(`the preview: ${previewed.answer.text}`);
  return previewed;
}

const sizeMiB = async ({ em }: Sender): Promise<number> => {
  const { rows } = await sql<{ mib: number }>`
    select (pg_database_size(current_database()) / 1048576)::int as mib`.execute(kysely(em));
  return rows[0]?.mib ?? Number.NaN;
};

/**
 * Previews, confirms for tomorrow and cancels newsletters to very many recipients, with the settings as they are. Two
 * previews to a few come before: the first shows what fresh processes add, which make connections and compile their code.
 */
export function benchCeilings(options: CeilingsOptions): Promise<BenchReport> {
  const { recipients, repeat } = options;
  return withStack(options, async () => {
    const { hostname, port } = new URL((await stack()).mail.smtp);
    const smtp = { host: hostname, port: Number(port) };
    const few = await makeAudience({ recipients: WARM_UP_RECIPIENTS, connections: 1, smtp });
    const warmUps = [await untilPreviewed(few), await untilPreviewed(few)];
    const filled = await timed(() => makeAudience({ recipients, connections: 1, smtp }));
    const runs: CeilingRun[] = [];
    while (runs.length < repeat) {
      const sender = runs.length === 0 ? filled.result : await anotherNewsletter(filled.result);
      runs.push(await measureNewsletter(sender, recipients));
    }
    const tables = {
      [`Previews of ${WARM_UP_RECIPIENTS} before`]: warmUps.map(({ seconds }, i) => ({
        preview: i + 1,
        s: round(seconds, 2),
      })),
      ...Object.fromEntries(runs.map(({ rows }, i) => [`Newsletter ${i + 1}`, rows])),
    };
    return {
      bench: "ceilings",
      options: {
        recipients,
        repeat,
        "subscribers written in, s": round(filled.ms / 1_000, 1),
        "database before the cancels, MiB": runs.map(({ mib }) => mib).join(", "),
      },
      tables,
      problems: runs.flatMap(({ problems }) => problems),
    };
  });
}

interface CeilingRun {
  rows: Row[];
  problems: string[];
  /** Size of the database before the cancel. */
  mib: number;
}

/** Previews, confirms for tomorrow and cancels one newsletter. */
async function measureNewsletter(sender: Sender, recipients: number): Promise<CeilingRun> {
  const problems: string[] = [];
  const rows: Row[] = [];
  const note = (step: string, seconds: number, more: Row = {}) => rows.push({ step, s: round(seconds, 2), ...more });

  await setTomorrow(sender);
  const tenant = { teamId: sender.team.id, environment: "LIVE" } as const;
  const resource = resourceOf(sender);
  const draft = await readDraft(sender.em, tenant, resource, { lock: false });
  note("count them, in Postgres", (await timed(() => resolvePlan(sender.em.fork(), draft))).ms / 1_000);

  const repeated = ({ seconds, unavailable, inFlight, longestInFlightMs }: Repeated, step: string) => {
    note(step, seconds, { "503": unavailable, "409": inFlight, "longest 409, ms": round(longestInFlightMs) });
    if (longestInFlightMs > AT_ONCE_MS) problems.push(`${step}: a 409 took ${round(longestInFlightMs)} ms`);
  };
  const previewed = await untilPreviewed(sender);
  repeated(previewed, "preview");

  const { token } = previewed.answer.body.data.confirmation;
  const confirmKey = freshKey();
  // The first request waits as long as the API lets it; those after it must not.
  const first = confirm(sender, token, confirmKey);
  await delay(REPEAT_MS);
  const confirmed = await untilAnswered(() => confirm(sender, token, confirmKey));
  repeated({ ...confirmed, seconds: confirmed.seconds + REPEAT_MS / 1_000 }, "confirm");
  if (confirmed.answer.status !== 202) throw new Error(`the confirm: ${confirmed.answer.text}`);
  const { status } = await first;
  if (status !== 202 && status !== 503) problems.push(`the first confirm was answered with ${status}`);

  const before = await credits(sender);
  const { QUEUED: queued = 0 } = await ledgerStates(sender);
  if (queued !== recipients || before.reserved !== recipients || before.mismatch) {
    problems.push(`${queued} of ${recipients} recipients are queued, ${before.reserved} credits reserved`);
  }
  const mib = await sizeMiB(sender);
  const { client, close } = await temporalClient();
  try {
    const handle = client.workflow.getHandle(sendWorkflowId(confirmed.answer.body.data.id));
    note("cancel", (await timed(() => handle.executeUpdate("cancel"))).ms / 1_000);
  } finally {
    await close();
  }
  const { CANCELLED: cancelled = 0 } = await ledgerStates(sender);
  const left = await credits(sender);
  if (cancelled !== recipients || left.reserved !== 0 || left.mismatch) {
    problems.push(`${cancelled} of ${recipients} recipients are cancelled, ${left.reserved} credits reserved`);
  }
  return { rows, problems, mib };
}
