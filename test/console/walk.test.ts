import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { sql } from "kysely";
import type { Locator, Page } from "playwright-core";
import { appRouter } from "../../api/router.ts";
import { buildConsole } from "../../console/build.ts";
import { kysely } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { recordHits } from "../../domain/tracking/record.ts";
import { accept, makeLedger, optOut, report } from "../analytics/ledger.ts";
import { settleAll } from "../public/tracking.ts";
import { serveRoutes } from "../support/app.ts";
import { assertAccessible, enter, openBrowser, violationsOf, widthOf } from "../support/browser.ts";
import { consoleClient, consoleFetch, signIn } from "../support/console.ts";
import { eventually } from "../support/eventually.ts";
import { makeMember, makeTeam, uniqueEmail } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { openOidcIssuer } from "../support/oidc-issuer.ts";
import { caughtMails, mailsTo, makeSender, readMail } from "../support/sending.ts";
import { addPerson, makeSequence, untilEnrolled } from "../support/sequences.ts";
import { stack } from "../support/stack.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";

const PEOPLE = 1_000;
/** Of a send by keyboard alone, from the list of newsletters to its confirmation, beside the texts that are typed. */
const MOST_KEYS = 60;
/** Whether the chart of a page has painted anything in the colour of its first series. */
const HAS_LINE = `(() => {
  const canvas = document.querySelector(".plot canvas");
  if (!canvas) return false;
  const colour = document.createElement("canvas").getContext("2d");
  colour.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
  colour.fillRect(0, 0, 1, 1);
  const wanted = String([...colour.getImageData(0, 0, 1, 1).data]);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < data.length; at += 4) if (String([...data.slice(at, at + 4)]) === wanted) return true;
  return false;
})()`;
/** Every page of a team, below its address. */
const PAGES = [
  "",
  ...["newsletters", "campaigns", "templates", "sequences", "lists", "people", "segments", "imports"],
  ...["fields", "suppressions", "accounts", "domains", "providers", "webhooks", "keys", "members", "usage", "settings"],
  ...["brand", "forms", "audit", "deleted"],
];

/** Signs in at the form of the page, by the link of the mail. */
async function signInByMail(page: Page, email: string): Promise<void> {
  await page.getByLabel("Your address").fill(email);
  await page.getByRole("button", { name: "Send me a link" }).click();
  await page.getByText("sign-in link is on its way").waitFor();
  const link = await eventually(
    async () => {
      const [first] = await mailsTo(email);
      const text = first && ((await readMail(first.id)).text ?? "");
      return /https?:\/\/\S+\/sign-in#\S+/.exec(text ?? "")?.[0];
    },
    { what: "the mail with the link" },
  );
  // Copied with what stands behind it.
  await page.goto(`${link}> (15 minutes)`);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}

const { it, longIt } = testsOf();

describe("The console in a browser", function () {
  this.timeout(240_000);
  before(() => buildConsole());
  // A session that has ended is told apart by its 401, and the save of a second editor by its 409; a test gives the others, and the answers that fail.
  const inPage = openBrowser(/status of (401|409|429|500|502)|ERR_ABORTED|did not answer|Unable to transform/);

  it("leads from a link in a mail to the report of a newsletter to 1,000 imported people", async () => {
    const sender = await makeSender({ recipients: 0, detached: true });
    const { origin } = await stack();
    const { owner, team, audience, fromEmail } = sender;
    await sender.client.delete(`/lists/${sender.listId}`);
    await inPage({ viewport: { width: 1_200, height: 900 } }, async (page) => {
      const button = (name: string) => page.getByRole("button", { name, exact: true });
      await page.goto(`${origin}/console/`);
      await signInByMail(page, owner.email);
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      assert.match(page.url(), new RegExp(`/console/${team.id}/live`));

      await page.getByRole("link", { name: "Lists", exact: true }).click();
      await button("New list").click();
      await page.getByLabel("Name", { exact: true }).fill("Anne's readers");
      await page.getByLabel("Opt-in").selectOption("SINGLE");
      await page.getByRole("dialog").getByRole("button", { name: /list/ }).click();
      await page.getByRole("heading", { name: "Anne's readers" }).waitFor();

      await page.getByRole("link", { name: "Imports", exact: true }).click();
      await button("New import").click();
      const rows = Array.from({ length: PEOPLE }, (_, i) => `person-${i}@${audience},First ${i}`);
      const csv = Buffer.from(["email,first_name", ...rows, "no address,x"].join("\n"));
      await page.getByLabel("CSV file").setInputFiles({ name: "people.csv", mimeType: "text/csv", buffer: csv });
      await button("Upload file").click();
      const kind = page.getByLabel("Import as", { exact: true });
      await kind.selectOption("contacts");
      await page.getByLabel("Field of first_name", { exact: true }).selectOption("New field…");
      await page.getByLabel("Name", { exact: true }).fill("first_name_2");
      assert.deepEqual(await violationsOf(page), []);
      await button("Create field").click();
      await page.getByText("Field created").waitFor();
      await page.locator("option:checked", { hasText: "Field “first_name_2”" }).waitFor({ state: "attached" });
      await kind.selectOption("subscribers");
      await page.getByLabel("List", { exact: true }).selectOption({ label: "Anne's readers (0)" });
      await button("Check the file").click();
      await page.getByRole("heading", { name: "What the import would change" }).waitFor();
      await page.getByRole("row", { name: "no address email is not an email address" }).waitFor();
      await button("Import now").click();
      await page.getByRole("heading", { name: "What the import changed" }).waitFor();
      await button("Undo import").click();
      await page.getByText(/^Left to undo: people 1,000, subscriptions 1,000/).waitFor();
      assert.deepEqual(await violationsOf(page), []);
      await button("Cancel").click();
      const saving = page.waitForEvent("download");
      await button("Download CSV").click();
      assert.equal((await saving).suggestedFilename(), "rejected lines of people.csv");

      await page.getByRole("link", { name: "Newsletters", exact: true }).click();
      await button("New newsletter").click();
      await page.getByRole("dialog").getByLabel("Name").fill("Walk");
      await page.getByLabel("Start from").selectOption({ label: "Newsletter with articles" });
      const look = page.frameLocator("iframe[title='An email of “Newsletter with articles”']");
      await look.getByText("Hello Jane, this is what you should know").waitFor();
      // No scrollbar of the frame takes any of it.
      assert.equal(await look.locator(":root").evaluate((root) => root.clientWidth), 600);
      assert.deepEqual(await violationsOf(page), []);
      await button("Create draft").click();
      await page.getByText("Choose an image").first().waitFor();
      // The team's one list is chosen.
      await page.getByText("To: Anne's readers").click();
      await page.getByRole("checkbox", { name: "Anne's readers", checked: true }).uncheck();
      await button("Check the send").click();
      await page.getByText("Not ready to send yet.").waitFor();
      await page.getByRole("list", { name: "Checks" }).getByText("Choose at least one list.").waitFor();
      await button("More actions").click();
      await page.getByRole("menuitem", { name: "Save as template" }).click();
      await page.getByRole("dialog").getByLabel("Name").fill("Monthly");
      await button("Save template").click();
      await page.getByRole("link", { name: "Templates", exact: true }).click();
      await page.frameLocator("iframe[title='An email of “Monthly”']").getByText("Hello Jane").waitFor();
      assert.deepEqual(await violationsOf(page), []);
      await button("Use Plain letter").click();
      await page.getByRole("dialog").getByLabel("Name", { exact: true }).fill("A letter");
      await button("Create draft").click();
      await page.getByText("A personal letter").waitFor({ state: "detached" });
      await page.getByText(`From: ${fromEmail}`).waitFor();
      await page.getByRole("textbox", { name: "Text of the email" }).getByText("Best regards").waitFor();
      await sender.em.execute(
        "insert into templates (id, team_id, environment, name) select ? || n, ?, 'LIVE', 'Weekly ' || n from generate_series(1, 9) n",
        [team.id, team.id],
      );
      await page.goto(`${origin}/console/${team.id}/live/templates`);
      await page.getByRole("link", { name: "Newsletters", exact: true }).press("Enter");
      await page.locator("main:focus").getByRole("heading", { name: "Newsletters" }).waitFor();
      let keys = 0;
      const press = async (key: string) => {
        keys++;
        await page.keyboard.press(key);
      };
      const tabTo = async (target: Locator) => {
        await target.waitFor();
        while ((await target.and(page.locator(":focus")).count()) === 0) {
          await press("Tab");
          assert.ok(keys < MOST_KEYS, `Tab comes to ${target}`);
        }
      };
      await tabTo(button("New newsletter"));
      await press("Enter");
      // The templates are read after the dialog has opened.
      await page.locator(".dialog input[name=name]:focus").waitFor();
      await page.keyboard.type("Walk");
      await tabTo(page.getByRole("dialog").getByPlaceholder("Search"));
      await page.keyboard.type("month");
      await page.getByRole("option", { name: /^Weekly/ }).waitFor({ state: "detached" });
      await page.getByRole("option", { name: "Monthly" }).waitFor();
      await press("Control+a");
      await page.keyboard.type("Empty");
      await press("Enter");
      await tabTo(button("Create draft"));
      await press("Enter");
      // The sender is the team's one account.
      await page.locator("input[name=subject]:focus").waitFor();
      assert.equal(await page.getByLabel("From address").inputValue(), fromEmail);
      const begin = (await page.getByRole("textbox", { name: "Text of the email" }).boundingBox())?.y ?? 900;
      assert.ok(begin < 560, `the text begins at ${begin}`);
      await page.keyboard.type("Hello {{ first_name }}");
      await tabTo(page.getByRole("textbox", { name: "Text of the email" }));
      await page.keyboard.type("Dear {{ first_name }}, this is the walk.");
      await page.getByText(/^Saved \d/).waitFor();
      await tabTo(button("Check the send"));
      await press("Enter");
      await page.getByText(/^Ready/).waitFor();
      await page.locator("[role=status]:focus", { hasText: "Ready" }).waitFor();
      await page.getByText("To: Anne's readers (1,000)").waitFor();
      await tabTo(button("Confirm the send"));
      await press("Enter");
      assert.ok(await button("Send now").isDisabled());
      await page.locator("input[name=recipients]:focus").waitFor();
      await page.keyboard.type(String(PEOPLE));
      await press("Enter");
      assert.ok(keys < MOST_KEYS, `a send by keyboard takes ${keys} keys`);
      await page.getByRole("heading", { name: "Results", level: 2 }).waitFor({ timeout: 120_000 });
      await page.getByRole("definition").getByText("1,000 people").waitFor();
      await page.getByRole("definition").getByText("Anne's readers", { exact: true }).waitFor();
      await page.getByRole("definition").getByText(fromEmail).waitFor();
      await page.getByText("Tracking is off").waitFor();
      assert.equal(await page.getByRole("term").getByText("Opened").count(), 0);
      assert.equal(await page.getByRole("heading", { name: "Delivery status" }).count(), 0);
      await page
        .getByRole("link", { name: `person-0@${audience}` })
        .or(page.getByRole("button", { name: "More" }))
        .first()
        .waitFor();
      assert.deepEqual(await violationsOf(page), []);
    });
    const mails = await caughtMails(sender);
    assert.equal(mails.length, PEOPLE);
    assert.equal(new Set(mails.flatMap(({ to }) => to)).size, PEOPLE);
  });

  it("gives a newsletter a time and moves it from the list", async () => {
    const { origin } = await stack();
    const sender = await makeSender({ recipients: 2, timeZone: "Europe/Berlin" });
    const { owner, team, newsletterId, client, fromEmail } = sender;
    await inPage({}, async (page) => {
      await enter(page, owner.id);
      const button = (name: string) => page.getByRole("button", { name, exact: true });
      const dialog = page.getByRole("dialog");
      await page.goto(`${origin}/console/${team.id}/live/newsletters/${newsletterId}`);
      await page.getByText("as soon as it is confirmed").waitFor();
      await button("Set a time").click();
      assert.equal(await dialog.getByLabel("Time zone").inputValue(), "Europe/Berlin");
      assert.deepEqual(await violationsOf(page), []);
      await button("Save time").click();
      await page.getByText(/^Tomorrow, \w+day \d+ \w+ \d{4} at 09:00, Berlin \(in \d+ hours\)$/).waitFor();
      await button("Check the send").click();
      const suggestions = page.getByRole("list", { name: "Suggestions" });
      await suggestions.waitFor();
      const count = await suggestions.getByRole("listitem").count();
      const top = async (of: Locator) => (await of.boundingBox())?.y ?? Number.NaN;
      assert.ok((await top(suggestions)) < (await top(button("Confirm the send"))));
      assert.equal(await page.getByRole("list", { name: "Checks" }).count(), 0, "what is met is folded");
      await page.getByText("What every send requires: 13 of 13 met").waitFor();
      await button("Confirm the send").click();
      await dialog.getByText(/^2 people will get it\. Start: Tomorrow, .* at 09:00, Berlin/).waitFor();
      await dialog.getByRole("definition").getByText(fromEmail).waitFor();
      assert.equal(await suggestions.getByRole("listitem").count(), count, "those in the dialog");
      await page.getByLabel("Number of recipients").fill("2");
      await button("Schedule the send").click();
      await button("Reschedule").waitFor();
      await page.goto(`${origin}/console/${team.id}/live/newsletters`);
      await button("More actions: Issue one").click();
      await page.getByRole("menuitem", { name: "Reschedule Issue one" }).click();
      await dialog.getByLabel("Time", { exact: true }).fill("10:30");
      await dialog.getByLabel("Time zone").fill("New_York");
      await page.getByRole("option", { name: "America/New_York" }).click();
      await button("Reschedule").click();
      await page.getByTitle(/at 10:30, New York/).waitFor();
      await page.getByRole("link", { name: "Overview" }).click();
      await page.getByText(/^Start: .*, to 2 people$/).waitFor();
      assert.equal(await page.getByRole("progressbar").count(), 0);
      await page.getByRole("link", { name: "Newsletters", exact: true }).click();
      assert.deepEqual(await violationsOf(page), []);
      const { status, send_at } = (await client.get(`/newsletters/${newsletterId}`)).body.data;
      assert.equal(status, "SCHEDULED");
      assert.match(send_at, /T1[45]:30:00\.000Z$/);
      await page.getByRole("link", { name: "Issue one" }).click();
      await button("Edit a copy").click();
      await button("Keep the send").waitFor();
      await button("Edit a copy and cancel the send").click();
      await page.getByRole("heading", { name: "Copy of Issue one", level: 1 }).waitFor();
      assert.equal((await client.get(`/newsletters/${newsletterId}`)).body.data.status, "CANCELLED");
      await button("Set a time").click();
      await button("Save time").click();
      await page.getByText(/^Tomorrow, .* at 09:00, Berlin/).waitFor();
      await button("Check the send").click();
      await button("Confirm the send").click();
      await dialog.getByText("not counted").waitFor();
      await page.getByLabel("Number of recipients").fill("2");
      await button("Schedule the send").click();
      await button("Cancel the send").click();
      await button("Keep the send").waitFor();
      const alert = page.getByRole("alertdialog");
      await alert.getByText("2 people will no longer get the email").waitFor();
      await alert.getByRole("status").waitFor({ state: "detached" });
      assert.equal(await alert.getByText(/already got it|To be changed|Records/).count(), 0);
      await alert.getByRole("button", { name: "Cancel the send" }).click();
      // Their rows follow without a reload.
      await page.getByRole("cell", { name: "Cancelled" }).nth(1).waitFor();
    });
  });

  it("shows an EDITOR no way to send and a VIEWER none to write, and a removed member the sign-in", async () => {
    const { origin } = await stack();
    const { em, team } = await makeTeam();
    for (const [role, button] of [
      ["EDITOR", "Connect an account"],
      ["VIEWER", "New list"],
    ] as const) {
      const member = await makeMember(em, team.id, role);
      await inPage({}, async (page) => {
        const cookies = await enter(page, member.id);
        await page.goto(`${origin}/console/${team.id}/live/lists`);
        await page.getByRole("heading", { name: "Lists" }).waitFor();
        await page.getByText("No lists yet").waitFor();
        assert.equal(await page.getByRole("button", { name: button }).count(), 0);
        for (const link of await page.getByRole("navigation").getByRole("link").all()) {
          // A page that is refused writes its 403 into the browser's console, which is a failure.
          await link.click();
          await page.waitForLoadState("networkidle");
        }
        // A page that still reads would say in the browser's console that it was refused.
        await page.goto("about:blank");
        member.removedAt = new Date();
        await em.flush();
        await page.goto(`${origin}/console/${team.id}/live/lists`);
        await page.getByLabel("Your address").waitFor();
        assert.equal((await consoleFetch(cookies, "GET", "/session")).status, 401);
      });
    }
  });

  it("keeps unsaved text when the session ends, and returns to the page after the sign-in", async () => {
    const { origin } = await stack();
    const { owner, team, newsletterId } = await makeSender({ recipients: 0 });
    const path = `${origin}/console/${team.id}/live/newsletters/${newsletterId}?view=text`;
    await inPage({}, async (page) => {
      const cookies = await enter(page, owner.id);
      await page.goto(path);
      await page.getByText(/^From: /).click();
      await page.getByLabel("Name", { exact: true }).fill("Anne's letter");
      await consoleFetch(cookies, "DELETE", "/session");
      await page.getByRole("button", { name: "Save", exact: true }).click();
      const banner = page.getByText("Your session has ended.");
      await banner.waitFor();
      await page.getByText("Not saved: sign in again.").waitFor();

      const other = await page.context().newPage();
      await other.goto(path);
      await signInByMail(other, owner.email);
      await other.waitForURL(path);
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await banner.waitFor({ state: "hidden" });
      await page.getByRole("heading", { name: "Anne's letter", level: 1 }).waitFor();
    });
  });

  it("signs in at a provider by its button where there are no links, returns to the page, and shows a refusal", async () => {
    const { owner, team } = await makeTeam();
    const proxy = await startTcpProxy({ host: "127.0.0.1", port: 1 });
    const publicUrl = `http://127.0.0.1:${proxy.port}`;
    const issuer = await openOidcIssuer(publicUrl);
    const changes = { ...issuer.settings, PUBLIC_URL: publicUrl, SIGN_IN_LINKS: "off" as const };
    const app = await serveRoutes(appRouter, { changes });
    proxy.redirect({ host: "127.0.0.1", port: Number(new URL(app.origin).port) });
    issuer.present = "ada";
    const bring = (isVerified: boolean) => issuer.people.set("ada", { email: owner.email, email_verified: isVerified });
    try {
      const work = async (page: Page) => {
        const button = page.getByRole("link", { name: "Continue with Example ID" });
        await page.goto(`${publicUrl}/console/${team.id}/live/lists`);
        bring(false);
        await button.click();
        await page.getByRole("alert").getByText("no verified email address").waitFor();
        assert.equal(await page.getByLabel("Your address").count(), 0);
        await assertAccessible(page, "the sign-in");
        await page.goto(`${publicUrl}/console/${team.id}/live/lists`);
        bring(true);
        await button.click();
        await page.getByRole("heading", { name: "Lists", level: 1 }).waitFor();
      };
      await inPage({}, work, [publicUrl, issuer.origin]);
    } finally {
      await app.close();
      proxy.close();
      await issuer.close();
    }
  });

  it("makes one list by several presses after a lost answer, and tells that from an error of a page", async () => {
    const { origin } = await stack();
    const { owner, team } = await makeTeam();
    await inPage({}, async (page) => {
      await enter(page, owner.id);
      await page.goto(`${origin}/console/${team.id}/live/lists`);
      const button = (name: string) => page.getByRole("button", { name, exact: true });
      const open = (name: string) => page.getByRole("link", { name, exact: true }).click();
      const calls = /lists\.create/;
      await button("New list").click();
      await page.getByLabel("Name", { exact: true }).fill("Readers");
      await page.route(calls, async (route) => {
        await route.fetch();
        await route.fulfill({ status: 502, body: "" });
      });
      await button("Create list").click();
      await page.getByText("The service cannot be reached.").waitFor();
      await page.unroute(calls);
      const data = { code: "rate_limit_exceeded", status: 429 };
      const json = { error: { message: "Too many requests.", code: -32029, data } };
      await page.route(calls, (route) => route.fulfill({ status: 429, json }));
      await button("Create list").click();
      await page.getByText("Too many requests.").waitFor();
      await page.unroute(calls);
      await button("Create list").click();
      await page.getByRole("heading", { name: "Readers", level: 1 }).waitFor();
      await open("Lists");
      await page.getByRole("link", { name: "Readers" }).waitFor();
      assert.equal(await page.getByRole("link", { name: "Readers" }).count(), 1);
      await button("New list").click();
      await page.getByLabel("Name", { exact: true }).fill("Others");
      await button("Create list").click();
      await page.getByRole("heading", { name: "Others", level: 1 }).waitFor();

      await open("Webhooks");
      const checked = page.getByRole("checkbox", { checked: true });
      const openDialog = async () => {
        await button("New endpoint").click();
        await page.getByRole("checkbox").first().waitFor();
      };
      await openDialog();
      await button("All").click();
      await checked.first().waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await openDialog();
      assert.equal(await checked.count(), 0, "a new dialog begins without events");
      await button("All").click();
      await page.getByLabel("URL", { exact: true }).fill("https://93.184.216.34/hook");
      await button("Create endpoint").click();
      await page.getByText("is not shown again").waitFor();
      await page.keyboard.press("Escape");
      await page.getByText("No events yet").waitFor();
      await page.getByRole("link", { name: "93.184.216.34" }).click();
      await button("More actions").click();
      await page.getByRole("menuitem", { name: "Rotate the secret" }).click();
      const rotated = page.waitForRequest(/rotate/);
      await page.getByRole("dialog").getByRole("button", { name: "Rotate the secret", exact: true }).click();
      assert.ok((await rotated).headers()["idempotency-key"]);
      await page.getByText("is not shown again").waitFor();
      await page.keyboard.press("Escape");

      await open("People");
      await page.route(/imports\.export/, (route) => route.fulfill({ json: { result: { data: {} } } }));
      await button("Export all contacts").click();
      await page.getByText("Something went wrong").waitFor();
      const failing = { message: "This failed.", code: -32_603, data: { code: "internal_error", status: 500 } };
      await page.route(/audience\.people/, (route) => route.fulfill({ status: 500, json: { error: failing } }));
      await page.reload();
      await page.getByText("This failed.").waitFor();
      await page.unroute(/audience\.people/);
      await button("Try again").click();
      await button("Export these people").waitFor();
      await page.route(/usage\.retrieve/, (route) =>
        route.fulfill({ json: {}, headers: { "x-request-id": "req_shown" } }),
      );
      await open("Usage");
      await page.getByText("Something went wrong").waitFor();
      await page.getByText("req_shown").waitFor();
      await page.route("**/*", (route) => route.abort("aborted"));
      await open("Settings");
      await page.getByText("The service cannot be reached.").waitFor();
      await page.unroute("**/*");
      await button("Try again").click();
      await page.getByRole("heading", { name: "Settings", exact: true }).waitFor();
    });
  });

  it("leads from a link in the report of a send to the people who clicked it, with a chart of two hours", async () => {
    const { origin } = await stack();
    const team = await makeTeam();
    const [before, ledger] = [await makeLedger(team, 2), await makeLedger(team, 3)];
    const { sendId, newsletterId } = ledger;
    const em = team.em.fork();
    const started = new Date(Date.now() - 7_200_000).toISOString();
    await em.execute("update send_recipients set tracked = true where send_id = ?", [sendId]);
    for (const [of, seqs, ended] of [
      [before, [1, 2], "2026-01-05T12:00:00Z"],
      [ledger, [1, 2, 3], started],
    ] as const) {
      await accept(em, of, seqs, ended);
      await em.execute("update newsletters set status = 'SENT', send_id = ?, completed_at = ? where id = ?", [
        ...[of.sendId, ended, of.newsletterId],
      ]);
    }
    await em.execute("update sends set started_at = ?, completed_at = now() where id = ?", [started, sendId]);
    await optOut(em, ledger, [2], started);
    const url = `https://shop.example/${"very-long-".repeat(30)}`;
    const click = { sendId, kind: "clicked", rule: null, early: false, source: "reader", url } as const;
    const at = Date.parse(started) + 1_000;
    await recordHits(
      em,
      [1, 2].map((seq) => ({ ...click, seq, kind: "opened", url: null, at })),
    );
    await recordHits(em, [{ ...click, seq: 2, at: at + 3_600_000 }]);
    await settleAll(em, sendId);
    await inPage({ viewport: { width: 360, height: 800 } }, async (page) => {
      await enter(page, team.owner.id);
      await page.goto(`${origin}/console/${team.team.id}/live/newsletters/${newsletterId}`);
      await page.getByRole("button", { name: "Clicked: 1", exact: true }).waitFor();
      await page.getByText("33.3% · 50% of opens").waitFor();
      // It counted no opens and clicks.
      assert.equal(await page.getByTitle("Letter, Jan 5, 2026").getByText("Last send:").count(), 4);
      const top = async (of: Locator) => (await of.boundingBox())?.y ?? Number.NaN;
      const picture = page.getByRole("button", { name: "The email" });
      assert.ok((await top(page.getByRole("button", { name: "Unsubscribed: 1" }))) < (await top(picture)));
      await eventually(() => page.evaluate<boolean>(HAS_LINE), { what: "the line of the hours" });
      assert.deepEqual(await violationsOf(page), []);
      assert.ok((await widthOf(page)) <= 360);
      await picture.click();
      await page.frameLocator("iframe[title='The email']").locator("body").waitFor();
      assert.deepEqual(await violationsOf(page), []);
      await picture.click();
      await page.getByLabel("100.0% of the clicks").waitFor();
      await page.getByTitle(/^Clicks by programs/).waitFor({ state: "attached" });
      await page.getByRole("link", { name: "3@example.com" }).waitFor();
      assert.equal(await page.getByRole("heading", { name: "Domains" }).count(), 0);
      const reader = page.getByRole("row", { name: "2@example.com" });
      await reader.getByText("Unsubscribed").waitFor();
      assert.equal(await reader.getByRole("time").count(), 3, "the sending, the first open and the last click");
      await page.getByRole("button", { name: "1 person", exact: true }).click();
      await page.getByRole("link", { name: "1@example.com" }).waitFor({ state: "detached" });
      await page.getByRole("link", { name: "2@example.com" }).waitFor();
      assert.match(page.url(), /activity=clicked&link=lnk_/);
      const place = await page.getByRole("region", { name: "Recipients", exact: true }).boundingBox();
      assert.ok(place && place.y >= 0 && place.y < 800, `the people are in view, at ${place?.y}`);
      const saved = page.waitForEvent("download");
      await page.getByRole("button", { name: "Export as CSV: clicked" }).click();
      assert.equal((await saved).suggestedFilename(), "clicked.csv");
      await page.getByText(`Clicks on ${url}`).waitFor();
      await page.getByRole("link", { name: "Create a segment" }).waitFor();
      await page.getByRole("button", { name: "Show clicks on all links" }).click();
      await report(em, ledger, [3], ["bounce:hard"], started);
      await page.getByRole("button", { name: "Bounced: 1" }).waitFor();
      await page.getByRole("cell", { name: "example.com", exact: true }).waitFor();

      const name = `\u202e${"x".repeat(199)}`;
      await em.execute("update newsletters set name = ? where id = ?", [name, newsletterId]);
      await page.goto(`${origin}/console/${team.team.id}/live/newsletters`);
      await page.getByTitle(name, { exact: true }).waitFor();
      assert.ok((await widthOf(page)) <= 360);
      await page.goto(`${origin}/console/${team.team.id}/live/settings`);
      await page.getByRole("heading", { name: "Settings", level: 1 }).waitFor();
      assert.equal(await page.getByRole("navigation", { name: "Pages" }).count(), 0, "it is behind the menu");
      await page.getByRole("button", { name: "Menu" }).click();
      const box = await page.locator("nav [aria-current='page']", { hasText: "Settings" }).boundingBox();
      assert.ok(box && box.x >= 0 && box.x + box.width <= 360);
    });
  });

  longIt(
    "shows a second editor who changed the same text, keeps the one they choose, and merges other changes",
    async () => {
      const { origin } = await stack();
      const { em, owner, team, newsletterId, listId, fromEmail } = await makeSender({ recipients: 0 });
      const ada = await makeMember(em, team.id, "ADMIN");
      ada.name = "Ada";
      await em.flush();
      const { api, app } = await consoleClient(await signIn(ada.id), team.id);
      const ofNewsletter = { params: { newsletterId } };
      const subjectOf = async () => (await api.newsletters.drafts.retrieve.query(ofNewsletter)).data.subject;
      const change = async (fields: { subject?: string; body?: string }) => {
        const { updated_at } = (await api.newsletters.drafts.retrieve.query(ofNewsletter)).data;
        const context = { began: `${newsletterId} ${updated_at}` };
        await api.newsletters.drafts.update.mutate({ ...ofNewsletter, body: fields }, { context });
      };
      const sequence = { name: "Welcome", list_id: listId, from_email: fromEmail };
      const params = { sequenceId: (await app.sequences.create.mutate({ body: sequence })).data.id };
      const saveStep = (subject: string) =>
        app.sequences.saveStep.mutate({
          params,
          body: { step_id: "a", step: { wait_minutes: 0, subject, body: "x" } },
        });
      await inPage({}, async (page) => {
        await enter(page, owner.id);
        const open = (path: string) => page.goto(`${origin}/console/${team.id}/live/${path}`);
        const press = (name: string) => page.getByRole("button", { name, exact: true }).click();
        const subject = page.getByLabel("Subject", { exact: true });
        const question = page.getByRole("dialog", { name: "Ada has changed this" });

        /** Until the page has read again what it has saved. */
        const saved = async (act: () => Promise<void>) => {
          const read = page.waitForResponse(/content\.document/);
          await act();
          await page.getByText(/^Saved \d/).waitFor();
          await read;
        };
        await open(`newsletters/${newsletterId}`);
        await subject.waitFor();
        await change({ body: "<p>Ada's</p>" });
        await saved(() => subject.fill("Mine"));
        await change({ subject: "Ada's" });
        await subject.fill("Mine again");
        await question.getByText("Ada's", { exact: true }).waitFor();
        await question.getByText("Mine again", { exact: true }).waitFor();
        assert.deepEqual(await violationsOf(page, ["scrollable-region-focusable"]), []);
        await saved(() => press("Overwrite with yours"));
        assert.equal(await subjectOf(), "Mine again");
        await change({ subject: "Ada's again" });
        await subject.fill("Mine at last");
        await question.waitFor();
        await page.keyboard.press("Escape");
        await page.getByText("Ada has changed this since you opened it.").waitFor();
        assert.equal(await subject.inputValue(), "Mine at last");
        await press("Save");
        await saved(() => press("Keep theirs"));
        assert.equal(await subject.inputValue(), "Ada's again");

        await page.getByText("Days: any").click();
        for (const day of ["Monday", "Tuesday", "Friday"]) await page.getByRole("checkbox", { name: day }).check();
        const daysOf = async () => (await api.newsletters.drafts.retrieve.query(ofNewsletter)).data.send_days;
        await eventually(async () => (await daysOf()).join() === "1,2,5", { what: "own choices, one after the other" });

        await saveStep("First");
        await open(`sequences/${params.sequenceId}?step=a`);
        await subject.waitFor();
        await saveStep("Second");
        await subject.fill("Mine");
        await question.getByText("Second", { exact: true }).waitFor();
        await press("Keep theirs");
        await page.getByRole("cell", { name: "Second" }).waitFor();

        await open("settings");
        const name = page.getByLabel("Team name");
        const rename = async (text: string) => {
          const context = { began: `${team.id} ${(await app.team.settings.query({})).data.updated_at}` };
          await app.team.changeSettings.mutate({ body: { name: text } }, { context });
        };
        await name.fill("Mine");
        await rename("Ada's");
        await press("Save");
        await press("Keep theirs");
        await eventually(async () => (await name.inputValue()) === "Ada's", { what: "the name that Ada has saved" });
        await name.fill("Mine");
        await rename("Ada's again");
        await press("Save");
        await press("Overwrite with yours");
        await page.getByText("Saved", { exact: true }).waitFor();
        await name.fill("Mine too");
        await press("Save");
        const nameOf = async () => (await app.team.settings.query({})).data.name;
        await eventually(async () => (await nameOf()) === "Mine too", { what: "the second save of the form" });
      });
    },
  );

  it("adds people who were chosen to a list, and suppresses their addresses", async () => {
    const { origin } = await stack();
    const { owner, team } = await makeTeam();
    const { api } = await consoleClient(await signIn(owner.id), team.id);
    await api.lists.create.mutate({ body: { name: "Readers" } });
    const [ada, grace, alan] = ["ada@example.com", "grace@example.com", "alan@example.com"] as const;
    for (const email of [ada, grace]) await api.subscribers.create.mutate({ body: { email } });
    await api.contacts.create.mutate({ body: { email: alan } });
    await inPage({}, async (page) => {
      await enter(page, owner.id);
      await page.goto(`${origin}/console/${team.id}/live/people`);
      const bar = page.getByRole("region", { name: "Chosen people" });
      const choose = async (...emails: string[]) => {
        for (const email of emails) await page.getByRole("checkbox", { name: `Choose ${email}` }).check();
      };
      await page.getByRole("checkbox", { name: "Choose all that are shown" }).check();
      await bar.getByText("3 people chosen").waitFor();
      await bar.getByText("Contacts alone are on no list").waitFor();
      await assertAccessible(page, "chosen people");
      await bar.getByRole("button", { name: "Add to a list" }).click();
      await page.getByLabel("List", { exact: true }).last().selectOption({ label: "Readers" });
      await page.getByRole("button", { name: "Add", exact: true }).click();
      await page.getByText("Added: 2", { exact: true }).waitFor();
      await bar.waitFor({ state: "detached" });
      await page.getByText("on 1 list").nth(1).waitFor();
      await choose(ada, alan);
      await bar.getByRole("button", { name: "Suppress addresses" }).click();
      await page.getByRole("button", { name: "Suppress", exact: true }).click();
      await page.getByText("Suppressed: 2. Already suppressed: 0.").waitFor();
      await choose(ada);
      await page.getByLabel("Address status").selectOption("SUPPRESSED");
      await page.getByText(grace).waitFor({ state: "detached" });
      assert.equal(await bar.count(), 0, "the people of another filter are not chosen");
    });
  });

  it("unsubscribes a person from one list or from all email, and says what they still get", async () => {
    const { origin } = await stack();
    const { owner, team } = await makeTeam();
    const { api } = await consoleClient(await signIn(owner.id), team.id);
    const { id: listId } = (await api.lists.create.mutate({ body: { name: "Readers", optin: "SINGLE" } })).data;
    const [ada, grace] = ["ada@example.com", "grace@example.com"] as const;
    for (const email of [ada, grace]) {
      const { id } = (await api.subscribers.create.mutate({ body: { email } })).data;
      await api.lists.addMembers.mutate({ params: { listId }, body: { subscriber_ids: [id] } });
      await api.contacts.create.mutate({ body: { email } });
    }
    await inPage({}, async (page) => {
      await enter(page, owner.id);
      const leave = async (email: string, from: string) => {
        await page.goto(`${origin}/console/${team.id}/live/people/${email}`);
        await page.getByRole("button", { name: "More actions: Readers" }).click();
        await page.getByRole("menuitem", { name: "Unsubscribe" }).click();
        const choice = page.getByLabel("Which emails");
        assert.equal(await choice.inputValue(), "all");
        await assertAccessible(page, "unsubscribing");
        await choice.selectOption({ label: from });
        await page.getByRole("button", { name: "Unsubscribe", exact: true }).last().click();
      };
      await leave(ada, "From this list");
      await page.getByText("Campaigns only", { exact: true }).waitFor();
      await page.goto(`${origin}/console/${team.id}/live/lists/${listId}?status=UNSUBSCRIBED`);
      await page.locator(".figures > div", { hasText: "Unsubscribed1" }).waitFor();
      await page.getByRole("cell", { name: /^Unsubscribed this minute/ }).waitFor();
      const saving = page.waitForEvent("download");
      await page.getByRole("button", { name: "Export these people" }).click();
      assert.match(readFileSync(await (await saving).path(), "utf8"), /^email,.*\r\nada@.*,unsubscribed,.*\r\n$/);
      await page.getByRole("button", { name: "More actions: ada@example.com" }).click();
      await page.getByRole("menuitem", { name: "Unsubscribe from all email" }).click();
      const dialog = page.getByRole("alertdialog");
      await dialog.getByRole("button", { name: "Unsubscribe from all email" }).click();
      await dialog.waitFor({ state: "detached" });
      await page.goto(`${origin}/console/${team.id}/live/people/${ada}`);
      await page.getByText("Gets no emails: unsubscribed from all emails").waitFor();
      await leave(grace, "From all email");
      await page.getByText("Gets no emails: unsubscribed from all emails").waitFor();
      assert.equal(await page.locator(".head .state").textContent(), "Unsubscribed");
    });
  });

  it("says of a person that they came back, and that they did not enter a sequence", async () => {
    const { origin } = await stack();
    const sender = await makeSender({ recipients: 0 });
    const { owner, team, em } = sender;
    const sequence = await makeSequence(sender);
    const email = uniqueEmail();
    await addPerson(sender, email);
    await untilEnrolled(sender, sequence, (enrolled) => enrolled.length === 1);
    await sql`update sequence_enrolments set state = 'PRESENT', due_at = null where campaign_id = ${sequence}`.execute(
      kysely(em),
    );
    await sql`insert into unsubscribes (id, team_id, environment, email, reason, source)
      values (${newId("unsubscribe")}, ${team.id}, 'LIVE', ${email}, 'UNSUBSCRIBED', 'link')`.execute(kysely(em));
    await inPage({}, async (page) => {
      const { api } = await consoleClient(await enter(page, owner.id), team.id);
      await page.goto(`${origin}/console/${team.id}/live/people/${email}`);
      const back = page.getByText("They can be emailed again");
      await back.waitFor();
      await page.getByRole("row", { name: /^Welcome Did not enter: joined before the start\s*$/ }).waitFor();
      await page.getByText("Not recorded: added by your team").waitFor();
      await api.suppressions.create.mutate({ body: { emails: [email] } });
      await sql`update subscriptions set confirmation_sent_at = now() where list_id = ${sender.listId}`.execute(
        kysely(em),
      );
      await page.reload();
      await page.getByRole("cell", { name: /^Asked by email: .*Confirmed: / }).waitFor();
      await page.getByRole("heading", { name: "Unsubscribes" }).waitFor();
      assert.equal(await back.count(), 0);
    });
  });

  it("shows an erased person as one who is not in the audience, and in no sequence any more, without a reload", async () => {
    const { origin } = await stack();
    const sender = await makeSender({ recipients: 0 });
    const sequence = await makeSequence(sender);
    const email = uniqueEmail();
    await addPerson(sender, email);
    const other = uniqueEmail();
    await addPerson(sender, other);
    await untilEnrolled(sender, sequence, (enrolled) => enrolled.length === 2);
    await inPage({}, async (page) => {
      await enter(page, sender.owner.id);
      await page.goto(`${origin}/console/${sender.team.id}/live/people/${email}`);
      await page.getByRole("row", { name: /^Welcome Waiting for step 1/ }).waitFor();
      assert.equal(await page.locator(".head .state").textContent(), "Can be emailed");
      await page.getByRole("button", { name: "Erase this person" }).click();
      await page.getByLabel(`Type ${email} to confirm`).fill(email);
      await page.getByRole("alertdialog").getByRole("button", { name: "Erase this person" }).click();
      await page.getByText(/^Erased on/).waitFor();
      await page.locator(".head .state", { hasText: "Not in your audience" }).waitFor();
      await page.getByRole("row", { name: /^Welcome Left before step 1: subscriber deleted/ }).waitFor();

      await page.getByRole("link", { name: "Welcome", exact: true }).click();
      await page.getByRole("button", { name: "2 people", exact: true }).click();
      await page.waitForURL(/people=ACTIVE&at=a$/);
      const enrolled = page.getByRole("region", { name: "People", exact: true });
      await enrolled.getByRole("row", { name: /^deleted person Left before step 1: subscriber deleted/ }).waitFor();
      await enrolled.getByRole("row", { name: `${other} Ada Waiting for step 1 until` }).waitFor();
      await page.getByText("get no more emails leave within about 15 minutes").waitFor();
      await assertAccessible(page, "the people of a sequence");
      await page.getByRole("combobox", { name: "Step", exact: true }).selectOption({ label: "2. Hello from b" });
      await page.getByText("No people match these filters.").waitFor();
    });
  });

  it("counts anew what an import would change once its people are said to have agreed already", async () => {
    const { origin } = await stack();
    const { owner, team } = await makeTeam();
    const { api } = await consoleClient(await signIn(owner.id), team.id);
    await api.lists.create.mutate({ body: { name: "Readers", optin: "DOUBLE" } });
    const same = (await api.lists.create.mutate({ body: { name: "Readers", optin: "SINGLE" } })).data;
    const { id } = (await api.subscribers.create.mutate({ body: { email: "alan@example.com" } })).data;
    await api.lists.addMembers.mutate({ params: { listId: same.id }, body: { subscriber_ids: [id] } });
    await inPage({}, async (page) => {
      await enter(page, owner.id);
      await page.goto(`${origin}/console/${team.id}/live/forms`);
      await page.getByRole("button", { name: "New form" }).click();
      await page.getByLabel("List", { exact: true }).selectOption({ label: "Readers (1)" });
      await page.getByRole("region", { name: "Preview" }).getByText("“Readers”").first().waitFor();

      await page.goto(`${origin}/console/${team.id}/live/imports`);
      const button = (name: string) => page.getByRole("button", { name, exact: true });
      await button("New import").click();
      const buffer = Buffer.from("email\nada@example.com\ngrace@example.com");
      await page.getByLabel("CSV file").setInputFiles({ name: "people.csv", mimeType: "text/csv", buffer });
      await button("Upload file").click();
      const list = page.locator("select[name=list_id]");
      await button("New list").click();
      await page.getByLabel("Name", { exact: true }).fill("Guests");
      await button("Create list").click();
      await list.locator("option:checked", { hasText: "Guests, double opt-in" }).waitFor({ state: "attached" });
      assert.match(page.url(), /imports/);
      await assertAccessible(page, "the columns of an import");
      await list.selectOption({ label: "Readers (0), double opt-in" });
      await button("Check the file").click();
      const asked = page.locator(".figures > div", { hasText: "asked by email to confirm2" });
      await asked.waitFor();
      const choice = page.getByLabel("New on a list with double opt-in: 2");
      await choice.selectOption("confirm");
      await asked.waitFor({ state: "detached" });
      await page.locator(".figures > div", { hasText: "Added to the list2" }).waitFor();
      assert.equal(await choice.inputValue(), "confirm");
      await choice.selectOption("ask");
      await asked.waitFor();
      assert.equal(await choice.inputValue(), "ask");
      await choice.selectOption("confirm");
      await page
        .locator("select[name=unconfirmed] option:checked", { hasText: "agreed" })
        .waitFor({ state: "attached" });
      await button("Import now").click();
      await page.getByRole("heading", { name: "What the import changed" }).waitFor();
      assert.equal(await asked.count(), 0);
    });
  });

  it("says of a search that it shows the first 25 where it finds more", async () => {
    const { origin } = await stack();
    const { owner, team, audience } = await makeSender({ recipients: 26 });
    await inPage({}, async (page) => {
      await enter(page, owner.id);
      await page.goto(`${origin}/console/${team.id}/live/people?q=${audience}`);
      const narrow = page.getByText("1–25 of 26 people: type more letters to narrow the search.");
      await narrow.waitFor();
      assert.equal(await page.getByRole("row").count(), 1 + 25);
      const email = (await page.getByRole("row").last().getByRole("link").textContent()) ?? "";
      await page.getByLabel("Address or name").fill(email);
      await page.getByRole("button", { name: "Search" }).click();
      await page.getByText("1 person", { exact: true }).waitFor();
      assert.equal(await narrow.count(), 0);
    });
  });

  it("takes, shows and finds names with an apostrophe", async () => {
    const { origin } = await stack();
    const { owner, team, audience, newsletterId } = await makeSender({ recipients: 0 });
    const email = `o'neil@${audience}`;
    await inPage({}, async (page) => {
      const client = await consoleClient(await enter(page, owner.id), team.id);
      const open = (path: string) => page.goto(`${origin}/console/${team.id}/live/${path}`);
      const button = (name: string) => page.getByRole("button", { name, exact: true });
      await client.app.audience.createField.mutate({ body: { name: "town", type: "text" } });
      const body = { name: "Anne's letter" };
      await client.api.newsletters.drafts.update.mutate({ params: { newsletterId }, body });

      await open("newsletters?q=anne's");
      await page.getByRole("link", { name: "Anne's letter" }).waitFor();
      await open("people");
      await button("Add a person").click();
      await page.getByLabel("Add as").selectOption("contacts");
      await page.getByLabel("Address", { exact: true }).fill(email);
      await page.getByLabel("Last name").fill("O'Neil");
      await page.getByLabel("town").fill("Val d'Isère");
      await button("Add").click();
      await page.getByRole("link", { name: email }).waitFor();
      const saving = page.waitForEvent("download");
      await button("Export these people").click();
      const csv = readFileSync(await (await saving).path(), "utf8");
      assert.match(csv, new RegExp(`^email,first_name,.*\\r\\n${email},,O'Neil,,true,ACTIVE,\\S+\\r\\n$`));
      await open("people?q=neil");
      await page.getByRole("link", { name: email }).click();
      await page.getByRole("heading", { name: "O'Neil" }).waitFor();
      await page.getByText("Val d'Isère").waitFor();
      await button("New subscriber").click();
      await button("Create subscriber").click();
      await button(`Edit ${email}`).click();
      assert.equal(await page.getByLabel("town").inputValue(), "Val d'Isère");
      await page.getByLabel("Last name").fill("O'Neill");
      await button("Save").click();
      await page.getByRole("heading", { name: "O'Neill" }).waitFor();
      for (const kind of ["subscribers", "contacts"] as const) {
        const { data } = await client.api[kind].page.query({ query: { email } });
        assert.deepEqual(
          data.map(({ last_name }) => last_name),
          ["O'Neill"],
        );
      }

      await open("segments/new");
      await page.getByLabel("About").selectOption("Email activity");
      assert.equal(await page.getByRole("spinbutton").inputValue(), "30");
      await page.getByLabel("About").selectOption("Address");
      await page.getByLabel("Value").fill(email);
      await page.getByRole("link", { name: email }).waitFor();
      await page.getByLabel("Name", { exact: true }).fill("Anne's friends");
      await button("Create segment").click();
      await button("Create campaign").click();
      await button("Create draft").click();
      await page.waitForURL(/campaigns\/cmp_/);
      const chosen = page.getByLabel("Segment", { exact: true }).locator("option:checked");
      assert.equal(await chosen.textContent(), "Anne's friends");
      await open("segments");
      await page.getByRole("link", { name: "Anne's friends" }).click();
      await button("Create newsletter").click();
      await button("Create draft").click();
      await page.waitForURL(/newsletters\/nl_/);
      await page.getByText(/, in segment Anne's friends$/).waitFor();
      await page.goBack();
      const shown = page.getByRole("link", { name: "Show them in People" });
      await shown.waitFor();
      await page.getByLabel("Value").fill("unknown@example.com");
      await shown.waitFor({ state: "detached" });
      await page.getByLabel("Value").fill(email);
      await button("Save").click();
      await shown.click();
      await page.waitForURL(/people\?segment=seg_/);
      await page.getByRole("link", { name: email }).waitFor();

      await open(`newsletters/${newsletterId}`);
      await page.getByText(/^To: /).click();
      await page.getByLabel("Only people in a segment").selectOption("Anne's friends");
      await button("Check the send").click();
      await page.getByText("who may be emailed is in its segment").waitFor();
      await page.reload();
      await page.getByText(/, in segment Anne's friends$/).click();
      const narrowing = page.getByLabel("Only people in a segment").locator("option:checked");
      assert.equal(await narrowing.textContent(), "Anne's friends");

      await open("audit?kind=segment");
      await page.getByRole("cell", { name: "created the segment “Anne's friends”" }).waitFor();
      await assertAccessible(page, "audit");
    });
  });

  longIt(
    "shows every page as axe asks for, in light and dark colours, nothing wider than the screen of a phone",
    async () => {
      const { origin } = await stack();
      const { owner, team, audience } = await makeSender({ recipients: 3 });
      await inPage({ colorScheme: "light", viewport: { width: 1_280, height: 900 } }, async (page) => {
        const { app } = await consoleClient(await enter(page, owner.id), team.id);
        await app.accounts.providers.add.mutate({ body: { provider: "POSTMARK" } });
        for (const path of [...PAGES, `people/person0@${audience}`]) {
          await page.goto(`${origin}/console/${team.id}/live/${path}`);
          await page.getByRole("heading", { level: 1 }).waitFor();
          await page.waitForLoadState("networkidle");
          await assertAccessible(page, path);
        }
      });
    },
  );
});
