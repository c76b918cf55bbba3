import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { attachAccounts, attachSegment } from "../../domain/sends/drafts/drafts.ts";
import type { ResourceType } from "../../domain/sends/resource.ts";
import { isLong } from "./long.ts";
import {
  type AnySender,
  addContacts,
  addSubscribers,
  anotherNewsletter,
  type CampaignSender,
  makeCampaignSender,
  makeSender,
  type Sender,
  type SenderOptions,
  type TestRecipient,
} from "./sending.ts";

/** A kind of resource that is sent, and how its recipients change: the suites of sends run for each. */
export interface Kind<S extends AnySender = AnySender> {
  type: ResourceType;
  make(options?: SenderOptions): Promise<S>;
  /** Another draft of the same team, with the same recipients and accounts. */
  another(sender: AnySender): Promise<S>;
  addRecipients(sender: AnySender, people: TestRecipient[]): Promise<unknown>;
  /** One recipient is targeted no more. */
  removeRecipient(sender: AnySender): Promise<unknown>;
  /** Takes the permission to be mailed from recipients: the opt-in, or the address's validity. */
  withdraw(sender: AnySender, who: "one" | "all"): Promise<unknown>;
  /** The table of the people it mails. */
  people: "subscribers" | "contacts";
}

const asNewsletter = (sender: AnySender): Sender =>
  "newsletterId" in sender ? sender : assert.fail("a newsletter's sender is needed");
const asCampaign = (sender: AnySender): CampaignSender =>
  "campaignId" in sender ? sender : assert.fail("a campaign's sender is needed");

const oneSubscriber = ({ listId }: Sender) =>
  sql`list_id = ${listId} and subscriber_id in (select min(subscriber_id) from subscriptions where list_id = ${listId})`;
const oneContact = ({ team }: AnySender) =>
  sql`id in (select min(id) from contacts where team_id = ${team.id} and email_status = 'ACTIVE')`;
const run = ({ em }: AnySender, statement: ReturnType<typeof sql>) => statement.execute(kysely(em));

export const NEWSLETTER: Kind<Sender> = {
  type: "newsletter",
  make: makeSender,
  another: (sender) => anotherNewsletter(asNewsletter(sender)),
  addRecipients: (sender, people) => addSubscribers(sender, asNewsletter(sender).listId, people),
  removeRecipient: (sender) => run(sender, sql`delete from subscriptions where ${oneSubscriber(asNewsletter(sender))}`),
  withdraw: (sender, who) => {
    const letter = asNewsletter(sender);
    const which = who === "all" ? sql`list_id = ${letter.listId}` : oneSubscriber(letter);
    return run(sender, sql`update subscriptions set status = 'UNSUBSCRIBED' where ${which}`);
  },
  people: "subscribers",
};

export const CAMPAIGN: Kind<CampaignSender> = {
  type: "campaign",
  make: makeCampaignSender,
  another: async (sender) => {
    const { client, em, segmentId, accountIds, ...rest } = asCampaign(sender);
    const { status, body, text } = await client.post("/campaigns", {
      name: "Another",
      subject: "Another",
      body: "<p>Another, {{ first_name }}</p>",
    });
    assert.equal(status, 201, text);
    const campaignId: string = body.data.id;
    await transaction(em, async (tx) => {
      await attachAccounts(tx, campaignId, accountIds);
      await attachSegment(tx, campaignId, segmentId);
    });
    return { ...rest, client, em, segmentId, accountIds, campaignId };
  },
  addRecipients: addContacts,
  removeRecipient: (sender) => run(sender, sql`delete from contacts where ${oneContact(sender)}`),
  withdraw: (sender, who) =>
    run(
      sender,
      sql`update contacts set email_status = 'INVALID'
        where ${who === "all" ? sql`team_id = ${sender.team.id}` : oneContact(sender)}`,
    ),
  people: "contacts",
};

export const KINDS: readonly Kind[] = [NEWSLETTER, CAMPAIGN];

/** The kind of the sends in a file of tests: newsletters, and campaigns in `npm run test:long`. */
export const kindOf = (): Kind => (isLong() ? CAMPAIGN : NEWSLETTER);
