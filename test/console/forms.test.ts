import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { buildConsole } from "../../console/build.ts";
import { enter, openBrowser, violationsOf } from "../support/browser.ts";
import { eventually } from "../support/eventually.ts";
import { makeSender } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const button = (page: Page, name: string) => page.getByRole("button", { name, exact: true });
/** An open popup hides the page around it, and has guards that hand the focus on at once. */
const OF_POPUPS = ["aria-hidden-focus", "page-has-heading-one"];
const isFocused = (selector: string) => `document.activeElement?.matches(${JSON.stringify(selector)})`;
/** Until the focus is on an element. */
const focused = (page: Page, selector: string) =>
  eventually(() => page.evaluate<boolean>(isFocused(selector)), { what: `the focus on ${selector}` });

describe("The console's forms", function () {
  this.timeout(120_000);
  before(() => buildConsole());
  // A draft that was deleted may be read once more before its page is left.
  const inPage = openBrowser(/status of 404/);

  it("find a list among 500 in a few keys, and show it as a chip that goes again", async () => {
    const { origin } = await stack();
    const { em, owner, team, newsletterId, client } = await makeSender({ recipients: 0, detached: true });
    await em.execute(
      "insert into lists (id, team_id, environment, name, optin) select ? || n, ?, 'LIVE', 'Town ' || n, 'SINGLE' from generate_series(1, 500) n",
      [team.id, team.id],
    );
    const hasList = async () =>
      (await client.get(`/newsletters/${newsletterId}`)).body.data.lists.includes(`${team.id}417`);
    await inPage({}, async (page) => {
      await enter(page, owner.id);
      await page.goto(`${origin}/console/${team.id}/live/newsletters/${newsletterId}`);
      await page.getByText("To: choose a list").click();
      const picker = page.getByRole("combobox", { name: "Lists" });
      await picker.focus();
      for (const key of ["4", "1", "7"]) await page.keyboard.press(key);
      await page.getByRole("option", { name: "Town 417" }).waitFor();
      assert.deepEqual(await violationsOf(page, OF_POPUPS), []);
      await page.keyboard.press("Enter");
      const remove = button(page, "Remove Town 417");
      await remove.waitFor();
      await eventually(hasList, { what: "the saved list" });
      await page.keyboard.press("Escape");
      await remove.click();
      await remove.waitFor({ state: "detached" });
      await eventually(async () => !(await hasList()), { what: "the list that was taken away" });
    });
  });

  it("drop their choices by Escape, give the focus back, and ask with Cancel before they destroy", async () => {
    const { origin } = await stack();
    const { owner, team, newsletterId } = await makeSender({ recipients: 0 });
    await inPage({}, async (page) => {
      await enter(page, owner.id);
      await page.goto(`${origin}/console/${team.id}/live/newsletters/${newsletterId}`);
      const member = page.getByRole("dialog").getByRole("checkbox");
      await button(page, "Send a test").click();
      await page.locator("[role=dialog] :checked").waitFor();
      await member.uncheck();
      await page.keyboard.press("Escape");
      await member.waitFor({ state: "detached" });
      await focused(page, "button[aria-label='Send a test']");
      await button(page, "Send a test").click();
      await page.locator("[role=dialog] :checked").waitFor();
      await button(page, "Send test").click();
      await page.getByRole("dialog").getByText("Close", { exact: true }).click();
      await member.waitFor({ state: "detached" });

      assert.equal(await page.locator("button.danger").count(), 0);
      await button(page, "More actions").click();
      assert.deepEqual(await violationsOf(page, OF_POPUPS), []);
      await page.getByRole("menuitem", { name: "Delete this newsletter" }).click();
      const question = page.getByRole("alertdialog", { name: "Delete this newsletter" });
      await question.waitFor();
      await eventually(async () => (await page.evaluate("document.activeElement?.textContent")) === "Cancel", {
        what: "the focus on Cancel",
      });
      assert.deepEqual(await violationsOf(page), []);
      await page.keyboard.press("Enter");
      await question.waitFor({ state: "detached" });
      await focused(page, "button[aria-label='More actions']");

      const remove = async () => {
        await button(page, "More actions").click();
        await page.getByRole("menuitem", { name: "Delete this newsletter" }).click();
        await button(page, "Delete this newsletter").click();
        await button(page, "Undo").waitFor();
      };
      await remove();
      assert.deepEqual(await violationsOf(page), []);
      await button(page, "Undo").click();
      await page.getByText("“Issue one” restored", { exact: true }).waitFor();
      await page.getByRole("link", { name: "Issue one" }).click();
      await remove();
      await page.getByRole("link", { name: "Recently deleted", exact: true }).click();
      await button(page, "Restore Issue one").click();
      await button(page, "Restore").click();
      await page.getByText("Nothing was deleted in the last 30 days.").waitFor();
    });
  });

  it("ask before what was typed is lost by Escape or another page, and keep it by a press beside the dialog", async () => {
    const { origin } = await stack();
    const { owner, team } = await makeSender({ recipients: 0 });
    await inPage({}, async (page) => {
      await enter(page, owner.id);
      const at = `${origin}/console/${team.id}/live`;
      const question = page.getByRole("dialog", { name: "Unsaved changes" });
      await page.goto(`${at}/lists`);
      await button(page, "New list").click();
      const name = page.getByLabel("Name", { exact: true });
      await name.fill("Readers");
      await page.mouse.click(2, 2);
      await page.keyboard.press("Escape");
      await question.waitFor();
      assert.deepEqual(await violationsOf(page), []);
      await button(page, "Stay here").click();
      await question.waitFor({ state: "detached" });
      assert.equal(await name.inputValue(), "Readers");
      await name.press("Escape");
      await button(page, "Leave without saving").click();
      await name.waitFor({ state: "detached" });
      await focused(page, "button[aria-label='New list']");

      const leave = async () => {
        await page.getByRole("link", { name: "Lists", exact: true }).click();
        await question.waitFor();
        await button(page, "Stay here").click();
        await question.waitFor({ state: "detached" });
      };
      const save = async () => {
        await button(page, "Save").click();
        await page.getByText("Saved", { exact: true }).waitFor();
        await page.getByRole("link", { name: "Lists", exact: true }).click();
        await page.getByRole("heading", { name: "Lists", level: 1 }).waitFor();
      };
      await page.goto(`${at}/brand`);
      await page.getByLabel("Footer").fill("Printed nowhere");
      await leave();
      // A save does not hold text that is typed after its press.
      const answered = Promise.withResolvers<void>();
      await page.route(/changeBrand/, async (route) => {
        await answered.promise;
        await route.continue();
      });
      await button(page, "Save").click();
      await page.getByLabel("Footer").fill("Printed nowhere at all");
      answered.resolve();
      await page.getByText("Saved", { exact: true }).waitFor();
      await leave();
      await page.unroute(/changeBrand/);
      await page.getByText("Saved", { exact: true }).waitFor({ state: "detached" });
      await save();
      await page.goto(`${at}/settings`);
      await page.getByRole("combobox", { name: "Time zone" }).fill("Berlin");
      await page.getByRole("option", { name: "Europe/Berlin" }).click();
      await leave();
      await save();
      await page.goto(`${at}/segments/new`);
      await page.getByLabel("Value").fill("@example.com");
      await leave();
      await page.getByLabel("Name", { exact: true }).fill("Examples");
      await button(page, "Create segment").click();
      await page.getByRole("heading", { name: "Examples", level: 1 }).waitFor();
      await page.getByRole("link", { name: "Segments", exact: true }).click();
      await page.getByRole("row", { name: "Examples If address contains @example.com" }).waitFor();
      await page.getByRole("link", { name: "Examples" }).click();
      await page.getByLabel("Value").fill("@example.net");
      await leave();
      await button(page, "More actions").click();
      await page.getByRole("menuitem", { name: "Delete this segment" }).click();
      await page.getByRole("alertdialog").getByRole("button", { name: "Delete this segment" }).click();
      await page.getByRole("heading", { name: "Segments", level: 1 }).waitFor();
    });
  });

  it("show an error at its field without a request, and the effect of a save", async () => {
    const { origin } = await stack();
    const { owner, team } = await makeSender({ recipients: 0 });
    await inPage({}, async (page) => {
      const asked: string[] = [];
      page.on("request", (request) => request.method() === "POST" && asked.push(request.url()));
      await enter(page, owner.id);
      await page.goto(`${origin}/console/${team.id}/live/lists`);
      await button(page, "New list").click();
      await button(page, "Cancel").click();
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await button(page, "New list").click();
      await focused(page, "[name=name]");
      await page.keyboard.type("  ");
      await page.getByLabel("Note for the team").fill("x".repeat(1_001));
      await button(page, "Create list").click();
      await page.getByText("Must not be empty.").waitFor();
      await page.getByText("Must be at most 1000 characters long; it has 1001.").waitFor();
      await focused(page, "[name=name][aria-invalid=true]");
      assert.deepEqual(await violationsOf(page), []);
      await page.getByLabel("Name", { exact: true }).fill("");
      await button(page, "Create list").click();
      await page.getByText("Please fill out this field.").waitFor();
      assert.deepEqual(asked, []);
      await page.getByLabel("Name", { exact: true }).fill("Readers");
      await page.getByText("Please fill out this field.").waitFor({ state: "detached" });
      await page.getByLabel("Note for the team").fill("");
      await button(page, "Create list").click();
      await page.getByText("List created").waitFor();
      await page.getByRole("heading", { name: "Readers", level: 1 }).waitFor();
      assert.equal(asked.length, 1);
    });
  });
});
