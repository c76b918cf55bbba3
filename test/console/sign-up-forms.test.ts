import assert from "node:assert/strict";
import { createServer, type Server } from "node:http";
import type { Locator, Page } from "playwright-core";
import { buildConsole } from "../../console/build.ts";
import { en } from "../../domain/languages/en.ts";
import { mailLetter } from "../public/ledger.ts";
import { api } from "../support/api.ts";
import { assertAccessible, enter, openBrowser, violationsOf } from "../support/browser.ts";
import { eventually } from "../support/eventually.ts";
import { execute, makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { agedChallenge } from "../support/forms.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { mailsTo } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const TRACKING = "May we count what you open?";

/** Its script would run, where a page let it. */
async function writeLetter(team: TestTeam) {
  const letter = await mailLetter(team);
  const body = '<p>Dear reader</p><script>document.title = "run"</script>';
  await execute("update newsletters set subject = 'On the web', body = ? where id = ?", body, letter.newsletterId);
  return letter;
}

describe("A sign-up form of the console", function () {
  this.timeout(240_000);
  // A mail as a page runs nothing, and has no origin whose icon it could show.
  const inPage = openBrowser(/status of (404|422)|Blocked script|NotSameOrigin/);
  let site: Server | undefined;
  before(() => buildConsole());
  after(() => site?.close());

  it("takes sign-ups by its link, by its HTML with the script, and by its HTML alone, also without scripts", async () => {
    const { origin } = await stack();
    await execute("delete from request_counts where caller_id like 'form%'");
    const team = await makeTeam();
    await api(team.keys.live).post("/lists", { name: "Readers" });
    let body = "";
    site = createServer((_, res) => {
      res.setHeader("content-type", "text/html; charset=utf-8");
      res.end(`<!doctype html><html lang="en"><title>Site</title><link rel="icon" href="data:,"><h1>Site</h1>${body}`);
    });
    const logo = "<svg xmlns='http://www.w3.org/2000/svg' width='120' height='40'><text y='30'>Dark</text></svg>";
    await execute("update teams set logo_url = ? where id = ?", `${origin}/i/logo`, team.team.id);
    const ownSite = `http://127.0.0.1:${await listenLocally(site)}`;
    const audience = `${unique("site")}.example`;
    const signUp = async (page: Page, email: string) => {
      await page.getByLabel(en.signUp.email).fill(email);
      await page.getByRole("button", { name: en.signUp.button }).click();
    };
    const isTaken = (page: Page) => page.getByRole("status").getByText(en.signUp.mailed).waitFor();

    await inPage(
      {},
      async (page) => {
        await page.route("**/i/logo", (route) => route.fulfill({ contentType: "image/svg+xml", body: logo }));
        await enter(page, team.owner.id);
        await page.goto(`${origin}/console/${team.team.id}/live/forms`);
        const button = (name: string) => page.getByRole("button", { name, exact: true });
        const dialog = page.getByRole("dialog");
        await button("New form").click();
        await dialog.getByLabel("Name", { exact: true }).fill("Footer");
        await dialog.getByLabel("Consent").fill("You get our letter.");
        await dialog.getByText("More options").click();
        await dialog.getByLabel("Question about tracking").fill(TRACKING);
        await dialog.getByLabel("Websites with the script").fill(`${ownSite}/\n`);
        await dialog.getByRole("checkbox", { name: "First name" }).check();
        const sample = dialog.locator(".sample");
        const intro = en.signUp.intro("Readers", team.team.name);
        const shown = [en.confirm.title("Readers"), intro, en.signUp.first_name, TRACKING, "You get our letter."];
        for (const words of shown) await sample.getByText(words, { exact: true }).waitFor();
        await sample.getByAltText(team.team.name).waitFor();
        const shownParts = '[...document.querySelectorAll(".sample, .sample > *")]';
        const colors = () => page.evaluate(`${shownParts}.map((part) => getComputedStyle(part).backgroundColor)`);
        const inLight = await colors();
        await page.emulateMedia({ colorScheme: "dark" });
        const inDark = await colors();
        await page.emulateMedia({ colorScheme: "light" });
        assert.deepEqual(inLight, ["rgb(244, 244, 242)", "rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"]);
        assert.deepEqual(inDark, ["rgb(22, 24, 29)", "rgb(255, 255, 255)", "rgb(34, 37, 43)"]);
        assert.deepEqual(await violationsOf(page), []);
        await button("Create form").click();
        await button("Use Footer").click();
        await dialog.getByText("form.js").waitFor();
        assert.deepEqual(await violationsOf(page), []);
        const [link = "", html = "", script = ""] = await dialog.locator("code").allTextContents();

        await page.goto(link);
        await page.getByText(intro, { exact: true }).waitFor();
        await assertAccessible(page);
        const width = async (of: Locator) => (await of.boundingBox())?.width ?? 0;
        assert.ok((await width(page.getByLabel(en.signUp.email))) > 0.85 * (await width(page.getByRole("main"))));
        // The challenge is answered once the button shows that it was pressed.
        await page.route("**/challenge", async (route) => {
          const busy = page.getByRole("button", { name: `${en.signUp.button} …`, disabled: true });
          await busy.waitFor();
          await route.continue();
        });
        await page.getByLabel(TRACKING).check();
        await page.getByLabel(en.signUp.first_name).fill("Ada");
        await signUp(page, `link@${audience}`);
        await isTaken(page);
        await page.getByRole("heading", { name: en.signUp.done }).waitFor();
        await page.unroute("**/challenge");

        const { newsletterId, listIds } = await writeLetter(team);
        await page.goto(`${origin}/console/${team.team.id}/live/newsletters/${newsletterId}`);
        await button("More actions").click();
        await page.getByRole("menuitem", { name: "Publish on the web" }).click();
        await button("Publish").click();
        const address = page.locator("code", { hasText: "/n/" });
        await address.waitFor();
        assert.deepEqual(await violationsOf(page), []);
        const published = (await address.textContent()) ?? "";
        await page.goto(`${origin}/console/${team.team.id}/live/lists/${listIds[0]}`);
        await button("Make the archive public").click();
        await dialog.getByRole("button", { name: "Make the archive public" }).click();
        const archive = page.locator("code", { hasText: "/a/" });
        await archive.waitFor();
        assert.deepEqual(await violationsOf(page), []);
        await page.goto((await archive.textContent()) ?? "");
        await assertAccessible(page);
        await page.getByRole("link", { name: "On the web" }).click();
        await page.getByText("Dear reader").waitFor();
        assert.deepEqual([page.url(), await page.title()], [published, "On the web"]);

        // With a button of the owner's.
        body = `${html.replace(/<button>(.*)<\/button>/, '<input type="submit" value="$1">')}\n${script}`;
        await page.goto(ownSite);
        await signUp(page, "a@mailinator.com");
        await page.getByRole("alert").getByText(en.signUp.throwaway).waitFor();
        assert.equal(await page.getByLabel(en.signUp.email).getAttribute("aria-invalid"), "true");
        await signUp(page, `script@${audience}`);
        await isTaken(page);
        assert.equal(new URL(page.url()).origin, ownSite);

        body = html;
        await page.goto(ownSite);
        await signUp(page, `html@${audience}`);
        await page.waitForURL(link);
        await page.getByText(en.signUp.wait(15)).waitFor({ state: "detached" });
        await assertAccessible(page);
        await page.getByRole("button", { name: en.signUp.button }).click();
        await isTaken(page);
      },
      [ownSite],
    );
    const [form] = await execute<{ id: string }>("select id from forms where team_id = ?", team.team.id);
    await inPage(
      { javaScriptEnabled: false },
      async (page) => {
        await page.goto(ownSite);
        await signUp(page, `without@${audience}`);
        await page.getByText(en.signUp.wait(15)).waitFor();
        // As if the person had waited.
        await page.route(`${origin}/f/*`, (route) => {
          const posted = new URLSearchParams(route.request().postData() ?? "");
          posted.set("proof", agedChallenge(team.vault, form?.id ?? "", 16));
          return route.continue({ postData: posted.toString() });
        });
        await page.getByRole("button", { name: en.signUp.button }).click();
        await page.getByRole("heading", { name: en.signUp.done }).waitFor();
      },
      [ownSite],
    );
    for (const name of ["link", "script", "html", "without"]) {
      await eventually(async () => (await mailsTo(`${name}@${audience}`)).length === 1, {
        what: `the mail to ${name}`,
      });
    }
    const people = await execute(
      "select p.first_name, s.form_tracking from subscriptions s join subscribers p on p.id = s.subscriber_id where s.team_id = ? and s.form_at is not null order by p.email",
      team.team.id,
    );
    assert.deepEqual(
      people.map(({ first_name, form_tracking }) => [first_name, form_tracking]),
      [
        [null, false],
        ["Ada", true],
        [null, false],
        [null, false],
      ],
    );
  });
});
