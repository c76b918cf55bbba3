import assert from "node:assert/strict";
import type { SliceResult } from "../../activities/dispatch.ts";
import type { SendState } from "../../domain/sends/lifecycle.ts";
import { decide, type SendView, type Step } from "../../workflows/send-decision.ts";
import { ANSWERS, type CommandKind, DETAILS, retryAnswer } from "../../workflows/send-messages.ts";

const NOW = 1_000_000;

const send = (change: Partial<SendState> = {}): SendState => ({
  status: "SENDING",
  startsInMs: 0,
  recipients: 7,
  pauseReason: null,
  accountIds: ["acct_1"],
  ...change,
});

const view = (change: Partial<SendView> = {}): SendView => ({
  now: NOW,
  send: send(),
  isStale: false,
  isTokenExpired: false,
  slice: "none",
  accountFailures: 0,
  pauses: [],
  cancels: [],
  review: "open",
  isLong: false,
  ...change,
});

const unconfirmed = (change: Partial<SendView> = {}) => view({ send: undefined, ...change });
const last = (result: Partial<SliceResult>, at = NOW) => ({
  lastSlice: { mailed: 0, unknown: 0, ...result, at } as SendView["lastSlice"],
});
const settled = (unknown: number, change: Partial<SendView> = {}) =>
  view({
    send: send({ status: "SENT" }),
    settled: { status: "SENT", sent: 5, unknown, reviewUntil: NOW + 9_000 },
    ...change,
  });
const failing = (until: number) => ({ failing: { step: "begin", code: "database_57014", until } });

type Row = [title: string, view: SendView, command: CommandKind | undefined, step: Partial<Step>];

const TABLE: Row[] = [
  ["waits for the confirm", unconfirmed(), undefined, { kind: "wait", details: DETAILS.previewed, status: "PREVIEW" }],
  ["takes a preview", unconfirmed(), "preview", { kind: "preview" }],
  [
    "takes a confirm although the token expired: Postgres decides",
    unconfirmed({ isTokenExpired: true }),
    "confirm",
    { kind: "confirm" },
  ],
  [
    "looks for a confirm that it does not know when the token expires",
    unconfirmed({ isTokenExpired: true }),
    undefined,
    { kind: "read" },
  ],
  ["looks for a confirm that it does not know before it refuses a pause", unconfirmed(), "pause", { kind: "read" }],
  ["voids the token on a cancel before the confirm", unconfirmed(), "cancel", { kind: "cancel" }],
  [
    "ends when the preview was refused",
    unconfirmed({ neverBegan: "refused" }),
    undefined,
    { kind: "end", outcome: "refused", status: "REFUSED" },
  ],
  ["takes another preview before it ends", unconfirmed({ neverBegan: "refused" }), "preview", { kind: "preview" }],
  [
    "ends when the token expired",
    unconfirmed({ neverBegan: "expired" }),
    undefined,
    { kind: "end", outcome: "expired", status: "EXPIRED" },
  ],

  ["reads what may have changed", view({ isStale: true }), undefined, { kind: "read" }],
  ["reads before a command", view({ isStale: true }), "pause", { kind: "read" }],
  ["retries without a read", view({ isStale: true }), "retry", { kind: "retry" }],
  [
    "waits for send_at",
    view({ send: send({ status: "SCHEDULED", startsInMs: 4_000 }) }),
    undefined,
    { kind: "wait", ms: 4_000, details: DETAILS.scheduled(7) },
  ],
  [
    "asks the database clock again after six hours",
    view({ send: send({ status: "SCHEDULED", startsInMs: 1e9 }) }),
    undefined,
    { kind: "wait", ms: 21_600_000 },
  ],
  ["begins at send_at", view({ send: send({ status: "SCHEDULED" }) }), undefined, { kind: "begin" }],
  ["dispatches to the account of its lane", view(), undefined, { kind: "dispatch", accountId: "acct_1" }],
  ["dispatches again after a slice that was full", view(last({ next: "continue" })), undefined, { kind: "dispatch" }],
  ["settles once nothing is left", view(last({ next: "done" })), undefined, { kind: "settle" }],
  [
    "waits for a deferred recipient",
    view(last({ next: "deferred", waitMs: 3_000 }, NOW - 1_000)),
    undefined,
    { kind: "wait", ms: 2_000, details: DETAILS.deferred },
  ],
  [
    "dispatches when a deferred recipient is due",
    view(last({ next: "deferred", waitMs: 3_000 }, NOW - 3_000)),
    undefined,
    { kind: "dispatch" },
  ],
  [
    "waits for room of the account",
    view(last({ next: "account_full", waitMs: 500 })),
    undefined,
    { kind: "wait", ms: 500, details: DETAILS.accountFull },
  ],
  [
    "waits after a first account failure",
    view({ accountFailures: 1, ...last({ next: "failure", reason: "timeout", temporary: true }) }),
    undefined,
    { kind: "wait", ms: 5_000, needsOperator: false, details: DETAILS.accountFails("timeout", 5_000) },
  ],
  [
    "calls an operator at the third account failure",
    view({ accountFailures: 3, ...last({ next: "failure", reason: "timeout", temporary: true }) }),
    undefined,
    { kind: "wait", ms: 20_000, needsOperator: true },
  ],
  [
    "waits as long as its account has to, whose server refused it",
    view({
      accountFailures: 3,
      ...last({ next: "failure", reason: "login_refused", temporary: true, retryInMs: 2_500 }),
    }),
    undefined,
    { kind: "wait", ms: 2_500, needsOperator: true, details: DETAILS.accountFails("login_refused", 2_500) },
  ],
  [
    "pauses for a failure that does not pass",
    view(last({ next: "failure", reason: "login_refused", temporary: false })),
    undefined,
    { kind: "pauseForFailure", reason: "login_refused" },
  ],

  ["waits for the slice", view({ slice: "under way" }), undefined, { kind: "wait", details: DETAILS.mailing(7) }],
  ["carries a pause out during a slice", view({ slice: "under way" }), "pause", { kind: "pause" }],
  ["carries a cancel out during a slice", view({ slice: "under way" }), "cancel", { kind: "cancel" }],
  [
    "waits for the mails in flight of a pause",
    view({ slice: "ending", send: send({ status: "PAUSED" }), pauses: [1] }),
    undefined,
    { kind: "wait", details: DETAILS.pausing, status: "PAUSED" },
  ],
  [
    "takes a resume that overtakes the pause",
    view({ slice: "ending", send: send({ status: "PAUSED" }), pauses: [1] }),
    "resume",
    { kind: "resume" },
  ],
  [
    "waits for the mails in flight before it mails on",
    view({ slice: "ending" }),
    undefined,
    { kind: "wait", details: DETAILS.continuing },
  ],
  [
    "lists the rows that a dead worker left in flight before a pause is answered",
    view({ send: send({ status: "PAUSED" }), pauses: [1] }),
    undefined,
    { kind: "closeLost" },
  ],
  [
    "stays paused until an operator resumes",
    view({ send: send({ status: "PAUSED" }) }),
    undefined,
    { kind: "wait", details: DETAILS.paused, needsOperator: false },
  ],
  [
    "calls an operator when its account paused it",
    view({ send: send({ status: "PAUSED", pauseReason: "login_refused" }) }),
    undefined,
    { kind: "wait", details: DETAILS.pausedFor("login_refused"), needsOperator: true },
  ],
  [
    "calls an operator when its workflow was ended",
    view({ send: send({ status: "PAUSED", pauseReason: "workflow_ended" }) }),
    undefined,
    { kind: "wait", details: DETAILS.cameBack, needsOperator: true },
  ],

  [
    "waits for the mails in flight of a cancel",
    view({ slice: "ending", send: send({ status: "CANCELLED" }), cancels: [1] }),
    undefined,
    { kind: "wait", details: DETAILS.cancelling },
  ],
  [
    "settles a cancelled send",
    view({ send: send({ status: "CANCELLED" }), cancels: [1] }),
    undefined,
    { kind: "settle" },
  ],
  [
    "ends once it is settled",
    settled(0),
    undefined,
    { kind: "end", outcome: "SENT", details: DETAILS.settled(5, 0), needsOperator: false },
  ],
  [
    "ends as CANCELLED",
    settled(2, {
      send: send({ status: "CANCELLED" }),
      settled: { status: "CANCELLED", sent: 1, unknown: 2, reviewUntil: NOW },
    }),
    undefined,
    { kind: "end", outcome: "CANCELLED" },
  ],
  [
    "stays open for a decision about unknown outcomes",
    settled(2),
    undefined,
    { kind: "wait", ms: 9_000, details: `${DETAILS.settled(5, 2)} ${DETAILS.review}`, needsOperator: true },
  ],
  ["closes the review when its time has ended", settled(2, { now: NOW + 9_000 }), undefined, { kind: "closeReview" }],
  [
    "closes the review when an operator leaves them unknown",
    settled(2, { review: "dismissed" }),
    undefined,
    { kind: "closeReview" },
  ],
  ["ends after the review", settled(2, { review: "closed" }), undefined, { kind: "end", outcome: "SENT" }],
  ["resends after the settlement", settled(2), "resendUnknown", { kind: "resendUnknown" }],
  [
    "says that a resend waits",
    settled(2, { resendAt: NOW + 2_500 }),
    undefined,
    { kind: "wait", details: DETAILS.resending(2_500) },
  ],
  ["mails on while a resend waits", view({ resendAt: NOW + 2_500 }), undefined, { kind: "dispatch" }],

  [
    "waits before it tries a failing step again",
    view({ send: send({ status: "SCHEDULED" }), ...failing(NOW + 5_000) }),
    undefined,
    {
      kind: "wait",
      ms: 5_000,
      needsOperator: true,
      details: 'The step "begin" failed three times (database_57014); tries again in 5 s. Updates: retry, cancel.',
    },
  ],
  [
    "tries a failing step again",
    view({ send: send({ status: "SCHEDULED" }), ...failing(NOW) }),
    undefined,
    { kind: "begin" },
  ],
  ["takes a cancel while a step is failing", view(failing(NOW + 5_000)), "cancel", { kind: "cancel" }],
  ["takes a retry while a step is failing", view(failing(NOW + 5_000)), "retry", { kind: "retry" }],

  [
    "continues as a new run instead of a wait",
    view({ isLong: true, send: send({ status: "PAUSED" }) }),
    undefined,
    { kind: "continueAsNew" },
  ],
  ["continues as a new run instead of a slice", view({ isLong: true }), undefined, { kind: "continueAsNew" }],
  [
    "continues as a new run while a step is failing",
    view({ isLong: true, ...failing(NOW + 5_000) }),
    undefined,
    { kind: "continueAsNew" },
  ],
  ["carries a command out before it continues as a new run", view({ isLong: true }), "pause", { kind: "pause" }],
  [
    "brings a cancel to its end before it continues as a new run",
    view({ isLong: true, cancels: [1] }),
    undefined,
    { kind: "dispatch" },
  ],
  [
    "settles instead of continuing as a new run",
    view({ isLong: true, ...last({ next: "done" }) }),
    undefined,
    { kind: "settle" },
  ],
  [
    "shows a command that fails during a slice",
    view({ slice: "under way", ...failing(NOW + 5_000) }),
    undefined,
    { kind: "wait", needsOperator: true },
  ],
  [
    "answers a pause before it continues as a new run",
    view({ isLong: true, send: send({ status: "PAUSED" }), pauses: [1], ...failing(NOW + 5_000) }),
    undefined,
    { kind: "wait", needsOperator: true },
  ],
  [
    "stays in its run while a slice is under way and a command fails",
    view({ isLong: true, slice: "under way", ...failing(NOW + 5_000) }),
    undefined,
    { kind: "wait" },
  ],
  [
    "waits for a slice after which an operator wants another at once",
    view({ slice: "retried" }),
    undefined,
    { kind: "wait", details: DETAILS.mailing(7) },
  ],
];

describe("The next step of a send", () => {
  for (const [title, given, command, expected] of TABLE) {
    it(title, () => {
      const before = structuredClone(given);
      assert.partialDeepStrictEqual(decide(given, command), expected);
      assert.deepEqual(given, before, "the decision changes nothing");
    });
  }
});

describe("The answer to a retry", () => {
  const failing = { step: "settle", code: "database_57014", until: 0 };
  for (const [what, view, answer] of [
    ["while a step fails", { failing, send: { status: "CANCELLED" }, slice: "none" }, ANSWERS.retry],
    ["between two slices", { send: { status: "SENDING" }, slice: "none" }, ANSWERS.retry],
    ["during a slice", { send: { status: "SENDING" }, slice: "under way" }, ANSWERS.retryMailing],
    [
      "of a cancelled send with mails in flight",
      { send: { status: "CANCELLED" }, slice: "ending" },
      ANSWERS.retryEnding,
    ],
    ["of a cancelled send that is not settled", { send: { status: "CANCELLED" }, slice: "none" }, ANSWERS.retryEnding],
    ["of a failed send that is not settled", { send: { status: "FAILED" }, slice: "none" }, ANSWERS.retryEnding],
    ["of a sent send that is counted again", { send: { status: "SENT" }, slice: "none" }, ANSWERS.retryEnded],
    ["of a cancelled resend with mails in flight", { send: { status: "SENT" }, slice: "ending" }, ANSWERS.retryEnding],
    ["of a settled send", { settled: {}, send: { status: "SENT" }, slice: "none" }, ANSWERS.retryEnded],
  ] as const) {
    it(`${what} is: ${answer}`, () => assert.equal(retryAnswer(view), answer));
  }
});
