import assert from "node:assert/strict";
import { sql } from "kysely";
import PostalMime, { type Email } from "postal-mime";
import type { z } from "zod";
import { EmailAccount } from "../../db/entities/account.ts";
import type { FieldValues } from "../../db/entities/contact.ts";
import type { RecipientState } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { createSegment } from "../../domain/audience/segments/segments.ts";
import { newId } from "../../domain/ids.ts";
import { sealContext } from "../../domain/secrets/crypto.ts";
import { attachAccounts, attachList, attachSegment } from "../../domain/sends/drafts/drafts.ts";
import type { SendResource } from "../../domain/sends/resource.ts";
import { grantCredits } from "../../domain/teams/credits.ts";
import type { faultRules } from "../../stack/mail-faults.ts";
import type { CaughtMail } from "../../stack/mail-store.ts";
import { sendWorkflowId } from "../../temporal/ids.ts";
import { type ApiAnswer, type ApiClient, api, type Json } from "./api.ts";
import { eventually } from "./eventually.ts";
import { makeTeam, type TeamOptions, type TestTeam, unique } from "./factories.ts";
import { stack } from "./stack.ts";
import { temporalClient, untilDetails } from "./temporal.ts";

/** A person on the list of a test's newsletter, or in the segment of its campaign. */
export interface TestRecipient {
  email: string;
  firstName?: string | null;
  lastName?: string | null;
  /** Of a campaign's contact: INVALID unless CONFIRMED. */
  status?: "PENDING" | "CONFIRMED" | "UNSUBSCRIBED";
  suppressed?: boolean;
  /** Of a campaign's contact */
  fields?: FieldValues;
}

export interface SenderOptions extends TeamOptions {
  /** Base URL of an API over the same database; the stack's unless given. */
  base?: string;
  /** The number of eligible recipients, or their addresses. */
  recipients?: number | TestRecipient[];
  credits?: number;
  subject?: string;
  body?: string;
  account?: Partial<EmailAccount>;
  /** Accounts that mail its sends beside the first one, and the fields in which each differs from it. */
  furtherAccounts?: readonly Partial<EmailAccount>[];
  /** No list and no segment is attached. */
  detached?: boolean;
}

/** A team that can send, from and to domains that no other test uses. */
interface SendingTeam extends TestTeam {
  client: ApiClient;
  /** Domain of the sender. */
  domain: string;
  /** Domain of the recipients, for the mail catcher's fault rules. */
  audience: string;
  fromEmail: string;
  accountId: string;
  /** The accounts that mail its sends, `accountId` first. */
  accountIds: readonly string[];
}

/** A team with a newsletter of its own to a list of its own. */
export interface Sender extends SendingTeam {
  listId: string;
  newsletterId: string;
}

/** A team with a campaign of its own to a segment of its own. */
export interface CampaignSender extends SendingTeam {
  segmentId: string;
  campaignId: string;
}

export type AnySender = Sender | CampaignSender;

/** Names the newsletter or the campaign of a test. */
export type Sent = { newsletterId: string } | { campaignId: string };

export const resourceOf = (sent: Sent): SendResource =>
  "campaignId" in sent ? { type: "campaign", id: sent.campaignId } : { type: "newsletter", id: sent.newsletterId };

export const idOf = (sent: Sent): string => resourceOf(sent).id;

export const pathOf = (sent: Sent): string => `/${resourceOf(sent).type}s/${resourceOf(sent).id}`;

export const tableOf = (sent: Sent) => sql.table(`${resourceOf(sent).type}s`);

/** Names another resource of the same kind. */
export const naming = (sent: Sent, id: string): Sent =>
  "campaignId" in sent ? { campaignId: id } : { newsletterId: id };

/** Gives accounts of a sender a login, with their address as its name; all of them unless some are named. */
export async function setLogin(
  { em, vault, accountIds }: Pick<Sender, "em" | "vault" | "accountIds">,
  password: string,
  ids = accountIds,
): Promise<void> {
  for (const id of ids) {
    const encrypted = vault.encrypt(password, sealContext("email_accounts", "encrypted_password", id));
    await sql`update email_accounts set username = email, encrypted_password = ${encrypted}
      where id = ${id}`.execute(kysely(em));
  }
}

let requests = 0;
export const freshKey = (): string => `${unique("key")}-${requests++}`;

/** Subscribers straight into the database, on a list. @returns their ids, in order */
export async function addSubscribers(
  { em, team }: { em: TestTeam["em"]; team: { id: string } },
  listId: string,
  people: TestRecipient[],
): Promise<string[]> {
  const db = kysely(em);
  const tenant = { team_id: team.id, environment: "LIVE" as const };
  const ids = people.map(() => newId("subscriber"));
  const columns = sql`${ids}::text[], ${people.map(({ email }) => email)}::text[],
    ${people.map(({ firstName }) => firstName ?? null)}::text[], ${people.map(({ lastName }) => lastName ?? null)}::text[],
    ${people.map(({ status }) => status ?? "CONFIRMED")}::text[]`;
  await sql`
    insert into subscribers (id, team_id, environment, email, first_name, last_name)
    select id, ${tenant.team_id}, ${tenant.environment}, email, first_name, last_name
    from unnest(${columns}) as p (id, email, first_name, last_name, status)`.execute(db);
  await sql`
    insert into subscriptions (list_id, subscriber_id, team_id, environment, status)
    select ${listId}, id, ${tenant.team_id}, ${tenant.environment}, status
    from unnest(${columns}) as p (id, email, first_name, last_name, status)`.execute(db);
  await suppressThose({ em, team }, people);
  return ids;
}

/** Contacts straight into the database. @returns their ids, in order */
export async function addContacts(
  { em, team }: { em: TestTeam["em"]; team: { id: string } },
  people: TestRecipient[],
): Promise<string[]> {
  const ids = people.map(() => newId("contact"));
  await sql`
    insert into contacts (id, team_id, environment, email, first_name, last_name, email_status, fields)
    select id, ${team.id}, 'LIVE', email, first_name, last_name, status, fields::jsonb
    from unnest(${ids}::text[], ${people.map(({ email }) => email)}::text[],
      ${people.map(({ firstName }) => firstName ?? null)}::text[],
      ${people.map(({ lastName }) => lastName ?? null)}::text[],
      ${people.map(({ status = "CONFIRMED" }) => (status === "CONFIRMED" ? "ACTIVE" : "INVALID"))}::text[],
      ${people.map(({ fields = {} }) => JSON.stringify(fields))}::text[])
      as p (id, email, first_name, last_name, status, fields)`.execute(kysely(em));
  await suppressThose({ em, team }, people);
  return ids;
}

async function suppressThose(
  { em, team }: { em: TestTeam["em"]; team: { id: string } },
  people: readonly TestRecipient[],
): Promise<void> {
  const suppressed = people.filter((person) => person.suppressed);
  if (suppressed.length === 0) return;
  const tenant = { team_id: team.id, environment: "LIVE" as const };
  await kysely(em)
    .insertInto("suppressions")
    .values(suppressed.map(({ email }) => ({ id: newId("suppression"), ...tenant, email, reason: "MANUAL" })))
    .execute();
}

export const people = (count: number, audience: string): TestRecipient[] =>
  Array.from({ length: count }, (_, i) => ({
    email: `person${i}@${audience}`,
    firstName: `First${i}`,
    lastName: `Last${i}`,
  }));

async function makeSendingTeam(options: SenderOptions): Promise<SendingTeam> {
  const domain = `${unique("from")}.example`;
  const audience = `${unique("to")}.example`;
  const made = await makeTeam({ sendDomains: [domain], ...options });
  const tenant = { teamId: made.team.id, environment: "LIVE" as const };
  await transaction(made.em, (tx) => grantCredits(tx, tenant, options.credits ?? 1_000_000, unique("grant")));
  const fromEmail = `news@${domain}`;
  const accountIds: string[] = [];
  for (const [i, differences] of [{}, ...(options.furtherAccounts ?? [])].entries()) {
    const email = i === 0 ? fromEmail : `news${i + 1}@${domain}`;
    accountIds.push(await addAccount(made, { email, ...options.account, ...differences }));
  }
  const [accountId = ""] = accountIds;
  return { ...made, client: api(made.keys.live, options.base), domain, audience, fromEmail, accountId, accountIds };
}

/** A sending account on the mail catcher. @returns its id */
export async function addAccount(
  { em, team }: { em: TestTeam["em"]; team: { id: string } },
  fields: Partial<EmailAccount> & { email: string },
): Promise<string> {
  const id = newId("account");
  const { hostname, port } = new URL((await stack()).mail.smtp);
  em.create(EmailAccount, {
    id,
    teamId: team.id,
    environment: "LIVE",
    displayName: "Test News",
    provider: "SMTP_OTHER",
    status: "ACTIVE",
    allowedDomains: [],
    host: hostname,
    port: Number(port),
    security: "none",
    maxConnections: 20,
    ...fields,
  });
  await em.flush();
  return id;
}

const recipientsOf = ({ recipients = 3 }: SenderOptions, audience: string): TestRecipient[] =>
  typeof recipients === "number" ? people(recipients, audience) : recipients;

export async function makeSender(options: SenderOptions = {}): Promise<Sender> {
  const made = await makeSendingTeam(options);
  const { em, client, audience, fromEmail } = made;
  const list = await client.post("/lists", { name: "Readers", optin: "SINGLE" });
  assert.equal(list.status, 201, list.text);
  const listId: string = list.body.data.id;
  await addSubscribers(made, listId, recipientsOf(options, audience));

  const draft = await client.post("/newsletters", {
    name: "Issue one",
    subject: options.subject ?? "Hello {{ first_name }}",
    from_email: fromEmail,
    body: options.body ?? "<html><body><p>Dear {{ first_name }}, welcome to {{ list_name }}.</p></body></html>",
  });
  assert.equal(draft.status, 201, draft.text);
  const newsletterId: string = draft.body.data.id;
  if (!options.detached) await transaction(em, (tx) => attachList(tx, newsletterId, listId));
  return { ...made, listId, newsletterId };
}

export async function makeCampaignSender(options: SenderOptions = {}): Promise<CampaignSender> {
  const made = await makeSendingTeam(options);
  const { em, client, audience, accountIds } = made;
  await addContacts(made, recipientsOf(options, audience));
  const draft = await client.post("/campaigns", {
    name: "Campaign one",
    subject: options.subject ?? "Hello {{ first_name }}",
    body: options.body ?? "<html><body><p>Dear {{ first_name }}, welcome.</p></body></html>",
  });
  assert.equal(draft.status, 201, draft.text);
  const campaignId: string = draft.body.data.id;
  const segmentId = await addSegment(made);
  await transaction(em, async (tx) => {
    await attachAccounts(tx, campaignId, accountIds);
    if (!options.detached) await attachSegment(tx, campaignId, segmentId);
  });
  return { ...made, segmentId, campaignId };
}

/** A segment of a team, of all contacts unless conditions are given. @returns its id */
export async function addSegment(
  { em, team }: Pick<TestTeam, "em" | "team">,
  definition: object = { field: "email", op: "exists", value: true },
): Promise<string> {
  const tenant = { teamId: team.id, environment: "LIVE" as const };
  const { id } = await transaction(em, (tx) => createSegment(tx, tenant, { name: "Segment", conditions: definition }));
  return id;
}

/** Another newsletter of the same team, from the same account and to the same list. */
export async function anotherNewsletter(sender: Sender): Promise<Sender> {
  const { status, body, text } = await sender.client.post("/newsletters", {
    name: "Another",
    subject: "Another",
    from_email: sender.fromEmail,
    body: "<p>Another, {{ first_name }}</p>",
  });
  assert.equal(status, 201, text);
  await transaction(sender.em, (tx) => attachList(tx, body.data.id, sender.listId));
  return { ...sender, newsletterId: body.data.id };
}

type CanSend = Pick<SendingTeam, "client"> & Sent;

export const preview = (sender: CanSend, idempotencyKey = freshKey()): Promise<ApiAnswer> =>
  sender.client.post(`${pathOf(sender)}/send-preview`, undefined, { idempotencyKey });

export const confirm = (sender: CanSend, token: string, idempotencyKey = freshKey()): Promise<ApiAnswer> =>
  sender.client.post(`${pathOf(sender)}/send`, { confirmation_token: token }, { idempotencyKey });

/** Asks under one Idempotency-Key until there is an answer in time: a 503 says to repeat the request. */
function untilAnswered(ask: (idempotencyKey: string) => Promise<ApiAnswer>): Promise<ApiAnswer> {
  const key = freshKey();
  const answered = async () => {
    const answer = await ask(key);
    assert.notEqual(answer.status, 503, answer.text);
    return answer;
  };
  return eventually(answered, { what: "an answer other than 503" });
}

/** Previews and gives the token; fails the test when the preview is refused. */
export async function tokenOf(sender: CanSend): Promise<string> {
  const answer = await untilAnswered((key) => preview(sender, key));
  assert.equal(answer.status, 200, answer.text);
  return answer.body.data.confirmation.token;
}

/** Previews and confirms; fails the test when either is refused. @returns the body of the 202 */
async function confirmed(sender: CanSend): Promise<Json> {
  const token = await tokenOf(sender);
  const answer = await untilAnswered((key) => confirm(sender, token, key));
  assert.equal(answer.status, 202, answer.text);
  return answer.body;
}

/** A sender of whose send the lanes are known. */
type OfLanes = CanSend & Pick<SendingTeam, "em" | "accountIds">;

export const setTomorrow = (sender: Sent & Pick<SendingTeam, "em">) =>
  sql`update ${tableOf(sender)} set send_days = array[(extract(isodow from now() at time zone 'UTC')::int % 7 + 1)]
    where id = ${idOf(sender)}`.execute(kysely(sender.em));

/** Gives the send of a newsletter that has not begun a lane for each further account; a campaign's has them. */
export async function openFurtherLanes(sender: OfLanes, sendId: string) {
  if ("campaignId" in sender) return;
  const { em, accountIds } = sender;
  await sql`insert into send_lanes (send_id, account_id)
    select ${sendId}, id from unnest(${accountIds.slice(1)}::text[]) as a (id)`.execute(kysely(em));
}

export async function beginToday({ em }: Pick<SendingTeam, "em">, sendId: string): Promise<void> {
  await sql`update sends set send_at = now() where id = ${sendId}`.execute(kysely(em));
  const { client, close } = await temporalClient();
  try {
    await client.workflow.getHandle(sendWorkflowId(sendId)).executeUpdate("retry");
  } finally {
    await close();
  }
}

/** Confirms a send for tomorrow, over all accounts of the sender. @returns the body of the 202 */
export async function startTomorrow(sender: OfLanes): Promise<Json> {
  await setTomorrow(sender);
  const body = await confirmed(sender);
  await openFurtherLanes(sender, body.data.id);
  const { client, close } = await temporalClient();
  // Its workflow has read its send_at and lanes: a test may change them.
  await untilDetails(client.workflow.getHandle(sendWorkflowId(body.data.id)), "starts at its send_at").finally(close);
  return body;
}

/** A send over all accounts of the sender that is SENDING in Postgres, and that no worker takes. @returns its id */
export async function startUntaken(sender: OfLanes): Promise<string> {
  const { data } = await startTomorrow(sender);
  await sql`update sends set status = 'SENDING' where id = ${data.id}`.execute(kysely(sender.em));
  return data.id;
}

/** Over all accounts of the sender; fails the test when it is refused. @returns the body of the 202 */
export async function startSend(sender: CanSend & Partial<OfLanes>): Promise<Json> {
  const { em, accountIds = [] } = sender;
  // A campaign has a lane for each of its accounts by itself.
  if (!em || accountIds.length < 2 || "campaignId" in sender) return confirmed(sender);
  const body = await startTomorrow({ ...sender, em, accountIds });
  await beginToday({ em }, body.data.id);
  return body;
}

/** The newsletter or campaign as the API shows it, once it has one of these statuses. */
export function untilStatus(sender: CanSend, statuses: string[], withinMs?: number): Promise<Json> {
  return eventually(
    async () => {
      const { body } = await sender.client.get(pathOf(sender));
      return statuses.includes(body.data.status) ? body.data : undefined;
    },
    { withinMs, what: `status ${statuses.join(" or ")}` },
  );
}

export async function sendAndWait(sender: CanSend): Promise<Json> {
  await startSend(sender);
  return untilStatus(sender, ["SENT", "FAILED", "CANCELLED"]);
}

/** Every mail that the catcher holds for an address, or for `@` and a domain, in order of arrival. */
export async function mailsTo(to: string): Promise<CaughtMail[]> {
  const { mail } = await stack();
  const found: CaughtMail[] = [];
  for (let after = 0; ; ) {
    const url = new URL("/api/messages", mail.api);
    url.search = new URLSearchParams({ to, after: String(after), limit: "1000" }).toString();
    const { messages } = (await (await fetch(url)).json()) as { messages: CaughtMail[] };
    const last = messages.at(-1);
    if (!last) return found;
    after = last.id;
    found.push(...messages);
  }
}

export const caughtMails = ({ audience }: Pick<Sender, "audience">): Promise<CaughtMail[]> => mailsTo(`@${audience}`);

export async function readSource(id: number): Promise<Buffer> {
  const { mail } = await stack();
  return Buffer.from(await (await fetch(new URL(`/api/messages/${id}/source`, mail.api))).arrayBuffer());
}

export const readMail = async (id: number): Promise<Email> => PostalMime.parse(await readSource(id));

export type FaultRule = z.input<typeof faultRules>[number];

/** None makes it behave again. @param match of the rules that these replace; all of them unless given */
export async function setFaults(rules: FaultRule[], match?: string): Promise<void> {
  const { mail } = await stack();
  const url = new URL("/api/faults", mail.api);
  if (match !== undefined) url.searchParams.set("match", match);
  const answer = await fetch(url, {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(rules),
  });
  assert.equal(answer.status, 200, await answer.text());
}

/** A command that comes late still finds most recipients queued. `setFaults([], audience)` lets the rest leave quickly. */
export const slowAfter = (
  count: number,
  { audience }: Pick<SendingTeam, "audience">,
  firstRules: readonly FaultRule[] = [],
): Promise<void> =>
  setFaults(
    [
      ...firstRules,
      { stage: "data", match: audience, times: count },
      { stage: "data", match: audience, delayMs: 1_000 },
    ],
    audience,
  );

/** Waits until more than so many recipients of a send are SENT. */
export const untilSent = (sender: AnySender, mails: number): Promise<boolean> =>
  eventually(async () => ((await ledgerStates(sender)).SENT ?? 0) > mails, { what: `more than ${mails} mails` });

/** Waits until a statement like this waits for a lock that another transaction holds. */
export const untilBlocked = ({ em }: Pick<TestTeam, "em">, statement: string): Promise<boolean> =>
  eventually(
    async () => {
      const { rows } = await sql`select from pg_stat_activity where datname = current_database()
        and pg_blocking_pids(pid) <> '{}' and query like ${statement}`.execute(kysely(em.fork()));
      return rows.length > 0;
    },
    { what: `a blocked statement like ${statement}` },
  );

export async function ledgerStates(sender: AnySender): Promise<Partial<Record<RecipientState, number>>> {
  const rows = await kysely(sender.em)
    .selectFrom("send_recipients")
    .innerJoin("sends", "sends.id", "send_recipients.send_id")
    .where("sends.resource_id", "=", idOf(sender))
    .select(["state", sql<number>`count(*)::int`.as("count")])
    .groupBy("state")
    .execute();
  return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
}

/** The team's balance, and whether it differs from the sum of its ledger of credits. */
export async function credits({
  em,
  team,
}: TestTeam): Promise<{ available: number; reserved: number; mismatch: boolean }> {
  const { rows } = await sql<{ available: number; reserved: number; mismatch: boolean }>`
    select b.available::int as available, b.reserved::int as reserved,
      b.available <> e.available or b.reserved <> e.reserved as mismatch
    from credit_balances b, (
      select sum(case kind when 'GRANT' then amount when 'RELEASE' then amount when 'RESERVE' then -amount else 0 end) as available,
        sum(case kind when 'RESERVE' then amount when 'RELEASE' then -amount when 'CONSUME' then -amount else 0 end) as reserved
      from credit_entries where team_id = ${team.id} and environment = 'LIVE') e
    where b.team_id = ${team.id} and b.environment = 'LIVE'`.execute(kysely(em));
  const [row] = rows;
  assert.ok(row, "the team has a balance");
  return row;
}
