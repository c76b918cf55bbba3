/**
 * `npm run screenshots`: pictures of the console's main pages, of the demo's data, for the README and the guide. Before it:
 * `npm start`, and in another terminal `npm run demo` and `npm run demo -- --sequence`.
 */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { chromium, type Page } from "playwright-core";
import { signInLink } from "../../stack/console-link.ts";
import type { StackFile } from "../../stack/state.ts";

const FOLDER = `${import.meta.dirname}/../../api/docs/assets`;
const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

const file = `${process.env["DATA_DIR"] ?? ".data"}/stack.json`;
if (!existsSync(file)) throw new Error("Start the service first: npm start");
const stack = JSON.parse(readFileSync(file, "utf8")) as StackFile;
const executablePath = PROGRAMS.find((program) => existsSync(program));
if (!executablePath) throw new Error("Install Chromium first (Debian: apt-get install chromium)");

async function idOf(path: string): Promise<string> {
  const answer = await fetch(`${stack.api}${path}`, { headers: { "x-api-key": stack.keys.live } });
  const { data } = (await answer.json()) as { data: { id: string; is_drip?: boolean }[] };
  const first = data.find(({ is_drip }) => path !== "/campaigns" || is_drip);
  if (!first) throw new Error(`${path} is empty: run the demo first`);
  return first.id;
}

/** Pages below the team's, by the name of their picture. */
const pages: Record<string, string> = {
  overview: "",
  newsletter: `/newsletters/${await idOf("/newsletters?status=SENT")}`,
};

async function settle(page: Page): Promise<void> {
  await page.waitForLoadState("networkidle");
  await page.evaluate("document.fonts.ready");
}

const browser = await chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });
mkdirSync(FOLDER, { recursive: true });
try {
  const page = await browser.newPage({ viewport: { width: 1_440, height: 860 } });
  await page.goto(await signInLink(stack));
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  const base = page.url().replace(/\/$/, "");
  for (const [name, path] of Object.entries(pages)) {
    await page.goto(`${base}${path}`);
    await settle(page);
    await page.screenshot({ path: `${FOLDER}/console-${name}.png` });
    console.log(`${name}.png`);
  }
  await page.goto(`${base}/templates`);
  await page.getByRole("button", { name: /^Use / }).first().click();
  await page.getByRole("dialog").getByLabel("Name", { exact: true }).fill("The December issue");
  await page
    .getByRole("dialog")
    .getByRole("button")
    .filter({ hasText: /^Create/ })
    .click();
  await page.getByRole("heading", { name: "The December issue" }).waitFor();
  await settle(page);
  await page.screenshot({ path: `${FOLDER}/console-draft.png` });
  await page.goto(`${base}/forms`);
  await page.getByRole("button", { name: "New form" }).click();
  await page.getByLabel("Name", { exact: true }).fill("Footer of the website");
  await page.getByLabel("Consent").fill("We send you our letter once a month. Each one has a link to unsubscribe.");
  await page.getByRole("checkbox", { name: "First name" }).check();
  await page.getByRole("button", { name: "Create form" }).click();
  await page.getByRole("button", { name: /^Use / }).first().click();
  await page.getByRole("dialog").getByText("form.js").waitFor();
  await settle(page);
  await page.screenshot({ path: `${FOLDER}/console-forms.png` });
  await page.goto((await page.getByRole("dialog").locator("code").first().textContent()) ?? "");
  await page.setViewportSize({ width: 720, height: 560 });
  await page.screenshot({ path: `${FOLDER}/form.png` });
} finally {
  await browser.close();
}
