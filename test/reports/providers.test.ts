import assert from "node:assert/strict";
import { appRouter } from "../../api/router.ts";
import { REPORT_PROVIDERS, type ReportProvider, type Source } from "../../db/entities/engagement.ts";
import { kysely } from "../../db/orm.ts";
import { mailId } from "../../domain/mail/message-id.ts";
import { classifyMail } from "../../domain/reports/classify.ts";
import { classifyBounce } from "../../domain/reports/provider-bounce.ts";
import { PROVIDERS, providerHeaderOf } from "../../domain/reports/providers.ts";
import { addSource, pathOfSource } from "../../domain/reports/source.ts";
import type { FetchText } from "../../lib/fetch-text.ts";
import type { Json } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";
import { windowWithRoom } from "../support/request-window.ts";
import { snapshotTables } from "../support/tables.ts";
import { live, mailTo, reasonOf, recordedKinds } from "./mails.ts";
import { CERTIFICATE } from "./payloads.ts";
import { type Happening, KITS, type Kit, keptLog, shown } from "./provider-kits.ts";

const MAIL = { sendId: "send_01m80rgrxxe01bm0qfrxakx5bq", seq: 7 };
const UNKNOWN_USER = "550 5.1.1 No such user";
const BLOCKED = "554 5.7.1 Service unavailable; Client host [192.0.2.9] blocked using bl.example";

/** The fields by which providers say what has happened. */
const OWN_WORDS = new Set([
  ...["event", "type", "RecordType", "Type", "bounceType", "severity", "bounce_class", "hard_bounce"],
]);

/** A server's reply, what it is where the provider calls the bounce permanent, and what it is otherwise. */
const REPLIES: readonly [reply: string, status: string, permanent: string, temporary: string][] = [
  [UNKNOWN_USER, "5.1.1", "hard", "hard"],
  ["550 5.1.1 The account does not exist", "5.1.1", "hard", "hard"],
  ["550 5.1.10 Recipient not found", "5.1.10", "hard", "hard"],
  // The code alone does not outweigh the provider's "for now".
  ["550 Refused", "5.1.1", "hard", "soft"],
  ["550 mail refused", "", "hard", "soft"],
  ["User unknown", "", "hard", "soft"],
  ["", "", "hard", "soft"],
  [BLOCKED, "5.7.1", "soft, sender's", "soft, sender's"],
  [
    "550 5.7.26 Unauthenticated mail from sender.example is refused by its DMARC policy",
    "5.7.26",
    ...both("soft, sender's"),
  ],
  ["554 5.6.0 Message content rejected", "5.6.0", ...both("soft, sender's")],
  ["550 Sender address rejected: not allowed to send", "", ...both("soft, sender's")],
  ["552 5.2.2 Mailbox full, quota exceeded", "5.2.2", ...both("soft")],
  ["550 5.2.1 The account is disabled", "5.2.1", ...both("soft")],
  ["550 5.4.6 Too long a path", "5.4.6", ...both("soft")],
  ["421 4.4.1 Connection timed out", "4.4.1", ...both("soft")],
];
function both(kind: string): [string, string] {
  return [kind, kind];
}

describe("A bounce that a provider reports", () => {
  it("is what the server's reply says, and the provider's own word where no rule knows the reply", () => {
    for (const [reply, status, permanent, temporary] of REPLIES) {
      const [asPermanent, asTemporary] = [true, false].map((isPermanent) => {
        const { kind, isSendersFault } = classifyBounce({ reply, status, isPermanent });
        return isSendersFault ? `${kind}, sender's` : kind;
      });
      assert.deepEqual([asPermanent, asTemporary], [permanent, temporary], reply);
    }
    const ofSender = { isPermanent: true, isSendersFault: true };
    assert.deepEqual(classifyBounce({ reply: "550 no", ...ofSender }), { kind: "soft", isSendersFault: true });
    assert.equal(classifyBounce({ reply: UNKNOWN_USER, ...ofSender }).kind, "hard");
    assert.equal(classifyBounce({ reply: null, status: null, isPermanent: true }).kind, "hard");
  });

  for (const kit of KITS) {
    it(`is the same for the same reply by ${PROVIDERS[kit.provider].name}`, () => {
      for (const [reply, status, ...kinds] of REPLIES) {
        // An automatic answer to SES, and no code beside the words in most other events.
        if (reply === "" || (status !== "" && !reply.includes(status))) continue;
        for (const [i, kind] of (["permanent", "temporary"] as const).entries()) {
          const [found] = kit.parse(kit.event(MAIL, { kind, reply, status })).map(shown);
          assert.equal(found, `bounce:${kinds[i]}`, `${kind}: ${reply}`);
        }
      }
    });
  }

  it("is the same when Amazon SES reports it by mail", async () => {
    for (const [reply, status, permanent, temporary] of REPLIES) {
      for (const [bounceType, expected] of [
        ["Permanent", permanent],
        ["Transient", temporary],
      ]) {
        const recipient = {
          emailAddress: "jane@example.com",
          action: "failed",
          status,
          diagnosticCode: `smtp; ${reply}`,
        };
        const bounce = { bounceType, bounceSubType: "General", bouncedRecipients: [recipient] };
        const text = JSON.stringify({ notificationType: "Bounce", bounce, mail: {} });
        const raw = Buffer.from(`From: no-reply@sns.example\nSubject: n\n\n${text}\n`);
        const [found] = (await classifyMail(raw)).recipients;
        assert.equal(found?.isSendersFault ? `${found.kind}, sender's` : found?.kind, expected, reply);
      }
    }
  });
});

/** Changes to a provider's permanent bounce without a reply, and its meaning. */
const OWN_WORDS_OF: Partial<Record<ReportProvider, [Json, string[]][]>> = {
  POSTMARK: [
    [{ Type: "HardBounce" }, ["bounce:hard"]],
    [{ Type: "BadEmailAddress" }, ["bounce:hard"]],
    [{ Type: "SoftBounce" }, ["bounce:soft"]],
    [{ Type: "DnsError" }, ["bounce:soft"]],
    [{ Type: "Blocked" }, ["bounce:soft, sender's"]],
    [{ Type: "DMARCPolicy" }, ["bounce:soft, sender's"]],
    [{ Type: "SpamNotification" }, ["bounce:soft, sender's"]],
    [{ Type: "SMTPApiError", Details: "You tried to send to an inactive recipient." }, ["dropped_by_provider"]],
    ...["AutoResponder", "ChallengeVerification", "AddressChange", "Subscribe", null].map((Type): [Json, string[]] => [
      { Type },
      [],
    ]),
    [{ RecordType: "Delivery" }, []],
    [{ RecordType: "SubscriptionChange", SuppressSending: true }, []],
  ],
  MAILGUN: [
    [{ event: "opened", "client-info": { bot: "apple" } }, ["opened by a machine at 1795000000123"]],
    [{ event: "clicked", "client-info": { bot: "generic" } }, ["clicked by a machine at 1795000000123"]],
    [{ event: "clicked", "client-info": { bot: "" } }, []],
    [{ event: "opened", "client-info": { "client-type": "mobile browser" } }, []],
    [{ reason: "bounce" }, ["bounce:hard"]],
    [{ reason: "old" }, ["bounce:soft"]],
    [{ reason: "espblock" }, ["bounce:soft, sender's"]],
    [{ reason: "suppress-bounce" }, ["dropped_by_provider, bounce:hard"]],
    [{ reason: "suppress-complaint" }, ["dropped_by_provider, bounce:complaint"]],
    [{ reason: "suppress-unsubscribe" }, ["dropped_by_provider, UNSUBSCRIBED"]],
    [{ event: "rejected" }, ["dropped_by_provider"]],
    [{ event: "delivered" }, []],
    [{ "delivery-status": { code: 550, message: "5.7.1 refused" } }, ["bounce:soft, sender's"]],
    [{ "delivery-status": { code: 498, message: "", description: "No MX for example.com" } }, ["bounce:hard"]],
    [{ "delivery-status": null, severity: null }, []],
    [
      { "user-variables": {}, message: { headers: { "message-id": `${mailId(MAIL)}@sender.example` } } },
      ["bounce:hard"],
    ],
  ],
  BREVO: [
    [{ event: "invalid_email" }, ["dropped_by_provider, bounce:hard"]],
    [{ event: "error" }, ["dropped_by_provider"]],
    [{ event: "complaint" }, ["complaint"]],
    [{ event: "request" }, []],
    [{ "X-Mailin-custom": null, "message-id": `<${mailId(MAIL)}@sender.example>` }, ["bounce:hard"]],
  ],
  RESEND: [
    [{ type: "Undetermined", subType: "Undetermined" }, ["bounce:soft"]],
    [{ subType: "Suppressed" }, ["dropped_by_provider, bounce:hard"]],
    [{ type: "Transient", subType: "ContentRejected" }, ["bounce:soft, sender's"]],
    [{ type: "Transient", subType: "MailboxFull", diagnosticCode: null }, ["bounce:soft"]],
    // The answer of a person who is away.
    [{ type: "Transient", subType: "General", diagnosticCode: null }, []],
    [{ diagnosticCode: "smtp; 550 5.7.1 refused" }, ["bounce:soft, sender's"]],
  ],
  MAILJET: [
    [{ error: "user unknown" }, ["bounce:hard"]],
    [{ hard_bounce: false, error: "quota exceeded" }, ["bounce:soft"]],
    [{ error_related_to: "spam", error: "sender blocked" }, ["bounce:soft, sender's"]],
    [{ error_related_to: "content", error: "content blocked" }, ["bounce:soft, sender's"]],
    [{ event: "blocked", error: "user unknown" }, ["dropped_by_provider, bounce:hard"]],
    [{ event: "blocked", error: "spam reporter" }, ["dropped_by_provider, bounce:complaint"]],
    [{ event: "blocked", error: "duplicate in campaign" }, ["dropped_by_provider"]],
    [{ event: "open" }, []],
  ],
  SPARKPOST: [
    [{ bounce_class: "30" }, ["bounce:hard"]],
    [{ type: "out_of_band", bounce_class: 10 }, ["bounce:hard"]],
    [{ bounce_class: "1" }, ["bounce:soft"]],
    [{ bounce_class: "22" }, ["bounce:soft"]],
    [{ bounce_class: "51" }, ["bounce:soft, sender's"]],
    [{ bounce_class: "25" }, ["dropped_by_provider"]],
    [{ bounce_class: "60" }, []],
    [{ type: "generation_rejection" }, ["dropped_by_provider"]],
    [{ type: "spam_complaint", fbtype: "auth-failure" }, []],
  ],
};

describe("A provider's own words", () => {
  for (const kit of KITS) {
    const cases = OWN_WORDS_OF[kit.provider] ?? [];
    if (cases.length === 0) continue;
    it(`are told apart where the server's say nothing: ${PROVIDERS[kit.provider].name}`, () => {
      for (const [changes, expected] of cases) {
        const event = kit.event(MAIL, { kind: "permanent", reply: "" });
        Object.assign(kit.fieldsOf(event), changes);
        assert.deepEqual(kit.parse(event).map(shown), expected, JSON.stringify(changes));
      }
    });
  }
});

describe("The header by which a provider names a mail", () => {
  it("is one short line of a field of its own, for every provider that does not name the Message-ID", () => {
    const names = REPORT_PROVIDERS.flatMap((provider) => {
      const line = providerHeaderOf(PROVIDERS[provider].account)?.(MAIL);
      if (line === undefined) return [];
      assert.match(line, /^[A-Za-z_-]+: [\x20-\x7e]+\r\n$/);
      assert.ok(line.length < 200 && line.includes(mailId(MAIL)));
      return [line.split(":")[0]];
    });
    assert.equal(names.length, REPORT_PROVIDERS.length - 1);
    assert.equal(new Set(names).size, names.length);
    assert.equal(providerHeaderOf("SMTP_OTHER"), undefined);
  });
});

const BATCHING: ReadonlySet<ReportProvider> = new Set(["SENDGRID", "BREVO", "MAILJET", "SPARKPOST"]);

describe("Webhooks of every provider", () => {
  let team: TestTeam;
  let app: TestApp;
  let logged = "";
  const apps: TestApp[] = [];
  const fetchText: FetchText = async () => ({ status: 200, text: CERTIFICATE });
  const log = keptLog((line) => {
    logged += line;
  });
  const serve = async (changes: Parameters<typeof serveRoutes>[1] = {}): Promise<TestApp> => {
    const served = await serveRoutes(appRouter, { ...changes, with: { fetchText, log } });
    apps.push(served);
    return served;
  };
  before(async () => {
    team = await makeTeam();
    app = await serve();
  });
  after(async () => {
    for (const served of apps) await served.close();
  });

  const ledgerOf = async (sendId: string) => {
    const query = kysely(team.em).selectFrom("send_recipients").select(["state", "reason"]);
    const row = await query.where("send_id", "=", sendId).executeTakeFirst();
    return `${row?.state} ${row?.reason ?? ""}`.trim();
  };
  const post = async (source: Source, { body, headers }: ReturnType<Kit["request"]>, to = app) => {
    const response = await fetch(`${to.origin}${pathOfSource(team.vault, source)}`, { method: "POST", body, headers });
    return { status: response.status, headers: response.headers, text: await response.text() };
  };

  for (const kit of KITS) {
    describe(`such as ${PROVIDERS[kit.provider].name}`, () => {
      let source: Source;
      before(async () => {
        source = await addSource(team.em, team.vault, live(team), kit.provider, kit.fields);
      });
      const hasPassword = PROVIDERS[kit.provider].needs === "password";
      const give = (event: Json) => post(source, kit.request(team.vault, source, event));
      const happen = async (email: string, ...happenings: Happening[]) => {
        const mail = await mailTo(team, email);
        for (const happening of happenings) {
          const { status, text } = await give(kit.event(mail, happening));
          assert.equal(status, kit.done, `${happening.kind}: ${text}`);
        }
        return mail;
      };

      it("record bounces and complaints, and nothing of other events", async () => {
        const email = () => uniqueEmail("reader");
        const cases: [Happening[], string[], string | undefined][] = [
          [[{ kind: "permanent", reply: UNKNOWN_USER }], ["1 bounce:hard"], "bounce:hard"],
          [[{ kind: "permanent", reply: BLOCKED }], ["1 bounce:soft"], undefined],
          [[{ kind: "temporary", reply: "452 4.2.2 Mailbox full" }], ["1 bounce:soft"], undefined],
          [[{ kind: "complaint" }], ["1 complaint"], "bounce:complaint"],
          [[{ kind: "delayed" }, { kind: "unsubscribed" }, { kind: "unknown" }], [], undefined],
        ];
        for (const [happenings, kinds, reason] of cases) {
          const address = email();
          const mail = await happen(address, ...happenings);
          assert.deepEqual(await recordedKinds(team, mail.sendId), kinds);
          assert.equal(await reasonOf(team, address), reason);
        }
      });

      it("say that a mail was not tried", async () => {
        const mail = await happen(uniqueEmail(), { kind: "dropped" });
        assert.equal(await ledgerOf(mail.sendId), "REJECTED dropped_by_provider");
        assert.deepEqual(await recordedKinds(team, mail.sendId), []);
      });

      it("record an event once, however often and in which order it comes", async () => {
        const bounce = { kind: "permanent", reply: UNKNOWN_USER } as const;
        const email = uniqueEmail("again");
        const mail = await happen(email, { kind: "complaint" }, bounce, { kind: "complaint" }, bounce, {
          kind: "delayed",
        });
        assert.deepEqual(await recordedKinds(team, mail.sendId), ["1 bounce:hard", "1 complaint"]);
        const other = await mailTo(team, uniqueEmail());
        const event = kit.event(other, bounce);
        const statuses = await Promise.all(Array.from({ length: 20 }, async () => (await give(event)).status));
        assert.deepEqual([...new Set(statuses)], [kit.done]);
        assert.deepEqual(await recordedKinds(team, other.sendId), ["1 bounce:hard"]);
      });

      it("count no bounce against the reader that is the sender's fault", async () => {
        const email = uniqueEmail("patient");
        for (let i = 0; i < 6; i++) await happen(email, { kind: "permanent", reply: BLOCKED });
        assert.equal(await reasonOf(team, email), undefined);
      });

      it("take null for absent, and pass over what is about no mail of this service", async () => {
        const mail = await mailTo(team, uniqueEmail());
        const event = kit.event(mail, { kind: "permanent", reply: UNKNOWN_USER });
        const fields = kit.fieldsOf(event);
        for (const [name, value] of Object.entries(fields)) {
          if (!OWN_WORDS.has(name) && !JSON.stringify(value ?? null).includes(mailId(mail))) fields[name] = null;
        }
        assert.deepEqual(kit.parse(event).map(shown), ["bounce:hard"]);

        const before = await snapshotTables(team.em, team.team.id);
        for (const other of [{}, JSON.parse(JSON.stringify(event).replaceAll(mailId(mail), "an id of others"))]) {
          assert.equal((await give(other)).status, kit.done);
        }
        const after = await snapshotTables(team.em, team.team.id);
        for (const table of ["mail_reports", "suppressions", "send_recipients"]) {
          assert.deepEqual(after[table], before[table]);
        }
      });

      if (BATCHING.has(kit.provider)) {
        it("record each event of a batch, whatever else is in it", async () => {
          const mails = [await mailTo(team, uniqueEmail()), await mailTo(team, uniqueEmail())] as const;
          const [one, two] = mails.map((mail) => kit.event(mail, { kind: "complaint" }));
          const { status, text } = await give([one, null, "text", { msys: {} }, { msys: null }, two]);
          assert.equal(status, kit.done, text);
          for (const { sendId } of mails) assert.deepEqual(await recordedKinds(team, sendId), ["1 complaint"]);
        });
      }

      it("ask for an event about a mail that cannot be read again, and name its fields in the log alone", async () => {
        const mail = await mailTo(team, uniqueEmail());
        const event = kit.event(mail, { kind: "permanent", reply: UNKNOWN_USER });
        const fields = kit.fieldsOf(event);
        const name = ["bounceType", "event", "RecordType", "type"].find((each) => each in fields) ?? "";
        fields[name] = { an: "object" };
        const { status, headers } = await give(event);
        assert.equal(status, 503);
        assert.ok(Number(headers.get("retry-after")) > 0);
        assert.match(logged, new RegExp(`"fields":"(?:[\\w-]+\\.)*${name}".*cannot be read`));
      });

      it("ask for an event again that comes before the outcome of its mail", async () => {
        const mail = await mailTo(team, uniqueEmail(), "SENDING");
        assert.equal((await give(kit.event(mail, { kind: "complaint" }))).status, 503);
      });

      it("are refused without their secret, which another webhook's does not replace", async () => {
        const mail = await mailTo(team, uniqueEmail());
        const event = kit.event(mail, { kind: "complaint" });
        const { body, headers } = kit.request(team.vault, source, event);
        const other = await addSource(team.em, team.vault, live(team), kit.provider, {});
        const requests = [
          { body: "{}", headers: {} },
          { body: "", headers: {} },
          { body: "{", headers: {} },
        ];
        if (hasPassword) {
          requests.push(kit.request(team.vault, other, event));
          for (const authorization of ["Basic x", "Bearer x"]) requests.push({ body, headers: { authorization } });
        } else {
          // Mailgun's signature covers no field of the event.
          const altered =
            kit.provider === "MAILGUN"
              ? body.replace(/(?<="signature":")\w/, "x")
              : body.replaceAll("example", "another");
          requests.push({ body: altered, headers });
          const { status, text } = await post(other, kit.request(team.vault, other, event));
          assert.equal(status, 401, text);
        }
        for (const request of requests)
          assert.equal((await post(source, request)).status, 401, JSON.stringify(request));
        for (const hours of hasPassword || kit.provider === "SES" ? [] : [-26, 26]) {
          const old = kit.request(team.vault, source, event, Date.now() + hours * 3_600_000);
          assert.equal((await post(source, old)).status, 401, `${hours} hours`);
        }
        assert.deepEqual(await recordedKinds(team, mail.sendId), []);
      });

      it("change nothing for another team's mail, and write no address, token or secret into the log", async () => {
        const other = await makeTeam();
        const email = uniqueEmail("theirs");
        const mail = await mailTo(other, email);
        assert.equal((await give(kit.event(mail, { kind: "permanent", reply: UNKNOWN_USER }))).status, kit.done);
        assert.equal(await reasonOf(other, email), undefined);
        assert.match(logged, /a provider reports about mails/);
        assert.match(logged, new RegExp(`"route":"/hooks/${kit.provider.toLowerCase()}/\\{token\\}"`));
        assert.ok(!logged.includes("@") && !logged.includes(pathOfSource(team.vault, source)));
        assert.ok(!logged.includes("Basic ") && !/whsec_|[0-9a-f]{64}/.test(logged));
      });

      it("are limited in requests, in forged ones and in the size of a body, each webhook by itself", async () => {
        await windowWithRoom();
        const add = () => addSource(team.em, team.vault, live(team), kit.provider, kit.fields);
        const [two, three, four] = [await add(), await add(), await add()];
        const changes = { PROVIDER_REQUESTS_PER_MINUTE: 3, FAILED_AUTHENTICATIONS_PER_MINUTE: 2 };
        const limited = await serve({ changes });
        const event = kit.event(MAIL, { kind: "delayed" });
        const request = (to = two) => kit.request(team.vault, to, event);
        const statuses: number[] = [];
        for (let i = 0; i < 4; i++) statuses.push((await post(two, request(), limited)).status);
        assert.deepEqual(statuses, [kit.done, kit.done, kit.done, 429]);
        assert.ok(Number((await post(two, request(), limited)).headers.get("retry-after")) > 0);
        const forged: number[] = [];
        for (let i = 0; i < 3; i++) forged.push((await post(three, { body: "{}", headers: {} }, limited)).status);
        assert.deepEqual(forged, [401, 401, 429]);
        // From the same address: a provider's addresses are those of all teams.
        assert.equal((await post(four, request(four), limited)).status, kit.done);
        assert.equal((await post(source, { body: "x".repeat(3 * 1_024 * 1_024), headers: {} })).status, 413);
      });
    });
  }
});
