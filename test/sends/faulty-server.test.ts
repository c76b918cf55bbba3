import assert from "node:assert/strict";
import { sql } from "kysely";
import type { RecipientState } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { eventually } from "../support/eventually.ts";
import { kindOf } from "../support/kinds.ts";
import { outcomesOf } from "../support/outcomes.ts";
import {
  credits,
  type FaultRule,
  ledgerStates,
  people,
  setFaults,
  startSend,
  untilStatus,
} from "../support/sending.ts";

interface Kind {
  count: number;
  /** The server's answer: given once to each mail that is SENT in the end, and every time to the others. */
  fault: Omit<FaultRule, "match" | "times">;
  state: RecipientState;
  /** How often each is caught at least and at most. */
  caught: [least: number, most: number];
}

/** Longer than the limits of the tests' stack for a command, and than a slice waits for the reply to a dot. */
const HANGS = { delayMs: 12_000 };

const refused = (stage: "rcpt" | "data", code: number, message: string) => ({ stage, code, message });

/** Recipients by the server's answer to them; their kind is the start of their address. */
const KINDS: Record<string, Kind> = {
  greylisted: { count: 20, fault: refused("rcpt", 450, "4.2.0 Greylisted"), state: "SENT", caught: [1, 1] },
  nobody: { count: 8, fault: refused("rcpt", 550, "5.1.1 No such user"), state: "REJECTED", caught: [0, 0] },
  full: { count: 4, fault: refused("rcpt", 552, "5.2.2 Mailbox full"), state: "REJECTED", caught: [0, 0] },
  disabled: { count: 4, fault: refused("rcpt", 550, "5.2.1 Mailbox disabled"), state: "REJECTED", caught: [0, 0] },
  blocked: { count: 4, fault: refused("rcpt", 550, "5.7.25 No reverse DNS"), state: "REJECTED", caught: [0, 0] },
  deferred: { count: 4, fault: refused("rcpt", 450, "4.2.0 Later"), state: "EXPIRED", caught: [0, 0] },
  closing: { count: 8, fault: refused("rcpt", 421, "4.3.2 Closing"), state: "SENT", caught: [1, 1] },
  closingatdot: { count: 4, fault: refused("data", 421, "4.3.2 Closing"), state: "SENT", caught: [1, 1] },
  fulldisk: {
    ...{ count: 4, state: "SENT", caught: [1, 1] },
    fault: refused("data", 452, "4.3.1 Insufficient system storage"),
  },
  lost: { count: 6, fault: { stage: "rcpt", drop: true }, state: "SENT", caught: [1, 1] },
  cut: { count: 6, fault: { stage: "data", drop: true }, state: "UNKNOWN", caught: [0, 0] },
  swallowed: { count: 6, fault: { stage: "data", drop: true, taken: true }, state: "UNKNOWN", caught: [1, 1] },
  mute: { count: 3, fault: { stage: "rcpt", ...HANGS }, state: "SENT", caught: [1, 1] },
  // UNKNOWN, until the server replies at last.
  silent: { count: 3, fault: { stage: "data", ...HANGS }, state: "SENT", caught: [1, 1] },
};

/** Each address whose mail is SENT in the end has a rule of its own: a retry of one would use up the rule of another. */
const rulesFor = (audience: string): FaultRule[] =>
  Object.entries(KINDS).flatMap(([kind, { fault, state, count }]) =>
    state === "SENT"
      ? Array.from({ length: count }, (_, i) => ({ ...fault, match: `^${kind}${i}@${audience}`, times: 1 }))
      : [{ ...fault, match: `^${kind}\\d+@${audience}` }],
  );

const countOf = (state: RecipientState) =>
  Object.values(KINDS).reduce((sum, kind) => sum + (kind.state === state ? kind.count : 0), 0);

const resource = kindOf();

describe(`A faulty server (${resource.type})`, () => {
  afterEach(() => setFaults([]));

  it("gives each of 400 recipients the outcome of its own fault", async () => {
    const sender = await resource.make({ recipients: 0, credits: 400, account: { maxConnections: 20 } });
    const { audience } = sender;
    const odd = Object.entries(KINDS).flatMap(([kind, { count }]) =>
      Array.from({ length: count }, (_, i) => ({ email: `${kind}${i}@${audience}` })),
    );
    const all = [...people(400 - odd.length, audience), ...odd];
    // Spread over the send, the same way each time.
    const order = (i: number) => (i * 7_919) % 400;
    await resource.addRecipients(
      sender,
      all.map((_, i) => all[order(i)] ?? assert.fail()),
    );
    await setFaults([...rulesFor(audience), { stage: "data", match: audience, delayMs: 20 }]);
    await startSend(sender);
    const { count: deferred } = KINDS["deferred"] ?? assert.fail();
    await eventually(async () => (await ledgerStates(sender))["SENT"] === 400 - odd.length + countOf("SENT"), {
      what: "all mails that can be sent",
    });
    // Only those that are deferred each time are left: ends their window.
    await sql`update send_recipients set first_deferred_at = now() - interval '2 days'
      where email like ${`deferred%@${audience}`}`.execute(kysely(sender.em));
    await untilStatus(sender, ["SENT"]);

    const outcomes = await outcomesOf(sender);
    assert.equal(outcomes.length, 400);
    const wrong = outcomes.filter(({ email, state, caught }) => {
      const kind = KINDS[/^[a-z]+/.exec(email)?.[0] ?? ""] ?? { state: "SENT", caught: [1, 1] };
      return state !== kind.state || caught < kind.caught[0] || caught > kind.caught[1];
    });
    assert.deepEqual(wrong, []);
    for (const { email, attempts } of outcomes.filter(({ email }) =>
      /^(greylisted|closingatdot|fulldisk|mute)/.test(email),
    )) {
      assert.ok(attempts >= 2, `${email} was deferred`);
    }
    const suppressions = await sender.client.get("/suppressions", { query: { limit: 100 } });
    assert.deepEqual(
      suppressions.body.data.map(({ email, reason }: { email: string; reason: string }) => `${email} ${reason}`).sort(),
      odd.flatMap(({ email }) => (email.startsWith("nobody") ? [`${email} bounce:hard`] : [])).sort(),
    );
    assert.ok(outcomes.every(({ email, attempts }) => attempts === 1 || !email.startsWith("silent")));
    // Given back: the credits of refused and of expired mails.
    const back = countOf("REJECTED") + deferred;
    assert.deepEqual(await credits(sender), { available: back, reserved: 0, mismatch: false });
  });

  it("that answers a dot late holds up neither other mails nor the end of their send, and settles it afterwards", async () => {
    const sender = await resource.make({ recipients: 3, credits: 3, account: { maxConnections: 2 } });
    await setFaults([{ stage: "data", match: `^person1@${sender.audience}`, delayMs: 9_000, times: 1 }]);
    await startSend(sender);
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { SENT: 2, UNKNOWN: 1 });
    await eventually(async () => (await ledgerStates(sender))["SENT"] === 3, { what: "the late reply" });
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
  });
});
