import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { type ApiAnswer, api } from "../support/api.ts";
import { KINDS, type Kind, kindOf } from "../support/kinds.ts";
import {
  type AnySender,
  confirm,
  freshKey,
  idOf,
  naming,
  pathOf,
  preview,
  type SenderOptions,
  tableOf,
  tokenOf,
} from "../support/sending.ts";

const kind = kindOf();

interface Gate {
  status: number;
  code: string;
  close(sender: AnySender, kind: Kind): Promise<unknown>;
  /** Options that a sender needs so that the gate can be closed */
  options?: SenderOptions;
  /** The one kind of resource that has the gate; both unless given. */
  only?: Kind["type"];
  /** Closing it changes the plan too, and a confirm refuses the changed plan first. */
  drifts?: boolean;
  message?: RegExp;
}

const run = (sender: AnySender, query: ReturnType<typeof sql>) => query.execute(kysely(sender.em));
const edit = (sender: AnySender, fields: object) => sender.client.patch(pathOf(sender), fields);
const setDraft = (sender: AnySender, change: ReturnType<typeof sql>) =>
  run(sender, sql`update ${tableOf(sender)} set ${change} where id = ${idOf(sender)}`);
const setKey = (sender: AnySender, change: ReturnType<typeof sql>) =>
  run(sender, sql`update api_keys set ${change} where id = ${sender.liveKey.record.id}`);
const addComplaints = (sender: AnySender, sent: number, daysAgo = 0) =>
  run(
    sender,
    sql`insert into analytics_days (team_id, environment, resource_id, day, sent, complaints_received)
      values (${sender.team.id}, 'LIVE', '', (now() at time zone 'UTC')::date - ${daysAgo}::int, ${sent}, 2)`,
  );
const furtherAccounts = ({ team, accountId }: AnySender) => sql`team_id = ${team.id} and id <> ${accountId}`;

const NOT_READY = { status: 409, code: "campaign_not_ready", drifts: true };
const UNVERIFIED = { status: 409, code: "sending_domain_unverified" };
const NOT_ALLOWED = { status: 403, code: "send_domain_not_allowed" };
const NEWSLETTER = { only: "newsletter" } as const;
const CAMPAIGN = { only: "campaign" } as const;
const TWO_ACCOUNTS = { ...CAMPAIGN, options: { furtherAccounts: [{}] } };
const TWO_DOMAINS = {
  sendDomains: ["one.example", "two.example"],
  account: { email: "news@one.example" },
  furtherAccounts: [{ email: "news@two.example" }],
};

const GATES: Record<string, Gate> = {
  "no subject": { ...NOT_READY, close: (s) => setDraft(s, sql`subject = null`), message: /subject/ },
  "no body": { ...NOT_READY, close: (s) => setDraft(s, sql`body = null`), message: /body/ },
  "an unknown merge tag, which it names": {
    ...NOT_READY,
    close: (s) => edit(s, { body: "<p>{{ frist_name }}</p>" }),
    message: /Unknown: \{\{ frist_name \}\}\. Write: \{\{ first_name \}\}\./,
  },
  "no list": {
    ...{ ...NOT_READY, ...NEWSLETTER },
    close: (s) => run(s, sql`delete from newsletter_lists where newsletter_id = ${idOf(s)}`),
    message: /list/,
  },
  "no segment": {
    ...{ ...NOT_READY, ...CAMPAIGN },
    close: (s) => setDraft(s, sql`segment_id = null`),
    message: /segment/,
  },
  "no eligible recipient": {
    ...NOT_READY,
    close: (s, kind) => kind.withdraw(s, "all"),
    message: /Attach another (list|segment) in the app/,
  },
  "a time that has passed": {
    ...NOT_READY,
    close: (s) => setDraft(s, sql`send_at = now() - interval '1 minute'`),
    message: /has passed; set a later one in the app/,
  },
  "no attached account": {
    ...{ ...NOT_READY, ...CAMPAIGN },
    close: (s) => setDraft(s, sql`account_ids = '{}'`),
    message: /account/,
  },
  "no sending account for the address": {
    ...{ ...NOT_READY, ...NEWSLETTER },
    close: (s) => edit(s, { from_email: `x@nobody.${s.domain}` }),
    message: /account/,
  },
  "a sending account that is not ACTIVE": {
    ...UNVERIFIED,
    close: (s) => run(s, sql`update email_accounts set status = 'SUSPENDED' where id = ${s.accountId}`),
  },
  "a second account that is not ACTIVE": {
    ...{ ...UNVERIFIED, ...TWO_ACCOUNTS },
    close: (s) => run(s, sql`update email_accounts set status = 'ERROR' where ${furtherAccounts(s)}`),
  },
  "a second account that is gone": {
    ...{ ...UNVERIFIED, ...TWO_ACCOUNTS },
    close: (s) => run(s, sql`delete from email_accounts where ${furtherAccounts(s)}`),
  },
  "send_domains that do not cover the address": {
    ...NOT_ALLOWED,
    close: (s) => setKey(s, sql`send_domains = '{elsewhere.example}'`),
  },
  "send_domains that cover the first address and not the second": {
    ...{ ...NOT_ALLOWED, ...CAMPAIGN },
    options: TWO_DOMAINS,
    close: (s) => setKey(s, sql`send_domains = '{one.example}'`),
  },
  "empty send_domains": { ...NOT_ALLOWED, close: (s) => setKey(s, sql`send_domains = '{}'`) },
  "a daily cap without headroom": {
    ...{ status: 429, code: "send_cap_exceeded" },
    close: (s) => setKey(s, sql`daily_send_cap = 2`),
  },
  "a complaint rate of 0.20 %": {
    ...{ status: 403, code: "complaint_rate_exceeded" },
    close: (s) => addComplaints(s, 1_000, 29),
    message: /Complaints: 2; delivered: 1000; rate: 0\.20 %; threshold: 0\.20 %\. .* on \d{4}-\d\d-\d\d \(UTC\)/,
  },
  "too few credits": {
    ...{ status: 402, code: "quota_exceeded" },
    close: (s) => run(s, sql`update credit_balances set available = 2 where team_id = ${s.team.id}`),
  },
  "a key that needs approval": {
    ...{ status: 403, code: "send_not_permitted" },
    close: (s) => setKey(s, sql`requires_approval = true`),
  },
};

function assertRefused(answer: ApiAnswer, { status, code, message }: Gate): void {
  assert.equal(answer.body?.error?.code, code, answer.text);
  assert.equal(answer.status, status);
  if (message) assert.match(answer.body.error.message, message);
  if (status === 429) {
    const seconds = Number(answer.headers.get("retry-after"));
    const now = new Date();
    const untilMidnight = 86_400 - (now.getUTCHours() * 3600 + now.getUTCMinutes() * 60 + now.getUTCSeconds());
    assert.ok(Math.abs(seconds - untilMidnight) <= 5, `Retry-After ${seconds}, midnight in ${untilMidnight} s`);
  }
}

describe(`The gates of the send of a ${kind.type}`, () => {
  for (const [name, gate] of Object.entries(GATES)) {
    const of = KINDS.find(({ type }) => type === (gate.only ?? kind.type)) ?? kind;
    it(`refuse a preview and a confirm for ${name}${gate.drifts ? ", a confirm as a changed plan" : ""}`, async () => {
      const sender = await of.make({ recipients: 3, ...gate.options });
      const token = await tokenOf(sender);
      await gate.close(sender, of);
      const refused = await preview(sender);
      assertRefused(refused, gate);
      if (gate.code === NOT_READY.code) {
        const ofOthers = of.type === "newsletter" ? /draft|campaign|segment/ : /draft|newsletter|\blists?\b/;
        assert.doesNotMatch(refused.body.error.message, ofOthers);
      }
      const answer = await confirm(sender, token);
      if (gate.drifts) assertRefused(answer, { ...gate, status: 409, code: "send_plan_changed", message: /./ });
      else assertRefused(answer, gate);
      const { body } = await sender.client.get(pathOf(sender));
      assert.equal(body.data.status, "DRAFT");
    });
  }

  it("refuse a confirm in a fixed order, each refusal hiding those after it", async () => {
    const sender = await kind.make({ recipients: 3 });
    const token = await tokenOf(sender);
    const ofTeam = sql`team_id = ${sender.team.id}`;
    // Everything is wrong at once; then one thing after the other is put right.
    await setKey(sender, sql`requires_approval = true, daily_send_cap = 2, send_domains = '{}'`);
    await run(sender, sql`update send_previews set used_at = now() where ${ofTeam}`);
    await run(sender, sql`update ${tableOf(sender)} set status = 'CANCELLED', from_name = 'Drifted' where ${ofTeam}`);
    await run(sender, sql`update email_accounts set status = 'SUSPENDED' where ${ofTeam}`);
    await run(sender, sql`update credit_balances set available = 0 where ${ofTeam}`);
    await addComplaints(sender, 1_000);
    const other = await sender.mint({ sendDomains: [sender.domain] });
    const code = async (changes: { id?: string; token?: string; key?: string } = {}) => {
      const client = changes.key === undefined ? sender.client : api(changes.key);
      const answer = await confirm({ client, ...naming(sender, changes.id ?? idOf(sender)) }, changes.token ?? token);
      return answer.body.error?.code ?? String(answer.status);
    };
    const absent = { id: "none_00000000000000000000000000", token: "nonsense" };

    assert.equal(await code(absent), "send_not_permitted");
    await setKey(sender, sql`requires_approval = false`);
    assert.equal(await code(absent), "not_found");
    assert.equal(await code({ token: "nonsense" }), "confirmation_invalid");
    assert.equal(await code({ key: other.key }), "confirmation_stale");
    await run(sender, sql`update send_previews set used_at = null where ${ofTeam}`);
    assert.equal(await code({ key: other.key }), "resource_state_invalid");
    await run(sender, sql`update ${tableOf(sender)} set status = 'DRAFT' where ${ofTeam}`);
    assert.equal(await code({ key: other.key }), "send_plan_changed");
    assert.equal(await code(), "send_plan_changed");
    // The other key's confirm has made the token void.
    await run(sender, sql`update send_previews set other_key_at = null where ${ofTeam}`);
    assert.equal(await code(), "send_plan_changed");
    await run(sender, sql`update ${tableOf(sender)} set from_name = null where ${ofTeam}`);
    assert.equal(await code(), "sending_domain_unverified");
    await run(sender, sql`update email_accounts set status = 'ACTIVE' where ${ofTeam}`);
    assert.equal(await code(), "send_domain_not_allowed");
    await setKey(sender, sql`send_domains = ${[sender.domain]}::text[]`);
    assert.equal(await code(), "send_cap_exceeded");
    await setKey(sender, sql`daily_send_cap = 1000`);
    assert.equal(await code(), "complaint_rate_exceeded");
    await run(sender, sql`delete from analytics_days where ${ofTeam}`);
    assert.equal(await code(), "quota_exceeded");
    await run(sender, sql`update credit_balances set available = 1000 where ${ofTeam}`);
    assert.equal(await code(), "202");
  });

  it("allow a complaint rate just under 0.20 %", async () => {
    const sender = await kind.make();
    await addComplaints(sender, 1_001);
    assert.equal((await preview(sender)).status, 200);
  });

  it("count the daily cap over all rotations of a key", async () => {
    const sender = await kind.make({ recipients: 3, dailySendCap: 5 });
    assert.equal((await confirm(sender, await tokenOf(sender))).status, 202);
    const heir = await sender.mint({ sendDomains: [sender.domain], dailySendCap: 5 });
    await run(
      sender,
      sql`update api_keys set lineage_id = ${sender.liveKey.record.lineageId} where id = ${heir.record.id}`,
    );
    const next = await kind.another(sender);
    const answer = await preview({ ...next, client: api(heir.key) });
    assert.equal(answer.body.error.code, "send_cap_exceeded", answer.text);
  });

  it("say, once they are remembered, that another try needs a new Idempotency-Key", async () => {
    const sender = await kind.make({ recipients: 3 });
    const [token, key] = [await tokenOf(sender), freshKey()];
    await run(sender, sql`update credit_balances set available = 2 where team_id = ${sender.team.id}`);
    for (const answer of [await confirm(sender, token, key), await confirm(sender, token, key)]) {
      assert.match(answer.body.error.message, /fewer email credits .* use a new Idempotency-Key/);
    }
  });

  it("leave the Idempotency-Key free after a 429, so that it succeeds later", async () => {
    const sender = await kind.make({ recipients: 3 });
    const token = await tokenOf(sender);
    const key = freshKey();
    await setKey(sender, sql`daily_send_cap = 2`);
    assert.equal((await confirm(sender, token, key)).status, 429);
    await setKey(sender, sql`daily_send_cap = 200`);
    assert.equal((await confirm(sender, token, key)).status, 202);
  });
});
