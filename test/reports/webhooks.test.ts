import assert from "node:assert/strict";
import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { appRouter } from "../../api/router.ts";
import type { Source } from "../../db/entities/engagement.ts";
import { kysely, openDatabase } from "../../db/orm.ts";
import { mailId } from "../../domain/mail/message-id.ts";
import { isSigned, SENDGRID } from "../../domain/reports/sendgrid.ts";
import { sesSource } from "../../domain/reports/ses.ts";
import { addSource, pathOfSource, removeSource } from "../../domain/reports/source.ts";
import { openVault } from "../../domain/secrets/crypto.ts";
import type { FetchText } from "../../lib/fetch-text.ts";
import { type ApiAnswer, api, codeOf, type Json } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";
import { anotherNewsletter, caughtMails, makeSender, preview, sendAndWait } from "../support/sending.ts";
import { snapshotTables } from "../support/tables.ts";
import { live, mailTo, reasonOf, recordedKinds } from "./mails.ts";
import {
  CERTIFICATE,
  CERTIFICATE_URL,
  EXPIRED_CERTIFICATE,
  HOST,
  notificationOf,
  sendGridEvent,
  sendGridRequest,
  sesBounce,
  sesComplaint,
  snsMessage,
  subscriptionConfirmation,
  TOPIC,
} from "./payloads.ts";
import { keptLog, shown } from "./provider-kits.ts";

type Answer = Pick<ApiAnswer, "status" | "headers" | "text">;

describe("Webhooks of providers", () => {
  let team: TestTeam;
  let app: TestApp;
  /** URLs that the API opened at Amazon SNS, and its answers. */
  let opened: string[];
  let answers: (url: URL) => { status: number; text: string };
  let logged: string;
  const apps: TestApp[] = [];

  const fetchText: FetchText = async (url) => {
    opened.push(url.href);
    return answers(url);
  };
  const log = keptLog((line) => {
    logged += line;
  });
  const serve = async (options: Parameters<typeof serveRoutes>[1] = {}): Promise<TestApp> => {
    const served = await serveRoutes(appRouter, { ...options, with: { fetchText, log, ...options.with } });
    apps.push(served);
    return served;
  };

  before(async () => {
    team = await makeTeam();
  });
  beforeEach(async () => {
    opened = [];
    answers = (url) => (url.href === CERTIFICATE_URL ? { status: 200, text: CERTIFICATE } : { status: 200, text: "" });
    logged = "";
    app = await serve();
  });
  afterEach(async () => {
    for (const served of apps.splice(0)) await served.close();
  });

  const post = async (
    source: Pick<Source, "id" | "provider">,
    body: string,
    { to = app, headers = {} }: { to?: TestApp; headers?: Record<string, string> } = {},
  ): Promise<Answer> => {
    const url = `${to.origin}${pathOfSource(team.vault, source)}`;
    const response = await fetch(url, { method: "POST", body, headers });
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  /** A team's rows, without those that the maintenance pool works on after earlier bounces. */
  const rowsOf = async (teamId: string) => {
    const { contact_status_checks: _, ...tables } = await snapshotTables(team.em, teamId);
    return tables;
  };
  const unchanged = async (work: () => Promise<void>, teamId = team.team.id): Promise<void> => {
    const before = await rowsOf(teamId);
    await work();
    assert.deepEqual(await rowsOf(teamId), before);
  };

  describe("of Amazon SES", () => {
    let source: Source;
    const send = (message: Json, to?: TestApp) =>
      post(source, JSON.stringify(message), {
        headers: { "content-type": "text/plain; charset=UTF-8" },
        ...(to ? { to } : {}),
      });
    const isRefused = async (message: Json, why: RegExp): Promise<void> => {
      const { status, text } = await send(message);
      assert.equal(status, 401, text);
      assert.match(JSON.parse(text).error.message, why);
    };
    const topicOf = async ({ id }: Source) =>
      (await kysely(team.em).selectFrom("report_sources").select("topic_arn").where("id", "=", id).executeTakeFirst())
        ?.topic_arn;

    beforeEach(async () => {
      source = await addSource(team.em, team.vault, live(team), "SES", { topicArn: TOPIC });
    });

    for (const version of ["1", "2"]) {
      for (const form of ["eventType", "notificationType"]) {
        it(`record a bounce and a complaint in the form with ${form}, signed by version ${version}`, async () => {
          const [bounced, complained] = [uniqueEmail("bounced"), uniqueEmail("complained")];
          const mails = [await mailTo(team, bounced), await mailTo(team, complained)] as const;
          const signature = { SignatureVersion: version };
          assert.equal((await send(notificationOf(sesBounce(mails[0], { form }), signature))).status, 204);
          assert.equal((await send(notificationOf(sesComplaint(mails[1], { form }), signature))).status, 204);
          assert.equal(await reasonOf(team, bounced), "bounce:hard");
          assert.equal(await reasonOf(team, complained), "bounce:complaint");
        });
      }
    }

    it("are confirmed by their topic, which they are bound to from then on", async () => {
      const fresh = await addSource(team.em, team.vault, live(team), "SES", {});
      const at = (message: Json) => post(fresh, JSON.stringify(message));
      const mail = await mailTo(team, uniqueEmail());
      assert.equal((await at(notificationOf(sesBounce(mail)))).status, 401, "before the confirmation");
      const confirmation = subscriptionConfirmation();
      assert.equal((await at(confirmation)).status, 204);
      assert.deepEqual(opened, [CERTIFICATE_URL, new URL(confirmation.SubscribeURL).href]);
      assert.equal(await topicOf(fresh), TOPIC);
      assert.equal((await at(notificationOf(sesBounce(mail)))).status, 204);
      assert.deepEqual(await recordedKinds(team, mail.sendId), ["1 bounce:hard"]);

      const other = TOPIC.replace("mail-reports", "another");
      opened = [];
      assert.equal((await at(subscriptionConfirmation({ TopicArn: other }))).status, 401);
      assert.equal((await at(notificationOf(sesBounce(mail), { TopicArn: other }))).status, 401);
      assert.ok(!opened.some((url) => url.includes("ConfirmSubscription")));
      assert.equal(await topicOf(fresh), TOPIC);
    });

    it("take one of two topics that ask to be confirmed at once", async () => {
      const fresh = await addSource(team.em, team.vault, live(team), "SES", {});
      const topics = [TOPIC, TOPIC.replace("mail-reports", "another")];
      const statuses = await Promise.all(
        topics.map(
          async (TopicArn) => (await post(fresh, JSON.stringify(subscriptionConfirmation({ TopicArn })))).status,
        ),
      );
      assert.deepEqual(statuses.sort(), [204, 401]);
      assert.equal(opened.filter((url) => url.includes("ConfirmSubscription")).length, 1);
    });

    it("let SNS repeat a confirmation that it did not take", async () => {
      const confirmation = subscriptionConfirmation();
      answers = (url) =>
        url.href === CERTIFICATE_URL ? { status: 200, text: CERTIFICATE } : { status: 500, text: "" };
      assert.equal((await send(confirmation)).status, 503);
      answers = () => ({ status: 200, text: "" });
      assert.equal((await send(confirmation)).status, 204);
    });

    it("open no SubscribeURL of another host or for another purpose", async () => {
      for (const SubscribeURL of [
        `https://attacker.example/?Action=ConfirmSubscription&TopicArn=${TOPIC}&Token=x`,
        `http://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=${TOPIC}&Token=x`,
        `https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=${TOPIC}&Token=x`,
        `${HOST}:8443/?Action=ConfirmSubscription&TopicArn=${TOPIC}&Token=x`,
        `https://user@sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=${TOPIC}&Token=x`,
        `${HOST}/?Action=Publish&TopicArn=${TOPIC}&Token=x`,
        `${HOST}/?Action=ConfirmSubscription&TopicArn=${TOPIC}2&Token=x`,
        "no URL",
      ]) {
        await isRefused(subscriptionConfirmation({ SubscribeURL }), /host|confirms no/);
      }
      assert.deepEqual(opened, [CERTIFICATE_URL]);
    });

    it("refuse a certificate from another place than SNS has them", async () => {
      const name = "SimpleNotificationService-01d088a6f77103d0fe307c0069e40ed6.pem";
      await unchanged(async () => {
        for (const SigningCertURL of [
          `https://sns.eu-west-1.amazonaws.com.attacker.example/${name}`,
          `https://attacker.example/${name}`,
          `http://sns.eu-west-1.amazonaws.com/${name}`,
          `https://sns.eu-west-1.amazonaws.com:444/${name}`,
          `https://sns.eu-west-1.amazonaws.com@attacker.example/${name}`,
          `https://sns.s3-eu-west-1.amazonaws.com/${name}`,
          `https://sns.us-east-1.amazonaws.com/${name}`,
          `https://s3.amazonaws.com/${name}`,
          `${HOST}/?Action=Anything&x=/${name}`,
          `${HOST}/${name}?Action=Anything`,
          `${HOST}/folder/${name}`,
          `${HOST}/other.pem`,
          "file:///etc/passwd",
        ]) {
          await isRefused(snsMessage({ SigningCertURL }), /host|no certificate/);
        }
      });
      assert.deepEqual(opened, []);
    });

    it("refuse topics that are none of SNS's", async () => {
      for (const TopicArn of [
        "",
        "x",
        "arn:aws:s3:eu-west-1:123456789012:t",
        "arn:aws:sns:s3-eu-west-1:123456789012:t",
      ]) {
        await isRefused(snsMessage({ TopicArn }), /no topic/);
      }
    });

    it("refuse a message that was altered, signed by another key, or is none at all", async () => {
      const mail = await mailTo(team, uniqueEmail());
      const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
      const other = privateKey.export({ format: "pem", type: "pkcs8" }).toString();
      const genuine = notificationOf(sesBounce(mail));
      await unchanged(async () => {
        await isRefused({ ...genuine, Message: genuine.Message.replace("Permanent", "Transient") }, /signature/);
        await isRefused({ ...genuine, Timestamp: new Date().toISOString().replace("Z", "1Z") }, /signature/);
        await isRefused({ ...genuine, SignatureVersion: "1" }, /signature/);
        await isRefused({ ...genuine, Signature: "" }, /signature/);
        await isRefused({ ...genuine, SignatureVersion: "3" }, /no message/);
        await isRefused(snsMessage({ Message: genuine.Message }, other), /signature/);
        await isRefused(sesBounce(mail), /raw message delivery/);
        assert.equal((await post(source, "")).status, 401);
        assert.equal((await post(source, "{")).status, 401);
      });
    });

    it("refuse an old message, and one from the future", async () => {
      const mail = await mailTo(team, uniqueEmail());
      for (const hours of [-3, 3]) {
        const Timestamp = new Date(Date.now() + hours * 3_600_000).toISOString();
        await isRefused(notificationOf(sesBounce(mail), { Timestamp }), /too old/);
      }
      assert.deepEqual(await recordedKinds(team, mail.sendId), []);
    });

    it("refuse a certificate that has expired, is none or does not exist", async () => {
      for (const [status, text] of [
        [200, EXPIRED_CERTIFICATE],
        [200, "<html>"],
        [404, ""],
        [302, CERTIFICATE],
      ] as const) {
        answers = () => ({ status, text });
        await isRefused(snsMessage(), /certificate/);
      }
    });

    it("load a certificate once, and again after it could not be loaded", async () => {
      answers = () => {
        throw new Error("the network is down");
      };
      const away = await send(snsMessage());
      assert.equal(away.status, 503);
      assert.ok(Number(away.headers.get("retry-after")) > 0);
      answers = () => ({ status: 500, text: "" });
      assert.equal((await send(snsMessage())).status, 503);
      answers = () => ({ status: 200, text: CERTIFICATE });
      opened = [];
      const answered = await Promise.all(Array.from({ length: 10 }, () => send(snsMessage())));
      assert.deepEqual(
        answered.map(({ status }) => status),
        answered.map(() => 204),
      );
      assert.deepEqual(opened, [CERTIFICATE_URL]);
    });

    it("take other messages of SES and SNS without doing anything", async () => {
      const mail = await mailTo(team, uniqueEmail());
      const { bounce: _, ...rest } = sesBounce(mail);
      const unread = {
        ...sesBounce(mail),
        mail: { ...rest.mail, headers: [], commonHeaders: { messageId: "<x@y.example>" } },
      };
      await unchanged(async () => {
        for (const message of [
          notificationOf({ ...rest, eventType: "Delivery", delivery: {} }),
          notificationOf({ eventType: "Bounce" }),
          notificationOf(unread),
          snsMessage({ Message: "Successfully validated SNS topic for Amazon SES event publishing." }),
          snsMessage({ Message: "null" }),
          subscriptionConfirmation({ Type: "UnsubscribeConfirmation" }),
        ]) {
          const { status, text } = await send(message);
          assert.equal(status, 204, text);
        }
      });
      assert.deepEqual(opened, [CERTIFICATE_URL]);
    });

    it("tell bounces and complaints apart by their types", () => {
      const mail = { sendId: "send_01m80rgrxxe01bm0qfrxakx5bq", seq: 7 };
      const parsed = (record: Json) => sesSource(fetchText).parse(notificationOf(record)).map(shown);
      const bounces: [string, string, string][] = [
        ["Undetermined", "Undetermined", "bounce:soft"],
        ["Permanent", "General", "bounce:hard"],
        ["Permanent", "NoEmail", "bounce:hard"],
        ["Permanent", "Suppressed", "dropped_by_provider, bounce:hard"],
        ["Permanent", "OnAccountSuppressionList", "dropped_by_provider, bounce:hard"],
        ["Permanent", "UnsubscribedRecipient", "dropped_by_provider, UNSUBSCRIBED"],
        ["Transient", "General", "bounce:soft"],
        ["Transient", "MailboxFull", "bounce:soft"],
        ["Transient", "MessageTooLarge", "bounce:soft, sender's"],
        ["Transient", "ContentRejected", "bounce:soft, sender's"],
        ["Transient", "AttachmentRejected", "bounce:soft, sender's"],
      ];
      for (const [bounceType, bounceSubType, expected] of bounces) {
        const unknown = { status: "5.0.0", reply: "550 5.0.0 refused" };
        const found = parsed(sesBounce(mail, { bounceType, bounceSubType, ...unknown }));
        assert.deepEqual(found, [expected], `${bounceType}/${bounceSubType}`);
      }
      const suppressed = sesComplaint(mail);
      suppressed.complaint.complaintSubType = "OnAccountSuppressionList";
      assert.deepEqual(parsed(suppressed), ["dropped_by_provider, bounce:complaint"]);
      const answered = sesBounce(mail, { bounceType: "Transient" });
      answered.bounce.bouncedRecipients = [{ emailAddress: "jane@example.com", status: null }];
      assert.deepEqual(parsed(answered), [], "an automatic answer");
      assert.deepEqual(parsed({ ...answered, bounce: null }), ["unreadable: "]);
      assert.deepEqual(parsed({ ...answered, bounce: { bounceType: 1 } }), ["unreadable: bounceType"]);
      assert.deepEqual(parsed({ ...answered, eventType: null }), ["unreadable: type"]);
      const bare = { ...sesBounce(mail), notificationType: null, complaint: null };
      bare.mail = { headers: null, commonHeaders: bare.mail.commonHeaders };
      assert.deepEqual(parsed(bare), ["bounce:hard"], "null is as absent");
      assert.throws(() => sesSource(fetchText).parse(snsMessage({ Message: '{"eventType":' })), /not JSON/);
      for (const [complaintFeedbackType, expected] of [
        [undefined, ["complaint"]],
        ["abuse", ["complaint"]],
        ["fraud", ["complaint"]],
        ["virus", ["complaint"]],
        ["other", ["complaint"]],
        ["auth-failure", []],
        ["not-spam", []],
      ] as const) {
        assert.deepEqual(parsed(sesComplaint(mail, { complaintFeedbackType })), expected, complaintFeedbackType);
      }
    });
  });

  describe("of SendGrid", () => {
    let source: Source;
    let privateKey: KeyObject;
    const send = (events: Json, options: { at?: number } = {}) => {
      const { body, headers } = sendGridRequest(events, privateKey, options);
      return post(source, body, { headers });
    };
    const keyPair = () => {
      const pair = generateKeyPairSync("ec", { namedCurve: "P-256" });
      return { ...pair, text: pair.publicKey.export({ format: "der", type: "spki" }).toString("base64") };
    };

    beforeEach(async () => {
      const pair = keyPair();
      privateKey = pair.privateKey;
      source = await addSource(team.em, team.vault, live(team), "SENDGRID", { publicKey: pair.text });
    });

    it("find a mail by its Message-ID; a complaint stops the team's next send, one about an earlier mail does not", async () => {
      const sender = await makeSender({ recipients: 3 });
      await sendAndWait(sender);
      const [caught, dropped] = await caughtMails(sender);
      assert.ok(caught && dropped);
      const pair = keyPair();
      const own = await addSource(sender.em, sender.vault, live(sender), "SENDGRID", { publicKey: pair.text });
      const report = async (messageId: string, event: Json) => {
        const { body, headers } = sendGridRequest([{ "smtp-id": messageId, ...event }], pair.privateKey);
        assert.equal((await post(own, body, { headers })).status, 204);
      };
      // SendGrid did not try to deliver it: the mail is neither delivered nor complained about.
      await report(dropped.messageId, { event: "dropped", reason: "Spam Reporting Address" });
      assert.equal(await reasonOf(sender, dropped.to[0] ?? ""), "bounce:complaint");
      const client = api(sender.keys.live);
      const { totals } = (await client.get("/analytics/overview")).body.data;
      assert.deepEqual(
        [totals.sent, totals.delivered, totals.rejected, totals.complained, totals.bounced_hard],
        [2, 2, 1, 0, 0],
      );
      const { recipients } = (await client.get(`/newsletters/${sender.newsletterId}`)).body.data;
      assert.deepEqual([recipients.sent, recipients.rejected], [2, 1]);
      assert.equal((await preview(await anotherNewsletter(sender))).status, 200);

      await report(caught.messageId, { event: "spamreport" });
      assert.equal(await reasonOf(sender, caught.to[0] ?? ""), "bounce:complaint");
      assert.equal(codeOf(await preview(await anotherNewsletter(sender))), "complaint_rate_exceeded");
    });

    it("record the other events of a batch when one cannot be read, log and count it, and ask for the batch again", async () => {
      const [email, mail] = [uniqueEmail(), await mailTo(team, uniqueEmail())];
      const read = await mailTo(team, email);
      const count = async () =>
        await app.deps.metrics.getSingleMetricAsString("mailkeel_provider_events_unreadable_total");
      assert.match(await count(), / 0\n?$/);
      assert.equal((await send([sendGridEvent(mail, { type: 5 }), sendGridEvent(read, { type: null })])).status, 503);
      assert.equal(await reasonOf(team, email), "bounce:hard");
      assert.match(logged, /"fields":"type".*cannot be read/);
      assert.match(await count(), / 1\n?$/);
      const { headers } = sendGridRequest([], privateKey);
      const at = headers["x-twilio-email-event-webhook-timestamp"] ?? "";
      const signature = sign("sha256", Buffer.from(`${at}[{`), privateKey).toString("base64");
      const cut = await post(source, "[{", {
        headers: { ...headers, "x-twilio-email-event-webhook-signature": signature },
      });
      assert.equal(cut.status, 400, "it can never be read");
    });

    it("record the other events of a batch when a mail has no outcome yet, and ask for the batch again", async () => {
      const [early, settled] = [await mailTo(team, uniqueEmail(), "SENDING"), await mailTo(team, uniqueEmail())];
      // SendGrid repeats a batch for as long.
      const aDayAgo = { at: Date.now() - 86_400_000 };
      assert.equal((await send([sendGridEvent(early), sendGridEvent(settled)], aDayAgo)).status, 503);
      assert.deepEqual(await recordedKinds(team, settled.sendId), ["1 bounce:hard"]);
    });

    it("refuse every request until they have a public key", async () => {
      const fresh = await addSource(team.em, team.vault, live(team), "SENDGRID", {});
      const { body, headers } = sendGridRequest([], privateKey);
      const { status, text } = await post(fresh, body, { headers });
      assert.equal(status, 401);
      assert.match(JSON.parse(text).error.message, /provider:set/);
    });

    it("take keys on the curve P-256 alone, as PEM too", async () => {
      const { publicKey } = keyPair();
      const pem = publicKey.export({ format: "pem", type: "spki" }).toString();
      const { publicKey: stored } = await addSource(team.em, team.vault, live(team), "SENDGRID", { publicKey: pem });
      assert.equal(stored, publicKey.export({ format: "der", type: "spki" }).toString("base64"));
      const others = [
        generateKeyPairSync("rsa", { modulusLength: 2048 }).publicKey,
        generateKeyPairSync("ec", { namedCurve: "P-384" }).publicKey,
        generateKeyPairSync("ed25519").publicKey,
      ].map((key) => key.export({ format: "der", type: "spki" }).toString("base64"));
      for (const key of [...others, "", "x"]) {
        await assert.rejects(addSource(team.em, team.vault, live(team), "SENDGRID", { publicKey: key }), /P-256/);
      }
    });

    it("verify what SendGrid itself has signed", () => {
      // From the tests of SendGrid's own library, @sendgrid/eventwebhook 8.0.0.
      const publicKey =
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";
      const signature =
        "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM=";
      const body = `${JSON.stringify([
        {
          email: "hello@world.com",
          event: "dropped",
          reason: "Bounced Address",
          sg_event_id: "ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA",
          sg_message_id: "LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0",
          "smtp-id": "<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>",
          timestamp: 1600112492,
        },
      ])}\r\n`;
      const request = { body: Buffer.from(body), timestamp: "1600112502", signature };
      assert.equal(isSigned(request, publicKey), true);
      assert.equal(isSigned({ ...request, timestamp: "1600112503" }, publicKey), false);
      assert.equal(isSigned({ ...request, signature: "x" }, publicKey), false);
    });

    it("tell events apart by their types", () => {
      const mail = { sendId: "send_01m80rgrxxe01bm0qfrxakx5bq", seq: 7 };
      const cases: [Json, string[]][] = [
        [{}, ["bounce:hard"]],
        [{ bounce_classification: null }, ["bounce:hard"]],
        [{ bounce_classification: "Unclassified" }, ["bounce:hard"]],
        [{ bounce_classification: "Mailbox Unavailable" }, ["bounce:soft"]],
        [{ bounce_classification: "Technical Failure" }, ["bounce:soft"]],
        [{ bounce_classification: "Reputation" }, ["bounce:soft, sender's"]],
        [{ bounce_classification: "Content" }, ["bounce:soft, sender's"]],
        [{ bounce_classification: "Frequency or Volume Too High" }, ["bounce:soft, sender's"]],
        [{ type: "blocked" }, ["bounce:soft"]],
        [{ type: "blocked", bounce_classification: "Reputation" }, ["bounce:soft, sender's"]],
        [{ bounce_classification: "Technical Failure", reason: "500 unknown recipient" }, ["bounce:hard"]],
        [{ bounce_classification: null, type: null, reason: null, status: "5.1.10" }, ["bounce:hard"]],
        [{ bounce_classification: null, status: 550, sg_message_id: null, more: [] }, ["bounce:hard"]],
        [{ reason: "550 5.7.1 Client host blocked by bl.example" }, ["bounce:soft, sender's"]],
        [{ "smtp-id": null, mailkeel_mail: mailId(mail) }, ["bounce:hard"]],
        [{ mailkeel_mail: null }, ["bounce:hard"]],
        [{ reason: 5 }, ["unreadable: reason"]],
        [{ event: null }, ["unreadable: event"]],
        [{ event: null, "smtp-id": "<another@example.net>" }, []],
        [{ event: "dropped", reason: "Bounced Address" }, ["dropped_by_provider, bounce:hard"]],
        [{ event: "dropped", reason: "Invalid" }, ["dropped_by_provider, bounce:hard"]],
        [{ event: "dropped", reason: "Spam Reporting Address" }, ["dropped_by_provider, bounce:complaint"]],
        [{ event: "dropped", reason: "Unsubscribed Address" }, ["dropped_by_provider, UNSUBSCRIBED"]],
        [{ event: "dropped", reason: "Recipient List over Package Quota" }, ["dropped_by_provider"]],
        [{ event: "dropped", reason: "constructor" }, ["dropped_by_provider"]],
        [{ event: "spamreport" }, ["complaint"]],
        [{ event: "deferred" }, []],
        [{ event: "delivered" }, []],
        [{ event: "click" }, []],
        [{ event: "unsubscribe" }, []],
      ];
      for (const [changes, expected] of cases) {
        const found = SENDGRID.parse([sendGridEvent(mail, { reason: "550 refused", ...changes })]).map(shown);
        assert.deepEqual(found, expected, JSON.stringify(changes));
      }
    });
  });

  describe("of any provider", () => {
    it("refuse a token that is altered, of another provider, or whose webhook was removed", async () => {
      const source = await addSource(team.em, team.vault, live(team), "SES", { topicArn: TOPIC });
      const path = pathOfSource(team.vault, source);
      const other = await addSource(team.em, team.vault, live(team), "SES", { topicArn: TOPIC });
      const [, ofOther] = pathOfSource(team.vault, other).split(".");
      const statusOf = async (to: string, method = "POST") =>
        (await fetch(`${app.origin}${to}`, { method, ...(method === "POST" ? { body: "{}" } : {}) })).status;
      for (const altered of [
        `${path}x`,
        `${path}.x`,
        path.slice(0, -1),
        path.replace(/\..*/, ""),
        path.replace(/\..*/, "."),
        path.replace(/\..*/, `.${ofOther}`),
        path.replace("/ses/", "/sendgrid/"),
        "/hooks/ses/x",
        "/hooks/ses/%20",
      ]) {
        assert.equal(await statusOf(altered), 401, altered);
      }
      assert.equal(await statusOf(path, "GET"), 404);
      assert.equal((await post(source, JSON.stringify(snsMessage()))).status, 204);
      await removeSource(team.em, source.id);
      assert.equal((await post(source, JSON.stringify(snsMessage()))).status, 401);
    });

    it("keep their URLs when SIGNING_SECRET rotates", async () => {
      const source = await addSource(team.em, team.vault, live(team), "SES", {});
      const key = (byte: number) => Buffer.alloc(32, byte).toString("base64");
      const [before, after] = [1, 2].map((byte) => {
        const vault = openVault({ SIGNING_SECRET: [["k", key(byte)]], ENCRYPTION_KEYS: [] });
        vault.setHashKey(key(3));
        return pathOfSource(vault, source);
      });
      assert.equal(before, after);
    });

    it("answer 503 while Postgres is away, so that nothing is lost", async () => {
      const source = await addSource(team.em, team.vault, live(team), "SES", { topicArn: TOPIC });
      const orm = await openDatabase("postgres://mailkeel:x@127.0.0.1:1/mailkeel");
      const away = await serve({ with: { orm } });
      const { status, headers } = await post(source, JSON.stringify(snsMessage()), { to: away });
      assert.equal(status, 503);
      assert.ok(Number(headers.get("retry-after")) > 0);
    });
  });
});
