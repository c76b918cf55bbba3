import assert from "node:assert/strict";
import { forTenant, kysely } from "../../db/orm.ts";
import type { DkimAlgorithm } from "../../domain/mail/dkim.ts";
import { activateKey, addKey, listKeys, removeKey, type SendingKey } from "../../domain/sending-domains/keys.ts";
import { dkimRecord } from "../../domain/sending-domains/records.ts";
import { type Verified, verifyDkim } from "../mail/dkim.ts";
import { tenantOf } from "../support/factories.ts";
import {
  type AnySender,
  anotherNewsletter,
  caughtMails,
  makeCampaignSender,
  makeSender,
  readSource,
  sendAndWait,
} from "../support/sending.ts";

const makeKey = (
  sender: AnySender,
  domain: string,
  { algorithm = "rsa", isFirst = true }: { algorithm?: DkimAlgorithm; isFirst?: boolean } = {},
): Promise<SendingKey> => addKey(sender.em.fork(), tenantOf(sender), sender.vault, { domain, algorithm, isFirst });

const activate = (sender: AnySender, { id }: SendingKey) =>
  activateKey(forTenant(sender.em, tenantOf(sender)), tenantOf(sender), id);

const recordsOf = (...keys: SendingKey[]) =>
  new Map(
    keys.map((key) => {
      const { name, value } = dkimRecord(key);
      return [name, value];
    }),
  );

/** The signatures of a sender's mails after the first `skip`, by mail. */
async function signaturesOf(sender: AnySender, keys: SendingKey[], skip = 0): Promise<Verified[][]> {
  const mails = (await caughtMails(sender)).slice(skip);
  assert.ok(mails.length > 0, "the sender has mails");
  const records = recordsOf(...keys);
  return Promise.all(mails.map(async ({ id }) => verifyDkim(await readSource(id), records)));
}

const selectorsOf = (mails: Verified[][]) =>
  mails.map((signatures) => signatures.map(({ result, selector }) => `${result} ${selector}`));

describe("DKIM signatures of a send", () => {
  it("stand on each mail, also with tracked links, and cover the one-click unsubscribe", async () => {
    const sender = await makeSender({
      recipients: 3,
      body: '<p>{{ first_name }} <a href="https://shop.example/?a=1">x</a></p>',
    });
    await kysely(sender.em).updateTable("teams").set({ tracking: "ALL" }).where("id", "=", sender.team.id).execute();
    const keys = [await makeKey(sender, sender.domain), await makeKey(sender, sender.domain, { algorithm: "ed25519" })];
    for (const key of keys) await activate(sender, key);
    await sendAndWait(sender);
    const mails = await signaturesOf(sender, keys);
    assert.equal(mails.length, 3);
    for (const signatures of mails) {
      assert.deepEqual(
        signatures.map(({ result, algorithm }) => `${result} ${algorithm}`),
        ["pass rsa-sha256", "pass ed25519-sha256"],
      );
      for (const { fields } of signatures) assert.ok(fields.includes("list-unsubscribe-post"));
    }
  });

  it("are of the sender's own key, never of another team's, also for the same domain", async () => {
    const sender = await makeSender({ recipients: 1 });
    const own = await makeKey(sender, sender.domain);
    await activate(sender, own);
    const other = await makeCampaignSender({
      recipients: 1,
      sendDomains: [sender.domain],
      account: { email: `also@${sender.domain}` },
    });
    await sendAndWait(other);
    const [mail] = await caughtMails(other);
    assert.ok(mail);
    const source = (await readSource(mail.id)).toString("latin1");
    assert.match(source, new RegExp(`^From: .*@${sender.domain}>?\r$`, "m"));
    assert.doesNotMatch(source, /DKIM-Signature/i);

    await sendAndWait(sender);
    assert.deepEqual(selectorsOf(await signaturesOf(sender, [own])), [[`pass ${own.selector}`]]);

    const test = await addKey(sender.em.fork(), { ...tenantOf(sender), environment: "TEST" }, sender.vault, {
      ...own,
      isFirst: true,
    });
    assert.deepEqual(
      (await listKeys(sender.em.fork(), tenantOf(sender))).map(({ id }) => id),
      [own.id],
    );
    await assert.rejects(removeKey(other.em.fork(), tenantOf(other), own.id, { force: true }), /No record/);
    await assert.rejects(activateKey(other.em.fork(), tenantOf(other), test.id), /No record/);
  });

  it("change with a rotation from one key to the next, without a mail between them unsigned", async () => {
    const sender = await makeSender({ recipients: 1 });
    const em = () => forTenant(sender.em, tenantOf(sender));
    await assert.rejects(makeKey(sender, sender.domain, { isFirst: false }), /has no key of rsa; domain:add/);
    const old = await makeKey(sender, sender.domain);
    await activate(sender, old);
    await assert.rejects(makeKey(sender, sender.domain), /has a key of rsa; rotate it/);
    const next = await makeKey(sender, sender.domain, { isFirst: false });
    await sendAndWait(sender);
    await activate(sender, next);
    await sendAndWait(await anotherNewsletter(sender));
    // Of the replaced key: its record is still there, so that the mail before verifies.
    assert.deepEqual(selectorsOf(await signaturesOf(sender, [old, next])), [
      [`pass ${old.selector}`],
      [`pass ${next.selector}`],
    ]);
    const uses = (await listKeys(em(), tenantOf(sender))).map(({ id, use }) => [id, use]);
    assert.deepEqual(uses, [
      [next.id, "signing"],
      [old.id, "replaced"],
    ]);

    await assert.rejects(removeKey(em(), tenantOf(sender), next.id, { force: false }), /signs emails from/);
    await removeKey(em(), tenantOf(sender), old.id, { force: false });
    await removeKey(em(), tenantOf(sender), next.id, { force: true });
    await sendAndWait(await anotherNewsletter(sender));
    assert.deepEqual(await signaturesOf(sender, [old, next], 2), [[]]);
  });

  it("leave the ID and the date alone, which Amazon SES replaces", async () => {
    const sender = await makeSender({ recipients: 1, account: { provider: "SMTP_AMAZON_SES" } });
    const key = await makeKey(sender, sender.domain);
    await activate(sender, key);
    await sendAndWait(sender);
    const [[signature] = []] = await signaturesOf(sender, [key]);
    assert.equal(signature?.result, "pass");
    assert.ok(!signature?.fields.includes("message-id") && !signature?.fields.includes("date"));
  });
});
