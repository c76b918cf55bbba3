import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { GUIDES } from "../../api/docs/guides.ts";
import type { Json } from "../support/api.ts";
import { openBrowser, violationsOf, widthOf } from "../support/browser.ts";
import { eventually } from "../support/eventually.ts";
import { stack } from "../support/stack.ts";

const PHONE = { width: 375, height: 740 };
/** Most presses of Tab between two things of the page. */
const MAX_TABS = 60;

const ME = "operations-Identity-retrieveMe";
const CREATE = "operations-Webhooks-createWebhook";

/** The demo team's test key. */
function testKey(): string {
  const file = process.env["MAILKEEL_STACK"];
  assert.ok(file, "the stack of the tests runs");
  return JSON.parse(readFileSync(file, "utf8")).keys.test;
}

describe("The documentation in a browser", function () {
  this.timeout(300_000);
  const inPage = openBrowser();
  let origin: string;
  before(async () => {
    ({ origin } = await stack());
  });

  async function openReference(page: Page): Promise<void> {
    await page.goto(`${origin}/docs`);
    await page.locator(`#${ME}`).waitFor();
  }

  for (const colorScheme of ["light", "dark"] as const) {
    it(`shows every guide and the reference without an error, in ${colorScheme} colours, as axe asks for`, async () => {
      await inPage({ colorScheme }, async (page) => {
        for (const { path } of GUIDES) {
          const answer = await page.goto(`${origin}${path}`);
          assert.equal(answer?.status(), 200, path);
          assert.deepEqual(await violationsOf(page), [], path);
        }
        await openReference(page);
        await page.locator(`#${CREATE} .opblock-summary-control`).click();
        await page.locator(`#${CREATE} .try-out__btn`).waitFor();
        assert.deepEqual(await violationsOf(page), [], "the reference");
      });
    });
  }

  it("shows every guide and the reference on a phone, nothing wider than its screen", async () => {
    await inPage({ viewport: PHONE }, async (page) => {
      for (const { path } of GUIDES) {
        await page.goto(`${origin}${path}`);
        assert.ok((await widthOf(page)) <= PHONE.width, path);
      }
      await openReference(page);
      assert.ok((await widthOf(page)) <= PHONE.width, "the list of operations");
      for (const operation of [ME, CREATE]) {
        await page.locator(`#${operation} .opblock-summary-control`).click();
        await page.locator(`#${operation} .try-out__btn`).click();
        await page.locator(`#${operation} .execute`).waitFor();
        assert.ok((await widthOf(page)) <= PHONE.width, operation);
      }
      await page.locator("button.authorize").first().click();
      await page.locator(".auth-container input").first().fill(testKey());
      await page.keyboard.press("Enter");
      await page.keyboard.press("Escape");
      await page.locator(`#${ME} .execute`).click();
      await page.locator(`#${ME} .live-responses-table`).waitFor();
      assert.ok((await widthOf(page)) <= PHONE.width, "an answer and the command that asks for it");
      const filter = page.locator(".operation-filter-input");
      const [needed, width] = await filter.evaluate((field) => [field.scrollWidth, field.clientWidth]);
      assert.ok(needed !== undefined && width !== undefined && needed <= width, "the hint in the filter");
    });
  });

  it("shows endpoints on the first screen, and filters them and the webhooks by what they do", async () => {
    await inPage({ viewport: { width: 1280, height: 800 } }, async (page) => {
      await openReference(page);
      const top = await page.locator(".opblock").first().boundingBox();
      assert.ok(top && top.y + top.height < 800, JSON.stringify(top));
      const shows = (filter: string, ...expected: string[]) =>
        eventually(
          async () => {
            const paths = await page.locator(".opblock-summary-path").allTextContents();
            // The renderer puts places for a line break into a path.
            assert.deepEqual(
              paths.map((path) => path.replaceAll("\u200b", "")),
              expected,
              filter,
            );
            return true;
          },
          { what: filter },
        );
      const filter = page.locator(".operation-filter-input");
      for (const [text, ...expected] of [
        ["DO-NOT-MAIL list", "/suppressions", "suppression.added"],
        ["delete /lists/", "/lists/{listId}", "/lists/{listId}/subscribers/{subscriberId}"],
        ["no such thing"],
      ] as const) {
        await filter.fill(text);
        await shows(text, ...expected);
      }
    });
  });

  it("keeps the focus in the dialog that asks for a key, and gives it back", async () => {
    await inPage({}, async (page) => {
      await openReference(page);
      await page.locator("button.authorize").first().focus();
      await page.keyboard.press("Enter");
      await page.locator("#api_key_value:focus").waitFor();
      assert.equal(await page.locator("[role=dialog][aria-modal=true]").count(), 1);
      assert.ok(
        !(await page.locator("[role=dialog]").textContent())?.includes("newsletters:send"),
        "no list of scopes",
      );
      for (const key of ["Tab", "Shift+Tab"]) {
        for (let presses = 0; presses < MAX_TABS / 2; presses++) {
          await page.keyboard.press(key);
          assert.equal(await page.locator("[role=dialog] :focus").count(), 1, `${key} ${presses}`);
        }
      }
      await page.keyboard.press("Escape");
      await page.locator("button.authorize:focus").waitFor();
      assert.equal(await page.locator("[role=dialog]").count(), 0);
    });
  });

  it("shows every operation and every webhook of the document in the reference", async () => {
    await inPage({}, async (page) => {
      await openReference(page);
      const { paths }: Json = await (await fetch(`${origin}/openapi.json`)).json();
      const { callbacks } = paths["/webhooks"].post;
      const operations = Object.values<object>({ ...paths, ...callbacks }).flatMap((item) => Object.keys(item));
      assert.equal(await page.locator(".opblock").count(), operations.length);
      // An error leads to its remedy.
      await page.locator(`#${CREATE} .opblock-summary-control`).click();
      const link = page.locator(`#${CREATE} a[href="/docs/errors#resource_limit_reached"]`);
      await link.waitFor();
      // A success leads to the operations that follow, in the same tab.
      await page.locator(`#${CREATE} a`, { hasText: "retrieveWebhook" }).click();
      await page.locator("#operations-Webhooks-retrieveWebhook.is-open button:focus").waitFor();
    });
  });

  it("tries a request with a test key, by the keyboard alone", async () => {
    await inPage({}, async (page) => {
      await openReference(page);
      /** Presses Tab until the element that has the focus matches, and sees that the focus is visible. */
      const tabTo = async (selector: string): Promise<void> => {
        for (let presses = 0; presses < MAX_TABS; presses++) {
          await page.keyboard.press("Tab");
          const focus = page.locator("*:focus");
          if (!(await focus.evaluate((element, wanted) => element.matches(wanted), selector))) continue;
          const outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle");
          assert.notEqual(outline, "none", selector);
          return;
        }
        assert.fail(`Tab does not reach ${selector}`);
      };
      await page.keyboard.press("Tab");
      assert.equal(await page.locator("*:focus").textContent(), "Skip to the content");
      await tabTo('nav a[href="/docs/errors"]');
      await tabTo("button.authorize");
      await page.keyboard.press("Enter");
      await page.locator("#api_key_value:focus").waitFor();
      await page.keyboard.type(testKey());
      await page.keyboard.press("Enter");
      await tabTo("button.btn-done");
      await page.keyboard.press("Enter");
      await tabTo(`#${ME} .opblock-summary-control`);
      await page.keyboard.press("Enter");
      await page.locator(`#${ME} .try-out__btn`).waitFor();
      await tabTo(`#${ME} .try-out__btn`);
      await page.keyboard.press("Enter");
      await page.locator(`#${ME} .execute`).waitFor();
      await tabTo(`#${ME} .execute`);
      await page.keyboard.press("Enter");
      const answer = page.locator(`#${ME} .live-responses-table`);
      await answer.waitFor();
      assert.equal((await answer.locator("tbody .response-col_status").first().textContent())?.trim(), "200");
      assert.match((await answer.textContent()) ?? "", /"environment": "TEST"/);
    });
  });
});
