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

const kind = kindOf(import.meta);

interface Gate {
  name: string;
  status: number;
  code: string;
  /** Options that a sender needs so that the gate can be closed */
  options?: SenderOptions;
  /** Closes the gate. */
  close(sender: AnySender, kind: Kind): Promise<unknown>;
  /** The one kind of resource that has the gate; both unless given. */
  only?: Kind["type"];
  /** Closing it changes the plan too, and a confirm refuses the changed plan first. */
  drifts?: boolean;
  message?: RegExp;
}

const run = (sender: AnySender, query: ReturnType<typeof sql>) => query.execute(kysely(sender.em));
const edit = (sender: AnySender, fields: object) => sender.client.patch(pathOf(sender), fields);

const NOT_READY = { status: 409, code: "campaign_not_ready", drifts: true };

const GATES: Gate[] = [
  {
    name: "no subject",
    ...NOT_READY,
    close: (s) => run(s, sql`update ${tableOf(s)} set subject = null where id = ${idOf(s)}`),
    message: /subject/,
  },
  {
    name: "no body",
    ...NOT_READY,
    close: (s) => run(s, sql`update ${tableOf(s)} set body = null where id = ${idOf(s)}`),
    message: /body/,
  },
  {
    name: "an unknown merge tag, which it names",
    ...NOT_READY,
    close: (s) => edit(s, { body: "<p>{{ frist_name }}</p>" }),
    message: /frist_name/,
  },
  {
    name: "no list",
    only: "newsletter",
    ...NOT_READY,
    close: (s) => run(s, sql`delete from newsletter_lists where newsletter_id = ${idOf(s)}`),
    message: /list/,
  },
  {
    name: "no segment",
    only: "campaign",
    ...NOT_READY,
    close: (s) => run(s, sql`update campaigns set segment_id = null where id = ${idOf(s)}`),
    message: /segment/,
  },
  {
    name: "no eligible recipient",
    ...NOT_READY,
    close: (s, kind) => kind.withdraw(s, "all"),
  },
  {
    name: "no attached account",
    only: "campaign",
    ...NOT_READY,
    close: (s) => run(s, sql`update campaigns set account_ids = '{}' where id = ${idOf(s)}`),
    message: /account/,
  },
  {
    name: "a second account that is not ACTIVE",
    only: "campaign",
    status: 409,
    code: "sending_domain_unverified",
    options: { furtherAccounts: [{}] },
    close: (s) =>
      run(s, sql`update email_accounts set status = 'ERROR' where team_id = ${s.team.id} and id <> ${s.accountId}`),
  },
  {
    name: "a second account that is gone",
    only: "campaign",
    status: 409,
    code: "sending_domain_unverified",
    options: { furtherAccounts: [{}] },
    close: (s) => run(s, sql`delete from email_accounts where team_id = ${s.team.id} and id <> ${s.accountId}`),
  },
  {
    name: "send_domains that cover the first address and not the second",
    only: "campaign",
    status: 403,
    code: "send_domain_not_allowed",
    options: {
      sendDomains: ["one.example", "two.example"],
      account: { email: "news@one.example" },
      furtherAccounts: [{ email: "news@two.example" }],
    },
    close: (s) => run(s, sql`update api_keys set send_domains = '{one.example}' where id = ${s.liveKey.record.id}`),
  },
  {
    name: "no sending account for the address",
    only: "newsletter",
    ...NOT_READY,
    close: (s) => edit(s, { from_email: `x@nobody.${s.domain}` }),
    message: /account/,
  },
  {
    name: "a sending account that is not ACTIVE",
    status: 409,
    code: "sending_domain_unverified",
    close: (s) => run(s, sql`update email_accounts set status = 'SUSPENDED' where id = ${s.accountId}`),
  },
  {
    name: "send_domains that do not cover the address",
    status: 403,
    code: "send_domain_not_allowed",
    close: (s) =>
      run(s, sql`update api_keys set send_domains = '{elsewhere.example}' where id = ${s.liveKey.record.id}`),
  },
  {
    name: "empty send_domains",
    status: 403,
    code: "send_domain_not_allowed",
    close: (s) => run(s, sql`update api_keys set send_domains = '{}' where id = ${s.liveKey.record.id}`),
  },
  {
    name: "a daily cap without headroom",
    status: 429,
    code: "send_cap_exceeded",
    close: (s) => run(s, sql`update api_keys set daily_send_cap = 2 where id = ${s.liveKey.record.id}`),
  },
  {
    name: "a complaint rate of 0.20 %",
    status: 403,
    code: "complaint_rate_exceeded",
    close: (s) =>
      run(
        s,
        sql`insert into analytics_days (team_id, environment, resource_id, day, sent, complaints_received)
          values (${s.team.id}, 'LIVE', '', (now() at time zone 'UTC')::date - 29, 1000, 2)`,
      ),
  },
  {
    name: "too few credits",
    status: 402,
    code: "quota_exceeded",
    close: (s) => run(s, sql`update credit_balances set available = 2 where team_id = ${s.team.id}`),
  },
  {
    name: "a key that needs approval",
    status: 403,
    code: "send_not_permitted",
    close: (s) => run(s, sql`update api_keys set requires_approval = true where id = ${s.liveKey.record.id}`),
  },
];

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
  for (const gate of GATES) {
    const of = KINDS.find(({ type }) => type === (gate.only ?? kind.type)) ?? kind;
    it(`refuse a preview and a confirm for ${gate.name}${gate.drifts ? ", a confirm as a changed plan" : ""}`, async () => {
      const sender = await of.make({ recipients: 3, ...gate.options });
      const token = await tokenOf(sender);
      await gate.close(sender, of);
      assertRefused(await preview(sender), gate);
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
    const ofKey = sql`id = ${sender.liveKey.record.id}`;
    // Everything is wrong at once; then one thing after the other is put right.
    await run(
      sender,
      sql`update api_keys set requires_approval = true, daily_send_cap = 2, send_domains = '{}' where ${ofKey}`,
    );
    await run(sender, sql`update send_previews set used_at = now() where ${ofTeam}`);
    await run(sender, sql`update ${tableOf(sender)} set status = 'CANCELLED', from_name = 'Drifted' where ${ofTeam}`);
    await run(sender, sql`update email_accounts set status = 'SUSPENDED' where ${ofTeam}`);
    await run(sender, sql`update credit_balances set available = 0 where ${ofTeam}`);
    await run(
      sender,
      sql`insert into analytics_days (team_id, environment, resource_id, day, sent, complaints_received)
        values (${sender.team.id}, 'LIVE', '', (now() at time zone 'UTC')::date, 1000, 2)`,
    );
    const other = await sender.mint({ sendDomains: [sender.domain] });
    const code = async (changes: { id?: string; token?: string; key?: string } = {}) => {
      const client = changes.key === undefined ? sender.client : api(changes.key);
      const answer = await confirm({ client, ...naming(sender, changes.id ?? idOf(sender)) }, changes.token ?? token);
      return answer.body.error?.code ?? String(answer.status);
    };
    const absent = { id: "none_00000000000000000000000000", token: "nonsense" };

    assert.equal(await code(absent), "send_not_permitted");
    await run(sender, sql`update api_keys set requires_approval = false where ${ofKey}`);
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
    await run(sender, sql`update api_keys set send_domains = ${[sender.domain]}::text[] where ${ofKey}`);
    assert.equal(await code(), "send_cap_exceeded");
    await run(sender, sql`update api_keys set daily_send_cap = 1000 where ${ofKey}`);
    assert.equal(await code(), "complaint_rate_exceeded");
    await run(sender, sql`delete from analytics_days where ${ofTeam}`);
    assert.equal(await code(), "quota_exceeded");
    await run(sender, sql`update credit_balances set available = 1000 where ${ofTeam}`);
    assert.equal(await code(), "202");
  });

  it("refuse a confirm whose account is gone as sending_domain_unverified", async () => {
    const sender = await kind.make();
    const token = await tokenOf(sender);
    await run(sender, sql`delete from email_accounts where id = ${sender.accountId}`);
    const answer = await confirm(sender, token);
    assert.equal(answer.body.error.code, "sending_domain_unverified", answer.text);
  });

  it("allow a complaint rate just under 0.20 %", async () => {
    const sender = await kind.make();
    await run(
      sender,
      sql`insert into analytics_days (team_id, environment, resource_id, day, sent, complaints_received)
        values (${sender.team.id}, 'LIVE', '', (now() at time zone 'UTC')::date, 1001, 2)`,
    );
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

  it("leave the Idempotency-Key free after a 429, so that it succeeds later", async () => {
    const sender = await kind.make({ recipients: 3 });
    const token = await tokenOf(sender);
    const key = freshKey();
    await run(sender, sql`update api_keys set daily_send_cap = 2 where id = ${sender.liveKey.record.id}`);
    assert.equal((await confirm(sender, token, key)).status, 429);
    await run(sender, sql`update api_keys set daily_send_cap = 200 where id = ${sender.liveKey.record.id}`);
    assert.equal((await confirm(sender, token, key)).status, 202);
  });

  it("refuse a test key at each send endpoint with 403, for any ID", async () => {
    const sender = await kind.make();
    const test = api(sender.keys.test);
    for (const id of [idOf(sender), "none_00000000000000000000000000"]) {
      for (const answer of [
        await preview({ client: test, ...naming(sender, id) }),
        await confirm({ client: test, ...naming(sender, id) }, "anything"),
      ]) {
        assert.equal(answer.status, 403, answer.text);
        assert.equal(answer.body.error.code, "send_not_permitted");
      }
    }
  });
});
