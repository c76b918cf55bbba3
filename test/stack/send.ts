import assert from "node:assert/strict";
import { Client, Connection } from "@temporalio/client";
import { sql } from "kysely";
import { forTenant, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { mostInFlight } from "../../domain/sends/account-capacity.ts";
import { attachList } from "../../domain/sends/newsletters.ts";
import { DEMO_FROM } from "../../stack/demo-team.ts";
import type { StackFile } from "../../stack/state.ts";
import { api } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { unique } from "../support/factories.ts";
import { addAccount, addSubscribers, caughtMails, confirm, people, setFaults, tokenOf } from "../support/sending.ts";
import { inDatabase } from "./support.ts";

export const RECIPIENTS = 200;
/** Mails of a dead worker that may be in flight at the account's four connections. */
export const MOST_UNKNOWN = mostInFlight(4);

/** Mails that are taken at once; each further one takes so long that the send is under way for minutes, however busy the machine. */
const AT_ONCE = 20;
const SLOW_MS = 20_000;

/** A confirmed newsletter of the demo team, whose mail goes to the mail catcher of the stack that runs this test. */
export async function confirmed(file: StackFile, sendDays: number[] = []) {
  const client = api(file.keys.live, file.api);
  const audience = `${unique("to")}.example`;
  const fromEmail = `${unique("news")}@${DEMO_FROM.split("@")[1]}`;
  const list = await client.post("/lists", { name: "Readers", optin: "SINGLE" });
  const draft = await client.post("/newsletters", {
    name: "Letter",
    subject: "Hello",
    from_email: fromEmail,
    body: "<p>Hello {{ first_name }}</p>",
  });
  const newsletterId: string = draft.body.data.id;
  await inDatabase(file, async (em) => {
    const tenant = { teamId: file.team.id, environment: "LIVE" as const };
    await addAccount({ em, team: file.team }, { email: fromEmail, maxConnections: 4 });
    await addSubscribers({ em, team: file.team }, list.body.data.id, people(RECIPIENTS, audience));
    await transaction(forTenant(em, tenant), (tx) => attachList(tx, newsletterId, list.body.data.id));
    if (sendDays.length > 0) {
      await sql`update newsletters set send_days = ${sendDays} where id = ${newsletterId}`.execute(kysely(em));
    }
  });
  await setFaults([
    { stage: "data", match: audience, times: AT_ONCE },
    { stage: "data", match: audience, delayMs: SLOW_MS },
  ]);
  const sender = { client, newsletterId, audience };
  const answer = await confirm(sender, await tokenOf(sender));
  assert.equal(answer.status, 202, answer.text);
  return { ...sender, sendId: answer.body.data.id as string };
}

/** Waits until a send has mailed what is taken at once. */
export const untilUnderWay = (sender: { audience: string }): Promise<boolean> =>
  eventually(async () => (await caughtMails(sender)).length >= AT_ONCE, { what: "some mail" });

/** The addresses that were mailed. @throws {Error} when one was mailed twice */
export async function mailedOnce(sender: { audience: string }): Promise<string[]> {
  const addresses = (await caughtMails(sender)).flatMap(({ to }) => to);
  assert.equal(new Set(addresses).size, addresses.length, "no address is mailed twice");
  return addresses;
}

/** A client of a stack's Temporal. */
export async function temporalOf({ temporal: { address, namespace } }: StackFile) {
  const connection = await Connection.connect({ address });
  return { client: new Client({ connection, namespace }), close: () => connection.close() };
}
