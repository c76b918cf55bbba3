import assert from "node:assert/strict";
import fc from "fast-check";
import type { SliceResult } from "../../activities/dispatch.ts";
import type { SendState } from "../../domain/sends/ledger/lifecycle.ts";
import { type LaneView, takenOverBy } from "../../workflows/lane-view.ts";
import { decide, type SendView, type Step } from "../../workflows/send-decision.ts";
import { ANSWERS, type CommandKind, DETAILS, LANE_STATES, retryAnswer } from "../../workflows/send-messages.ts";

const NOW = 1_000_000;

const send = (change: Partial<SendState> = {}): SendState => ({
  status: "SENDING",
  startsInMs: 0,
  recipients: 7,
  sent: 3,
  since: "2026-11-22T10:00:00.000Z",
  startsAt: "2026-11-22T10:00:00.000Z (mon, fri in UTC)",
  pauseReason: null,
  resumes: 0,
  accountIds: ["acct_1"],
  closedEpochs: {},
  ...change,
});

const lane = (change: Partial<LaneView> = {}): LaneView => ({
  accountId: "acct_1",
  slice: "none",
  accountFailures: 0,
  mayFindMore: false,
  ...change,
});

/** A send over one lane unless others are given; the facts of its lane stand among those of the send. */
const view = ({
  slice = "none",
  accountFailures = 0,
  lastSlice,
  ...change
}: Partial<SendView & LaneView> = {}): SendView => ({
  now: NOW,
  send: send(),
  isStale: false,
  isTokenExpired: false,
  lanes: [lane({ slice, accountFailures, ...(lastSlice && { lastSlice }) })],
  pauses: [],
  cancels: [],
  review: "open",
  isLong: false,
  ...change,
});

const unconfirmed = (change: Partial<SendView> = {}) => view({ send: undefined, lanes: [], ...change });
const last = (result: Partial<SliceResult>, at = NOW) => ({
  lastSlice: { mailed: 0, ...result, at } as NonNullable<LaneView["lastSlice"]>,
});
/** A send over the lanes of `acct_1`, `acct_2`, and so on. */
const lanes = (changes: Partial<LaneView>[], change: Partial<SendView> = {}) =>
  view({ ...change, lanes: changes.map((each, i) => lane({ accountId: `acct_${i + 1}`, ...each })) });
const over = (...states: string[]) =>
  DETAILS.mailing(
    7,
    states.map((state, i) => `acct_${i + 1} ${state}`),
  );
const temporaryFailure = { next: "failure", reason: "timeout", temporary: true } as const;
const failedFor = (reason: string) => last({ next: "failure", reason, temporary: false });
const busy = { slice: "under way" } as const;
const settled = (unknown: number, change: Partial<SendView> = {}) =>
  view({
    send: send({ status: "SENT" }),
    settled: { status: "SENT", sent: 5, unknown, reviewUntil: NOW + 9_000 },
    ...change,
  });
const failing = (until: number) => ({ failing: { step: "begin", code: "database_57014", until } });

type Row = [title: string, view: SendView, step: Partial<Step>, command?: CommandKind];

const TABLE: Row[] = [
  ["waits for the confirm", unconfirmed(), { kind: "wait", details: DETAILS.previewed, status: "PREVIEW" }],
  ["takes a preview", unconfirmed(), { kind: "preview" }, "preview"],
  [
    "takes a confirm although the token expired: Postgres decides",
    unconfirmed({ isTokenExpired: true }),
    { kind: "confirm" },
    "confirm",
  ],
  [
    "looks for a confirm that it does not know when the token expires",
    unconfirmed({ isTokenExpired: true }),
    { kind: "read" },
  ],
  ["looks for a confirm that it does not know before it refuses a pause", unconfirmed(), { kind: "read" }, "pause"],
  ["voids the token on a cancel before the confirm", unconfirmed(), { kind: "cancel" }, "cancel"],
  [
    "ends when the preview was refused",
    unconfirmed({ neverBegan: "refused" }),
    { kind: "end", outcome: "refused", status: "REFUSED" },
  ],
  ["takes another preview before it ends", unconfirmed({ neverBegan: "refused" }), { kind: "preview" }, "preview"],

  ["reads what may have changed", view({ isStale: true }), { kind: "read" }],
  ["reads before a command", view({ isStale: true }), { kind: "read" }, "pause"],
  ["retries without a read", view({ isStale: true }), { kind: "retry" }, "retry"],
  [
    "waits for send_at",
    view({ send: send({ status: "SCHEDULED", startsInMs: 4_000 }) }),
    { kind: "wait", ms: 4_000, details: DETAILS.scheduled(7) },
  ],
  [
    "asks the database clock again after six hours",
    view({ send: send({ status: "SCHEDULED", startsInMs: 1e9 }) }),
    { kind: "wait", ms: 21_600_000 },
  ],
  ["begins at send_at", view({ send: send({ status: "SCHEDULED" }) }), { kind: "begin" }],
  ["dispatches to the account of its lane", view(), { kind: "dispatch", accountId: "acct_1" }],
  ["dispatches again after a slice that was full", view(last({ next: "continue" })), { kind: "dispatch" }],
  ["settles once nothing is left", view(last({ next: "done" })), { kind: "settle" }],
  [
    "waits for a deferred recipient",
    view(last({ next: "deferred", waitMs: 3_000 }, NOW - 1_000)),
    { kind: "wait", ms: 2_000, details: over(LANE_STATES.deferred(NOW + 2_000)) },
  ],
  [
    "dispatches when a deferred recipient is due",
    view(last({ next: "deferred", waitMs: 3_000 }, NOW - 3_000)),
    { kind: "dispatch" },
  ],
  [
    "waits for room of the account",
    view(last({ next: "account_full", waitMs: 500 })),
    { kind: "wait", ms: 500, details: over(LANE_STATES.accountFull(NOW + 500)) },
  ],
  [
    "waits after a first account failure",
    view({ accountFailures: 1, ...last({ next: "failure", reason: "timeout", temporary: true }) }),
    { kind: "wait", ms: 5_000, needsOperator: false, details: over(LANE_STATES.accountFails("timeout", NOW + 5_000)) },
  ],
  [
    "calls an operator at the third account failure",
    view({ accountFailures: 3, ...last({ next: "failure", reason: "timeout", temporary: true }) }),
    { kind: "wait", ms: 20_000, needsOperator: true },
  ],
  [
    "waits as long as its account has to, whose server refused it",
    view({
      accountFailures: 3,
      ...last({ next: "failure", reason: "login_refused", temporary: true, retryInMs: 2_500 }),
    }),
    {
      kind: "wait",
      ms: 2_500,
      needsOperator: true,
      details: over(LANE_STATES.accountFails("login_refused", NOW + 2_500)),
    },
  ],
  [
    "pauses for a failure that does not pass",
    view(last({ next: "failure", reason: "login_refused", temporary: false })),
    { kind: "pauseForFailure", reason: "login_refused" },
  ],

  ["waits for the slice", view({ slice: "under way" }), { kind: "wait", details: over(LANE_STATES.mailing) }],
  ["reads at a wake-up during a slice", view({ slice: "under way", isStale: true }), { kind: "read" }],
  ["carries a pause out during a slice", view({ slice: "under way" }), { kind: "pause" }, "pause"],
  ["carries a cancel out during a slice", view({ slice: "under way" }), { kind: "cancel" }, "cancel"],
  [
    "waits for the mails in flight of a pause",
    view({ slice: "ending", send: send({ status: "PAUSED" }), pauses: [1] }),
    { kind: "wait", details: DETAILS.pausing, status: "PAUSED" },
  ],
  [
    "waits for the mails in flight before it mails on",
    view({ slice: "ending" }),
    { kind: "wait", details: over(LANE_STATES.ending) },
  ],
  [
    "lists the rows that a dead worker left in flight before a pause is answered",
    view({ send: send({ status: "PAUSED" }), pauses: [1] }),
    { kind: "closeLost" },
  ],
  [
    "stays paused until an operator resumes",
    view({ send: send({ status: "PAUSED" }) }),
    { kind: "wait", details: DETAILS.paused, needsOperator: false },
  ],
  [
    "stays paused for a client without a call for an operator",
    view({ send: send({ status: "PAUSED", pauseReason: "paused_by_client" }) }),
    { kind: "wait", details: DETAILS.pausedByClient, needsOperator: false },
  ],
  [
    "looks again when a pause on purpose is a day old, once workflows list those",
    view({ listsForgottenPauses: true, send: send({ status: "PAUSED", pausedForMs: 82_800_000 }) }),
    { kind: "wait", details: DETAILS.paused, needsOperator: false, ms: 3_600_000 },
  ],
  [
    "calls an operator to a pause on purpose that is a day old",
    view({
      listsForgottenPauses: true,
      send: send({ status: "PAUSED", pauseReason: "paused_by_client", pausedForMs: 86_400_000 }),
    }),
    { kind: "wait", details: DETAILS.pausedByClient, needsOperator: true },
  ],
  [
    "calls no operator to a pause on purpose of which a process of 1.0 does not say its age",
    view({ listsForgottenPauses: true, send: send({ status: "PAUSED" }) }),
    { kind: "wait", details: DETAILS.paused, needsOperator: false },
  ],
  [
    "calls an operator when its account paused it",
    view({ send: send({ status: "PAUSED", pauseReason: "login_refused" }) }),
    { kind: "wait", details: DETAILS.pausedFor("login_refused"), needsOperator: true },
  ],
  [
    "calls an operator when complaints paused it, and says how many",
    view({ send: send({ status: "PAUSED", pauseReason: "complaint_rate_exceeded", complaintRate: 0.00214 }) }),
    { kind: "wait", details: DETAILS.pausedForComplaints(0.00214), needsOperator: true },
  ],
  [
    "calls an operator when its workflow was ended",
    view({ send: send({ status: "PAUSED", pauseReason: "workflow_ended" }) }),
    { kind: "wait", details: DETAILS.cameBack, needsOperator: true },
  ],
  [
    "pauses before any command, and while it mails, when Postgres is behind it",
    view({ ...busy, setBack: { sent: 5, isPaused: false } }),
    { kind: "pauseForFailure", reason: "database_restored" },
    "resume",
  ],
  [
    "pauses once for it, and calls an operator",
    view({
      send: send({ status: "PAUSED", pauseReason: "database_restored" }),
      setBack: { sent: 5, isPaused: true },
    }),
    { kind: "wait", details: DETAILS.setBack, needsOperator: true },
  ],
  [
    "calls an operator when Postgres does not know it any more",
    unconfirmed({ setBack: { sent: 5, isPaused: false } }),
    { kind: "wait", details: DETAILS.vanished(5), needsOperator: true },
  ],
  [
    "ends then at an operator's word",
    unconfirmed({ neverBegan: "refused", setBack: { sent: 5, isPaused: false } }),
    { kind: "end", outcome: "refused", details: DETAILS.vanishedAndEnded(5), needsOperator: false },
  ],

  [
    "waits for the mails in flight of a cancel",
    view({ slice: "ending", send: send({ status: "CANCELLED" }), cancels: [1] }),
    { kind: "wait", details: DETAILS.cancelling },
  ],
  ["settles a cancelled send", view({ send: send({ status: "CANCELLED" }), cancels: [1] }), { kind: "settle" }],
  [
    "ends once it is settled",
    settled(0),
    { kind: "end", outcome: "SENT", details: DETAILS.settled(5, 0), needsOperator: false },
  ],
  [
    "recounts unknown outcomes once late replies have come",
    settled(2, { settled: { status: "SENT", sent: 5, unknown: 2, reviewUntil: NOW + 9_000, recountAt: NOW } }),
    { kind: "settle" },
  ],
  [
    "stays open for a decision about unknown outcomes",
    settled(2),
    {
      kind: "wait",
      ms: 9_000,
      details: `${DETAILS.settled(5, 2)} ${DETAILS.review(NOW + 9_000)}`,
      needsOperator: true,
    },
  ],
  ["closes the review when its time has ended", settled(2, { now: NOW + 9_000 }), { kind: "closeReview" }],
  ["ends after the review", settled(2, { review: "closed" }), { kind: "end", outcome: "SENT" }],
  ["resends after the settlement", settled(2), { kind: "resendUnknown" }, "resendUnknown"],
  [
    "says that a resend waits",
    settled(2, { resendAt: NOW + 2_500 }),
    { kind: "wait", details: DETAILS.resending(NOW + 2_500), ms: 2_500 },
  ],
  ["mails on while a resend waits", view({ resendAt: NOW + 2_500 }), { kind: "dispatch" }],

  [
    "waits before it tries a failing step again",
    view({ send: send({ status: "SCHEDULED" }), ...failing(NOW + 5_000) }),
    {
      kind: "wait",
      ms: 5_000,
      needsOperator: true,
      details: `The step "begin" failed three times (database_57014); tries again at ${new Date(NOW + 5_000).toISOString()}. Updates: retry, cancel.`,
    },
  ],
  ["takes a cancel while a step is failing", view(failing(NOW + 5_000)), { kind: "cancel" }, "cancel"],
  ["takes a retry while a step is failing", view(failing(NOW + 5_000)), { kind: "retry" }, "retry"],

  ["continues as a new run instead of a slice", view({ isLong: true }), { kind: "continueAsNew" }],
  ["carries a command out before it continues as a new run", view({ isLong: true }), { kind: "pause" }, "pause"],
  [
    "brings a cancel to its end before it continues as a new run",
    view({ isLong: true, cancels: [1] }),
    { kind: "dispatch" },
  ],
  ["settles instead of continuing as a new run", view({ isLong: true, ...last({ next: "done" }) }), { kind: "settle" }],
  [
    "answers a pause before it continues as a new run",
    view({ isLong: true, send: send({ status: "PAUSED" }), pauses: [1], ...failing(NOW + 5_000) }),
    { kind: "wait", needsOperator: true },
  ],
  [
    "waits for a slice after which an operator wants another at once",
    view({ slice: "retried" }),
    { kind: "wait", details: over(LANE_STATES.mailing) },
  ],

  ["begins a slice of each lane", lanes([busy, {}, {}]), { kind: "dispatch", accountId: "acct_2" }],
  [
    "waits for slices once every lane has one",
    lanes([busy, { slice: "ending" }]),
    { kind: "wait", details: over(LANE_STATES.mailing, LANE_STATES.ending), needsOperator: false },
  ],
  [
    "waits for the lane that is due first while others mail",
    lanes([
      busy,
      { accountFailures: 1, ...last(temporaryFailure, NOW - 1_000) },
      last({ next: "account_full", waitMs: 7_000 }),
    ]),
    {
      kind: "wait",
      ms: 4_000,
      summary: "until the next try",
      details: over(
        LANE_STATES.mailing,
        LANE_STATES.accountFails("timeout", NOW + 4_000),
        LANE_STATES.accountFull(NOW + 7_000),
      ),
    },
  ],
  [
    "tries a failing account again beside a lane that mails",
    lanes([busy, { accountFailures: 1, ...last(temporaryFailure, NOW - 5_000) }]),
    { kind: "dispatch", accountId: "acct_2" },
  ],
  [
    "mails on over the others when an account fails for good",
    lanes([{ accountFailures: 1, ...failedFor("login_refused") }, {}]),
    { kind: "dispatch", accountId: "acct_2" },
  ],
  [
    "calls no operator for a failed account while another mails",
    lanes([{ accountFailures: 9, ...failedFor("login_refused") }, busy]),
    {
      kind: "wait",
      needsOperator: false,
      details: over(LANE_STATES.failed("login_refused"), LANE_STATES.mailing),
    },
  ],
  [
    "calls an operator when the last account that is left fails again and again",
    lanes([
      { accountFailures: 1, ...failedFor("login_refused") },
      { accountFailures: 3, ...last(temporaryFailure) },
    ]),
    { kind: "wait", ms: 20_000, needsOperator: true },
  ],
  [
    "pauses for the reasons of all accounts once every one has failed for good",
    lanes([
      { accountFailures: 1, ...failedFor("login_refused") },
      { accountFailures: 1, ...failedFor("policy_refusals") },
    ]),
    { kind: "pauseForFailure", reason: "acct_1 login_refused, acct_2 policy_refusals" },
  ],
  ["waits for the other lane when one finds nothing", lanes([last({ next: "done" }), busy]), { kind: "wait" }],
  [
    "lets a lane look again when another has put recipients back",
    lanes([{ mayFindMore: true, ...last({ next: "done" }) }, busy]),
    { kind: "dispatch", accountId: "acct_1" },
  ],
  [
    "lets a lane that waits for deferred recipients look again when another has put some back",
    lanes([{ mayFindMore: true, ...last({ next: "deferred", waitMs: 60_000 }) }, busy]),
    { kind: "dispatch", accountId: "acct_1" },
  ],
  [
    "keeps a failing account waiting when another has put recipients back",
    lanes([{ mayFindMore: true, accountFailures: 1, ...last(temporaryFailure) }, busy]),
    { kind: "wait", ms: 5_000 },
  ],
  [
    "settles when nothing is left, although an account is failing and another has failed",
    lanes([
      { accountFailures: 5, ...last(temporaryFailure) },
      { accountFailures: 1, ...failedFor("login_refused") },
      last({ next: "done" }),
    ]),
    { kind: "settle" },
  ],
  [
    "waits for a lane that keeps deferred recipients",
    lanes([last({ next: "account_full", waitMs: 60_000 }), last({ next: "done", held: true })]),
    { kind: "wait", ms: 60_000, details: over(LANE_STATES.accountFull(NOW + 60_000), LANE_STATES.done) },
  ],
  [
    "settles when every lane is done: Postgres knows whether recipients are left",
    lanes([last({ next: "done" }), last({ next: "done", held: true })]),
    { kind: "settle" },
  ],
  [
    "answers a pause only when no lane has mails in flight",
    lanes([{ slice: "ending" }, {}], { send: send({ status: "PAUSED" }), pauses: [1] }),
    { kind: "wait", details: DETAILS.pausing },
  ],
  [
    "settles a cancel only when no lane has mails in flight",
    lanes([{}, { slice: "ending" }], { send: send({ status: "CANCELLED" }), cancels: [1] }),
    { kind: "wait", details: DETAILS.cancelling },
  ],
  ["begins no slice beside another when its history is long", lanes([busy, {}], { isLong: true }), { kind: "wait" }],
  [
    "continues as a new run once all slices have ended",
    lanes([{ accountFailures: 1, ...last(temporaryFailure) }, {}], { isLong: true }),
    { kind: "continueAsNew" },
  ],
];

describe("The next step of a send", () => {
  for (const [title, given, expected, command] of TABLE) {
    it(title, () => {
      const before = structuredClone(given);
      assert.partialDeepStrictEqual(decide(given, command), expected);
      assert.deepEqual(given, before, "the decision changes nothing");
    });
  }
});

/** Any lane of a send that is SENDING, without its account. */
const anyLane = fc.record({
  slice: fc.constantFrom<LaneView["slice"]>("none", "none", "none", "under way", "retried", "ending"),
  accountFailures: fc.nat(4),
  mayFindMore: fc.boolean(),
  lastSlice: fc.option(
    fc
      .constantFrom<Partial<SliceResult>>(
        { next: "continue" },
        { next: "done" },
        { next: "done", held: true },
        { next: "deferred", waitMs: 3_000 },
        { next: "account_full", waitMs: 3_000 },
        temporaryFailure,
        { ...temporaryFailure, temporary: false },
      )
      .chain((result) => fc.nat(5_000).map((agoMs) => last(result, NOW - agoMs).lastSlice)),
    { nil: undefined },
  ),
});

describe("A send over any lanes", () => {
  it("never waits without an end: for a slice under way, or until a time", () => {
    fc.assert(
      fc.property(fc.array(anyLane, { maxLength: 4 }), fc.boolean(), (given, isLong) => {
        const step = decide(lanes(given, { isLong }), undefined);
        if (step.kind !== "wait") return;
        const isMailing = given.some(({ slice }) => slice !== "none");
        assert.ok(isMailing || (step.ms !== undefined && step.ms > 0), JSON.stringify(step));
      }),
      { numRuns: 2_000 },
    );
  });

  it("begins a slice only of a lane that has none, and neither pauses nor settles beside a slice", () => {
    fc.assert(
      fc.property(fc.array(anyLane, { maxLength: 4 }), (given) => {
        const step = decide(lanes(given), undefined);
        const slices = new Map(given.map(({ slice }, i) => [`acct_${i + 1}`, slice]));
        if (step.kind === "dispatch") assert.equal(slices.get(step.accountId), "none");
        if (step.kind === "settle" || step.kind === "pauseForFailure") {
          assert.ok(given.every(({ slice }) => slice === "none"));
        }
      }),
      { numRuns: 2_000 },
    );
  });
});

describe("The deferred recipients that a lane takes", () => {
  it("are its own and those of accounts that have failed since their last mail or have their limit used up", () => {
    const full = { next: "account_full", waitMs: 1_000 } as const;
    const given = [
      lane(),
      lane({ accountId: "acct_2", accountFailures: 1 }),
      lane({ accountId: "acct_3", ...last(full) }),
      lane({ accountId: "acct_4", ...last({ ...full, byLimit: true }) }),
    ];
    assert.deepEqual(takenOverBy("acct_1", given), ["acct_2", "acct_4"]);
    assert.deepEqual(takenOverBy("acct_2", given), ["acct_4"]);
  });
});

describe("The answer to a retry", () => {
  const failing = { step: "settle", code: "database_57014", until: 0 };
  for (const [what, view, answer] of [
    ["while a step fails", { failing, send: { status: "PAUSED" } }, ANSWERS.retry],
    ["of a send that is mailed", { send: { status: "SENDING" } }, ANSWERS.look],
    ["of a paused send", { send: { status: "PAUSED" } }, ANSWERS.retryPaused],
    ["of a settled send", { settled: {}, send: { status: "SENT" } }, ANSWERS.retryEnded],
  ] as const) {
    it(`${what} is: ${answer}`, () => assert.equal(retryAnswer(view), answer));
  }
});
