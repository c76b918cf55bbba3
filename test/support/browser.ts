import assert from "node:assert/strict";
import axe from "axe-core";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { type Cookies, signIn } from "./console.ts";
import { needs } from "./programs.ts";
import { stack } from "./stack.ts";

/** A busy machine renders a page within seconds. */
const PATIENCE_MS = 60_000;

export const widthOf = (page: Page): Promise<number> => page.evaluate("document.documentElement.scrollWidth");

/** Signs a browser in as a member. @returns the cookies of its session */
export async function enter(page: Page, memberId: string): Promise<Cookies> {
  const { origin } = await stack();
  const cookies = await signIn(memberId);
  await page.context().addCookies(Object.entries(cookies).map(([name, value]) => ({ name, value, url: origin })));
  return cookies;
}

/** Breaches of axe's rules. @param except names of rules that are left out */
export async function violationsOf(page: Page, except: readonly string[] = []): Promise<string[]> {
  // By the debugger, which no Content-Security-Policy holds up.
  if (!(await page.evaluate("'axe' in globalThis"))) await page.evaluate(axe.source);
  const rules = Object.fromEntries(except.map((rule) => [rule, { enabled: false }]));
  // Mails are shown in frames that run nothing: axe would ask each of them, in vain.
  const options = JSON.stringify({ rules, resultTypes: ["violations"], iframes: false });
  // Put into words by the page: whole results hold each element that was looked at, and take longer than the rules.
  const run = `axe.run(${options}).then(({ violations }) => violations.map(({ id, nodes }) =>
    id + ": " + nodes.slice(0, 3).map(({ html }) => html.slice(0, 200)).join(" | ")))`;
  return page.evaluate<string[]>(run);
}

const PHONE_WIDTH = 360;
const TABLET_WIDTH = 820;

/** No breach of axe's rules in light and dark colours and on a phone; nothing is wider than its screen, or that of a tablet. */
export async function assertAccessible(page: Page, what?: string): Promise<void> {
  const size = page.viewportSize();
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await violationsOf(page), [], what);
  }
  await page.setViewportSize({ width: PHONE_WIDTH, height: 740 });
  assert.deepEqual(await violationsOf(page), [], what);
  assert.ok((await widthOf(page)) <= PHONE_WIDTH, what);
  await page.setViewportSize({ width: TABLET_WIDTH, height: 740 });
  assert.ok((await widthOf(page)) <= TABLET_WIDTH, what);
  await page.emulateMedia({ colorScheme: "light" });
  if (size) await page.setViewportSize(size);
}

/**
 * Work on a page; it fails on any message of the browser's console, failed request or request to another origin.
 * @param sites other origins that it may ask
 */
export type InPage = (
  options: BrowserContextOptions,
  work: (page: Page) => Promise<void>,
  sites?: readonly string[],
) => Promise<void>;

/** Opens a browser for the tests of a `describe`. @param expected messages of the browser's console that are no problem */
export function openBrowser(expected = /^$/): InPage {
  const program = needs("chromium-headless-shell");
  let browser: Browser;
  let origin: string;
  before(async () => {
    ({ origin } = await stack());
    // Chromium's sandbox refuses to run as root.
    const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
    // Most readers' browsers show scrollbars, which take room from the page.
    browser = await chromium.launch({ executablePath: program(), args, ignoreDefaultArgs: ["--hide-scrollbars"] });
  });
  after(() => browser?.close());

  return async (options, work, sites = []) => {
    const context = await browser.newContext(options);
    context.setDefaultTimeout(PATIENCE_MS);
    const page = await context.newPage();
    const problems: string[] = [];
    page.on("console", (message) => {
      if (!expected.test(message.text())) problems.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
    page.on("requestfailed", (request) => {
      // A picture may still be on its way when the next page is opened.
      const reason = request.failure()?.errorText;
      if (reason !== "net::ERR_ABORTED") problems.push(`failed: ${request.url()} ${reason}`);
    });
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.protocol !== "data:" && ![origin, ...sites].includes(url.origin)) problems.push(`elsewhere: ${url.href}`);
    });
    try {
      await work(page);
      assert.deepEqual(problems, []);
    } finally {
      await context.close();
    }
  };
}
