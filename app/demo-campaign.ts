import { Readable } from "node:stream";
import type { Mailkeel } from "../client/index.ts";
import { forTenant, kysely, ofTenant, type Tenant } from "../db/orm.ts";
import { connectAccount, resumeAccount } from "../domain/accounts/accounts.ts";
import { createSegment } from "../domain/audience/segments/segments.ts";
import { importContacts } from "../domain/import/import.ts";
import { attachAccounts, attachSegment } from "../domain/sends/drafts.ts";
import { DEMO_FROM, DEMO_SECOND_FROM, demoAccount } from "../stack/demo-team.ts";
import type { FaultRule } from "../stack/mail-faults.ts";
import type { StackFile } from "../stack/state.ts";
import { count, generateCsv, say, sayPlaces, sendDraft } from "./demo-steps.ts";
import { inTenant, type Session } from "./session.ts";

/** Connections of the account that fails half-way. */
const CONNECTIONS = 10;
/** Time that the catcher takes for each mail: a send of 600 lasts for seconds, so that it is seen half-way. */
const MAIL_MS = 400;

const BODY = `<html><body style="font-family: sans-serif">
<h1>Hello {{ first_name | default: "there" }}</h1>
<p>This campaign goes out over two accounts, and one of them fails half-way.</p>
<p><a href="{{ unsubscribe_url }}">Unsubscribe</a></p>
</body></html>`;

/**
 * Sends a campaign over two accounts, one of which fails when half of the mails are out: the other one carries on, and
 * every contact gets one mail.
 */
export async function sendCampaign(
  session: Session,
  stack: StackFile,
  mailkeel: Mailkeel,
  { recipients }: { recipients: number },
): Promise<void> {
  const tenant: Tenant = { teamId: stack.team.id, environment: "LIVE" };
  // Its own, so that contacts of an earlier demo are not in the segment.
  const domain = `inbox-${Date.now()}.example`;

  say("2. Contacts from CSV, and a segment of them");
  const csv = Readable.from(generateCsv(recipients, domain));
  await importContacts(forTenant(session.orm.em, tenant), session.vault, tenant, csv, { onRefused: () => {} });
  const segmentId = await inTenant(session, tenant, async (em) => {
    const definition = { field: "email", op: "contains", value: `@${domain}` };
    return (await createSegment(em, tenant, { name: `Demo of ${domain}`, conditions: definition })).id;
  });
  say(`  ${segmentId}: ${count(recipients)} contacts`);

  say("3. A draft that targets the segment, over two accounts");
  const accounts = await demoAccounts(session, stack, tenant);
  const { data: draft } = await mailkeel.campaigns.create({
    name: `Demo of ${domain}`,
    subject: "Hello {{ first_name }}",
    from_name: "Mailkeel demo",
    body: BODY,
  });
  await inTenant(session, tenant, async (em) => {
    await attachAccounts(
      em,
      draft.id,
      accounts.map(({ id }) => id),
    );
    await attachSegment(em, draft.id, segmentId);
  });
  const shares = accounts.map(({ email, connections }) => `${count(connections)} connections of ${email}`);
  say(`  ${draft.id}: mailed over ${shares.join(" and ")}, each as fast as its connections allow`);

  const slow = { stage: "data", match: domain, delayMs: MAIL_MS } as const;
  await setFaults(stack, [slow]);
  let hasFailed = false;
  const failHalfWay = async (part: number) => {
    if (hasFailed || part < 0.5) return;
    hasFailed = true;
    const refusal = { stage: "mail", match: `^${DEMO_SECOND_FROM}$`, code: 550, message: "5.7.1 Not you" } as const;
    await setFaults(stack, [slow, refusal]);
    say(`  ${DEMO_SECOND_FROM} is refused from now on`);
  };
  try {
    const sent = await sendDraft(mailkeel.campaigns, draft.id, failHalfWay);
    const mails = await mailsTo(stack, domain);
    const mailed = [DEMO_FROM, DEMO_SECOND_FROM].map(
      (from) => `${count(mails.filter((mail) => mail.from === from).length)} from ${from}`,
    );
    const people = new Set(mails.flatMap(({ to }) => to)).size;
    say(`  ${count(mails.length)} mails to ${count(people)} people: ${mailed.join(", ")}`);
    sayPlaces(stack, "/campaigns", sent);
  } finally {
    await setFaults(stack, []);
  }
}

interface DemoAccount {
  id: string;
  email: string;
  /** Connections that it may have at once. */
  connections: number;
}

/** The demo team's account, and a second one on the mail catcher, which works again after an earlier demo. */
async function demoAccounts(session: Session, stack: StackFile, tenant: Tenant): Promise<DemoAccount[]> {
  const { vault, orm } = session;
  const deps = { vault, verify: async () => ({ ok: true }) as const };
  const known = await kysely(orm.em.fork())
    .selectFrom("email_accounts")
    .select(["id", "email", "max_connections as connections"])
    .where(ofTenant(tenant))
    .where("email", "in", [DEMO_FROM, DEMO_SECOND_FROM])
    .orderBy("email")
    .execute();
  const { hostname, port } = new URL(stack.mail.smtp);
  return inTenant(session, tenant, async (em) => {
    for (const { id } of known) await resumeAccount(em, id, deps);
    if (known.some(({ email }) => email === DEMO_SECOND_FROM)) return known;
    const second = { email: DEMO_SECOND_FROM, displayName: "Second demo account", maxConnections: CONNECTIONS };
    const account = { ...demoAccount({ host: hostname, port: Number(port) }), ...second };
    const { id } = await connectAccount(em, tenant, account, deps);
    return [...known, { id, email: DEMO_SECOND_FROM, connections: CONNECTIONS }];
  });
}

async function setFaults({ mail }: StackFile, rules: Partial<FaultRule>[]): Promise<void> {
  const answer = await fetch(new URL("/api/faults", mail.api), {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(rules),
  });
  if (!answer.ok) throw new Error(`the mail catcher takes no faults: ${answer.status}`);
}

/** The mails to a domain that the catcher holds. */
async function mailsTo({ mail }: StackFile, domain: string): Promise<{ from: string; to: string[] }[]> {
  const found: { from: string; to: string[] }[] = [];
  for (let after = 0; ; ) {
    const url = new URL(`/api/messages?to=@${domain}&after=${after}&limit=1000`, mail.api);
    const { messages } = (await (await fetch(url)).json()) as {
      messages: { id: number; from: string; to: string[] }[];
    };
    const last = messages.at(-1);
    if (!last) return found;
    after = last.id;
    found.push(...messages);
  }
}
