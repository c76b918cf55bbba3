import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { formHtml } from "../../api/public/forms.ts";
import { appRouter } from "../../api/router.ts";
import { forTenant, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { unsubscribe } from "../../domain/audience/unsubscribes.ts";
import { erasePerson } from "../../domain/erasure/erase.ts";
import type { FormBody } from "../../domain/forms/forms.ts";
import { updateForm } from "../../domain/forms/forms.ts";
import { newChallenge, readProof } from "../../domain/forms/proof.ts";
import { readThrowawayDomains } from "../../domain/forms/throwaway.ts";
import { newId } from "../../domain/ids.ts";
import { exportPage } from "../../domain/import/export.ts";
import { en } from "../../domain/languages/en.ts";
import { confirmUrl } from "../../domain/mail/links.ts";
import { api, type Json } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { execute, makeTeam, setLimits, type TestTeam, tenantOf, uniqueEmail } from "../support/factories.ts";
import { agedChallenge, type MadeForm, makeForm, solved } from "../support/forms.ts";
import { prune } from "../support/retention.ts";
import { mailsTo } from "../support/sending.ts";
import { mailLetter } from "./ledger.ts";

describe("A sign-up form", () => {
  let team: TestTeam;
  let app: TestApp;
  before(async () => {
    team = await makeTeam();
    // Each client of these tests says its own address.
    app = await serveRoutes(appRouter, { changes: { PROXY_ADDRESSES: ["127.0.0.0/8"], PROXY_HOPS: 1 } });
    await app.deps.connectDatabase();
  });
  after(() => app.close());

  /** A client of another network. */
  function visitor() {
    const network = `10.${randomInt(256)}.${randomInt(256)}.${randomInt(256)}`;
    const call = (path: string, init: RequestInit & { headers?: Record<string, string> } = {}) =>
      fetch(`${app.origin}${path}`, {
        redirect: "manual",
        ...init,
        headers: { "x-forwarded-for": network, ...init.headers },
      });
    const proofFor = async ({ path }: MadeForm) =>
      solved((await (await call(`${path}/challenge`)).json()) as ReturnType<typeof newChallenge>);
    const postJson = async ({ path }: MadeForm, body: object, headers: Record<string, string> = {}) => {
      const init = { method: "POST", headers: { "content-type": "application/json", ...headers } };
      const answer = await call(path, { ...init, body: JSON.stringify(body) });
      return { status: answer.status, headers: answer.headers, body: (await answer.json()) as Json };
    };
    const postForm = (path: string, fields: Record<string, string>) =>
      call(path, { method: "POST", body: new URLSearchParams(fields) });
    const signUp = async (form: MadeForm, body: object) => postJson(form, { ...body, proof: await proofFor(form) });
    return { network, call, proofFor, postJson, postForm, signUp };
  }
  const aged = ({ id }: MadeForm, seconds: number) => agedChallenge(team.vault, id, seconds);
  const personOf = async (of: TestTeam, email: string): Promise<Json> =>
    (await api(of.keys.live).get("/subscribers", { query: { email } })).body.data[0];
  const subscriptionOf = async (email: string): Promise<Json> =>
    (
      await execute(
        "select s.* from subscriptions s join subscribers p on p.id = s.subscriber_id where p.email = ? order by s.created_at desc",
        email,
      )
    )[0];
  const confirmUrlOf = async (of: TestTeam, { listId }: MadeForm, email: string, signUp?: string) => {
    const { subscriber_id: subscriberId } = await subscriptionOf(email);
    return confirmUrl(of.vault, app.origin, { listId, subscriberId, email, ...(signUp && { signUp }) });
  };
  /** Presses the button of a page. @returns the next one */
  const press = async (url: string, page: string) => {
    const scope = /name="scope" value="(\w+)"/.exec(page)?.[1] ?? "";
    const answer = await fetch(url, { method: "POST", body: new URLSearchParams({ scope }) });
    assert.equal(answer.status, 200);
    return answer.text();
  };
  const confirm = async (of: TestTeam, form: MadeForm, email: string, signUp?: string) => {
    const url = await confirmUrlOf(of, form, email, signUp);
    const page = await (await fetch(url)).text();
    assert.ok((await press(url, page)).includes(en.confirm.done));
    return page;
  };
  /** Gives a form other words. */
  const renew = async (of: TestTeam, { id, listId }: MadeForm) => {
    const change = { name: "Form", list_id: listId, consent_text: "New words.", tracking_text: null };
    const body: FormBody = { ...change, fields: [], thank_you_url: null, sites: [], is_open: true };
    await transaction(of.em, (em) => updateForm(em, tenantOf(of), id, body));
  };
  const taken = { title: en.signUp.done, message: en.signUp.mailed };
  const consentOf = (email: string) => execute("select * from tracking_consents where email = ?", email);
  const figuresOf = async ({ id }: MadeForm) =>
    (await execute("select shown, sent, confirmed from form_days where form_id = ?", id))[0];

  it("asks also on a list with single opt-in, and keeps the words, the time and the answer, which counts from the confirmation on", async () => {
    const form = await makeForm(team, { tracking_text: "May we count what you open?" });
    const { call, signUp } = visitor();
    assert.equal((await call(form.path, { method: "HEAD" })).status, 200);
    const page = await call(form.path);
    assert.match(await page.text(), /May we count what you open\?.*You get our letter\./s);
    const email = uniqueEmail("reader");
    const answer = await signUp(form, { email, first_name: "Ada", last_name: "Left out", tracking: true });
    assert.deepEqual([answer.status, answer.body], [200, { ...taken, url: null }]);
    const waiting = await subscriptionOf(email);
    assert.deepEqual([waiting.status, waiting.form_text_id, waiting.form_tracking], ["PENDING", form.textId, true]);
    assert.equal(waiting.form_at, waiting.created_at);
    assert.deepEqual(await consentOf(email), []);
    const { first_name, last_name } = await personOf(team, email);
    assert.deepEqual([first_name, last_name], ["Ada", null]);
    await eventually(async () => (await mailsTo(email)).length === 1, { what: "the mail" });

    const confirming = await confirm(team, form, email);
    assert.match(confirming, /You get our letter\..*May we count what you open\?/s);
    const [consent] = await consentOf(email);
    assert.deepEqual(
      [consent?.["status"], consent?.["way"], consent?.["words"]],
      ["GRANTED", "FORM", "May we count what you open?"],
    );
    assert.deepEqual(await figuresOf(form), { shown: 1, sent: 1, confirmed: 1 });

    const before = await subscriptionOf(email);
    await signUp(form, { email, first_name: "Eve", tracking: false });
    assert.deepEqual(await subscriptionOf(email), before, "who has confirmed is asked nothing");
    assert.equal((await personOf(team, email)).first_name, "Ada");
    assert.equal((await consentOf(email))[0]?.["status"], "GRANTED");
  });

  it("keeps the texts that a website still shows, although the form has newer ones", async () => {
    const form = await makeForm(team, { tracking_text: "May we count?" });
    await renew(team, form);
    const { signUp } = visitor();
    const other = await makeForm(team);
    const [shown, foreign] = [uniqueEmail(), uniqueEmail()];
    await signUp(form, { email: shown, text: form.textId });
    await signUp(form, { email: foreign, text: other.textId });
    const [row] = await execute<{ text_id: string }>("select text_id from forms where id = ?", form.id);
    const [known, unknown] = [await subscriptionOf(shown), await subscriptionOf(foreign)];
    assert.deepEqual([known.form_text_id, known.form_tracking], [form.textId, false]);
    assert.deepEqual([unknown.form_text_id, unknown.form_tracking], [row?.text_id, null]);
  });

  it("takes a proof once, for its form alone, and for ten minutes", async () => {
    const [form, other] = [await makeForm(team), await makeForm(team)];
    const { proofFor, postJson } = visitor();
    const proof = await proofFor(form);
    const twice = await Promise.all([
      postJson(form, { email: uniqueEmail(), proof }),
      postJson(form, { email: uniqueEmail(), proof }),
    ]);
    assert.deepEqual(twice.map(({ status }) => status).sort(), [200, 422]);
    const wrong = proof.replace(/\d+$/, (number) => String(Number(number) + 1));
    for (const [of, given] of [
      [form, proof],
      [other, await proofFor(form)],
      [form, wrong],
      [form, `${await proofFor(form)}.1`],
      [form, newChallenge(team.vault, form.id).challenge],
      [form, ""],
    ] as const) {
      const { status, body } = await postJson(of, { email: uniqueEmail(), proof: given });
      assert.deepEqual([status, body.error.field], [422, "proof"]);
    }
    assert.equal((await figuresOf(form))?.["sent"], 1);
    assert.equal(readProof(team.vault, form.id, aged(form, 9 * 60))?.isEarly, false);
    assert.equal(readProof(team.vault, form.id, aged(form, 11 * 60)), undefined);
  });

  it("gives one answer to known, unknown, erased and suppressed addresses, to a full team and to programs", async () => {
    const of = await makeTeam();
    const form = await makeForm(of, { thank_you_url: "https://site.example/thanks" });
    const [known, erased, suppressed, fresh, late] = Array.from({ length: 5 }, () => uniqueEmail()) as [
      string,
      ...string[],
    ] as string[] & [string, string, string, string, string];
    const client = api(of.keys.live);
    await client.post("/subscribers", { email: known, first_name: "Own" });
    await client.post("/suppressions", { emails: [suppressed] });
    const tenant = tenantOf(of);
    await erasePerson(forTenant(of.em, tenant), of.vault, tenant, erased, { dryRun: false });
    const { signUp } = visitor();
    const answers = [];
    for (const email of [known, erased, suppressed, fresh])
      answers.push(await signUp(form, { email, first_name: "Eve" }));
    answers.push(await signUp(form, { email: uniqueEmail(), homepage: "https://spam.example" }));
    await setLimits(of, { contactSlots: 1 });
    answers.push(await signUp(form, { email: late }));
    for (const { status, body } of answers) {
      assert.deepEqual([status, body], [200, { ...taken, url: "https://site.example/thanks" }]);
    }
    assert.equal((await personOf(of, known)).first_name, "Own");
    const rows = await execute("select email from subscribers where team_id = ?", of.team.id);
    assert.deepEqual(rows.map(({ email }) => email).sort(), [known, suppressed, fresh].sort());
  });

  it("takes at least as long for any address as a sign-up takes", async () => {
    const form = await makeForm(team);
    const { signUp } = visitor();
    for (const body of [{ email: uniqueEmail() }, { email: uniqueEmail(), homepage: "x" }]) {
      const began = performance.now();
      await signUp(form, body);
      assert.ok(performance.now() - began >= 400);
    }
  });

  it("refuses wrong and thrown-away addresses in words, and too many sign-ups of a network", async () => {
    const form = await makeForm(team);
    const { network, postJson, postForm, signUp } = visitor();
    for (const [email, words] of [
      ["no address", en.signUp.invalid],
      ["a@mailinator.com", en.signUp.throwaway],
      ["a@deep.mailinator.com", en.signUp.throwaway],
    ] as const) {
      const { status, body } = await postJson(form, { email });
      assert.deepEqual([status, body], [422, { error: { field: "email", message: words } }]);
      const page = await postForm(form.path, { email });
      const html = await page.text();
      assert.ok(page.status === 422 && html.includes(words) && !html.includes(email), html);
    }
    assert.equal((await signUp(form, { email: uniqueEmail() })).status, 200);
    const callerId = `form/${team.vault.hash("form", network)}`;
    assert.equal(
      (await execute("update request_counts set count = 29 where caller_id = ? returning 1", callerId)).length,
      1,
    );
    assert.equal((await signUp(form, { email: uniqueEmail() })).status, 200);
    const last = await signUp(form, { email: "many@example.com" });
    assert.deepEqual([last.status, last.body.error], [429, { field: null, message: en.signUp.many }]);
    assert.equal((await visitor().signUp(form, { email: uniqueEmail() })).status, 200);
    const rows = await execute("select caller_id from request_counts where caller_id like 'form%'");
    assert.ok(rows.length > 0 && rows.every(({ caller_id }) => !/\d+\.\d+\.\d+/.test(String(caller_id))));
  });

  it("asks anew where another sign-up came between the page of the confirmation and its button", async () => {
    const form = await makeForm(team, { tracking_text: "May we count what you open?" });
    const { signUp } = visitor();
    const email = uniqueEmail("between");
    await signUp(form, { email });
    const url = await confirmUrlOf(team, form, email);
    const shown = await (await fetch(url)).text();
    await signUp(form, { email, tracking: true });
    const asked = await press(url, shown);
    assert.match(asked, /May we count what you open\?/);
    assert.deepEqual([(await subscriptionOf(email)).status, await consentOf(email)], ["PENDING", []]);
    assert.ok((await press(url, asked)).includes(en.confirm.done));
    assert.equal((await consentOf(email))[0]?.["status"], "GRANTED");
  });

  it("reads a list of domains of the operator", () => {
    assert.equal(readThrowawayDomains(`${import.meta.dirname}/../data/throwaway.txt`)("a@MAIL.Müll.example"), true);
    assert.equal(readThrowawayDomains()("a@example.com"), false);
  });

  it("leads people without scripts over a second step, which shows nothing that was typed and needs fifteen seconds", async () => {
    const form = await makeForm(team, { thank_you_url: "https://site.example/thanks?a=1" });
    const { call, postForm } = visitor();
    const shown = await call(form.path);
    const policy = shown.headers.get("content-security-policy") ?? "";
    assert.match(policy, /script-src 'self'; connect-src 'self'; form-action 'self' https:\/\/site\.example;/);
    const typed = { email: uniqueEmail("typed"), first_name: "Typed", homepage: "" };
    const hiddenIn = (html: string, name: string) => new RegExp(`name="${name}" value="([^"]*)"`).exec(html)?.[1] ?? "";
    const step = await (await postForm(form.path, typed)).text();
    assert.ok(step.includes(en.signUp.wait(15)) && !/typed/i.test(step), step);
    const sealed = hiddenIn(step, "sealed");
    const proof = hiddenIn(step, "proof");
    const early = await (await postForm(form.path, { sealed, proof })).text();
    assert.deepEqual([early.includes(en.signUp.wait(15)), hiddenIn(early, "proof")], [true, proof]);
    assert.equal(await subscriptionOf(typed.email), undefined);

    const waited = () => aged(form, 16);
    const outcomes = [];
    for (let n = 0; n < 4; n++) outcomes.push(await postForm(form.path, { sealed, proof: waited() }));
    assert.deepEqual(
      outcomes.map(({ status, headers }) => [status, headers.get("location")]),
      [...Array(3).fill([303, "https://site.example/thanks?a=1"]), [429, null]],
    );
    assert.equal((await subscriptionOf(typed.email)).status, "PENDING");
    const altered = await postForm(form.path, { sealed: `${sealed.slice(0, -2)}AA`, proof: waited() });
    assert.ok((await altered.text()).includes(en.signUp.again));
    const foreign = await makeForm(team);
    assert.equal((await postForm(foreign.path, { sealed, proof: "" })).status, 422);
  });

  it("lets the scripts of its own sites alone read its answers", async () => {
    const form = await makeForm(team, { sites: ["https://site.example"] });
    const { call, postJson } = visitor();
    for (const [origin, allowed] of [
      ["https://site.example", "https://site.example"],
      ["https://other.example", null],
      ["http://site.example", null],
      ["null", null],
    ] as const) {
      for (const [path, method] of [
        [form.path, "OPTIONS"],
        [`${form.path}/challenge`, "GET"],
        [form.path, "GET"],
      ] as const) {
        const { headers } = await call(path, { method, headers: { origin } });
        assert.equal(headers.get("access-control-allow-origin"), allowed);
        assert.equal(headers.get("vary"), "Origin");
      }
      assert.equal((await postJson(form, {}, { origin })).headers.get("access-control-allow-origin"), allowed);
    }
    const script = await call("/f/form.js");
    assert.ok((await script.arrayBuffer()).byteLength <= 5_000);
    assert.equal(script.headers.get("cross-origin-resource-policy"), "cross-origin");
  });

  it("is refused by any other reference, before Postgres is asked, and once it is closed", async () => {
    const form = await makeForm(team, { is_open: false });
    const { call, postJson } = visitor();
    const [, id = "", signature = ""] = /\/f\/(\w+)\.(.*)/.exec(form.path) ?? [];
    for (const reference of [
      `${newId("form").slice(5)}.${signature}`,
      `${id}.`,
      id,
      `${id}.${signature}x`,
      "%E0%A4%A",
    ]) {
      assert.equal((await call(`/f/${reference}`)).status, 404, reference);
      assert.equal((await call(`/f/${reference}/challenge`)).status, 404, reference);
    }
    const closed = await call(form.path);
    assert.ok(closed.status === 404 && (await closed.text()).includes(en.signUp.closed));
    assert.equal((await postJson(form, { email: uniqueEmail() })).status, 404);
    assert.equal((await postJson(form, { email: "x".repeat(17_000) }).catch(() => ({ status: 413 }))).status, 413);
  });

  it("ends an opt-out only at the confirmation", async () => {
    const of = await makeTeam();
    const mail = await mailLetter(of);
    const form = await makeForm(of);
    await api(of.keys.live).post(`/lists/${form.listId}/subscribers`, { subscriber_ids: [mail.subscriberId] });
    await transaction(of.em, (em) => unsubscribe(em, of.vault, mail, "one_click", "all"));
    const suppressions = () => execute("select 1 from suppressions where team_id = ?", of.team.id);
    await visitor().signUp(form, { email: mail.email });
    assert.equal((await suppressions()).length, 1);
    const { signed_up_again_at: at, form_at } = await subscriptionOf(mail.email);
    assert.equal(form_at, at);
    await confirm(of, form, mail.email, String(Date.parse(at)));
    assert.equal((await suppressions()).length, 0);
    assert.equal((await subscriptionOf(mail.email)).status, "CONFIRMED");
  });

  it("shows hostile names and texts as text, and leaves out those that Postgres cannot store", async () => {
    const form = await makeForm(team);
    const unstorable = { email: uniqueEmail(), first_name: "\ud800", text: "\0" };
    assert.equal((await visitor().signUp(form, unstorable)).status, 200);
    assert.equal((await personOf(team, unstorable.email)).first_name, null);
    assert.equal((await subscriptionOf(unstorable.email)).form_text_id, form.textId);
    const email = uniqueEmail("hostile");
    await visitor().signUp(form, { email, first_name: `=HYPERLINK("https://evil.example")` });
    const { csv } = await exportPage(team.em, tenantOf(team), { listId: form.listId }, "");
    assert.ok(csv.includes(`"'=HYPERLINK(""https://evil.example"")"`), csv);
    const texts = { consent: "<script>1</script>", tracking: `"><img src=x>`, textId: form.textId };
    const html = formHtml("https://mail.example/f/x", { fields: ["last_name"], ...texts }, en);
    assert.doesNotMatch(html, /<script|<img|first_name/);
  });

  it("forgets those whom it made and who did not confirm for 30 days, with their slots", async () => {
    const of = await makeTeam();
    const form = await makeForm(of);
    const [gone, twice, known, confirmed, young] = ["gone", "twice", "known", "confirmed", "young"].map((name) =>
      uniqueEmail(name),
    ) as [string, string, string, string, string];
    const { signUp } = visitor();
    await api(of.keys.live).post("/subscribers", { email: known });
    for (const email of [gone, twice, known, confirmed, young]) await signUp(form, { email });
    await confirm(of, form, confirmed);
    await renew(of, form);
    await signUp(form, { email: twice });
    const db = kysely(of.em.fork());
    const used = async () =>
      (await db.selectFrom("contact_slot_counts").select("used").where("team_id", "=", of.team.id).executeTakeFirst())
        ?.used;
    assert.equal(await used(), 5);
    await execute(
      "update subscriptions set created_at = created_at - interval '31 days', form_at = form_at - interval '31 days' where list_id = ?",
      form.listId,
    );
    await execute(
      "update subscribers set created_at = created_at - interval '31 days' where email in (?, ?, ?)",
      gone,
      twice,
      young,
    );
    // Their link would lead nowhere otherwise.
    await signUp(form, { email: young });
    await prune();
    const left = await execute("select email from subscribers where team_id = ?", of.team.id);
    assert.deepEqual(left.map(({ email }) => email).sort(), [known, confirmed, young].sort());
    assert.equal(await used(), 3);
    const members = await execute("select status from subscriptions where list_id = ? order by status", form.listId);
    assert.deepEqual(
      members.map(({ status }) => status),
      ["CONFIRMED", "PENDING"],
    );
  });
});
