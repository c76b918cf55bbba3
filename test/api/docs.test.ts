import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, symlink } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { BASE_PATH } from "../../api/base-path.ts";
import { factsOf } from "../../api/docs/facts.ts";
import { GUIDES } from "../../api/docs/guides.ts";
import { REPEATABLE_CODES } from "../../client/retry.ts";
import { ERRORS } from "../../domain/errors.ts";
import { ALLOWED_FILTERS } from "../../domain/mail/liquid-engine.ts";
import { showMessage } from "../../domain/mail/message.ts";
import { checkContent } from "../../domain/mail/template.ts";
import { describeProblem } from "../../domain/mail/template-problem.ts";
import { EVENT_NAMES, EVENTS } from "../../domain/webhooks/catalogue.ts";
import { userAgent } from "../../domain/webhooks/headers.ts";
import { MERGE_TAGS } from "../../lib/merge-tags.ts";
import type { Json } from "../support/api.ts";
import { runApp } from "../support/command.ts";
import { openReceiver } from "../support/receiver.ts";
import { stack } from "../support/stack.ts";

const ROOT = `${import.meta.dirname}/../..`;
const MERGE_TAGS_PAGE = "/docs/merge-tags";
const PAGES = ["/docs", ...GUIDES.map(({ path }) => path)];

const origin = async (): Promise<string> => (await stack()).origin;

async function read(path: string): Promise<string> {
  const response = await fetch(`${await origin()}${path}`);
  assert.equal(response.status, 200, path);
  return response.text();
}

const unescaped = (html: string): string =>
  html
    .replaceAll("&#39;", "'")
    .replaceAll("&#34;", '"')
    .replaceAll("&quot;", '"')
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&amp;", "&");

const textOf = (html: string): string => unescaped(html.replaceAll(/<[^>]*>/g, "")).replaceAll(/\s+/g, " ");
const plain = (markdown: string): string => markdown.replaceAll("`", "");

const idsOf = (html: string): string[] => [...html.matchAll(/ id="([^"]+)"/g)].map(([, id = ""]) => id);
const linksOf = (html: string): string[] => [...html.matchAll(/ (?:href|src)="([^"]+)"/g)].map(([, link = ""]) => link);

/** The texts of the cells of the tables with a column of that name, row by row. */
const rowsOf = (html: string, column: string): string[][] =>
  html
    .split("<table>")
    .filter((table) => table.includes(`<th>${column}</th>`))
    .flatMap((table) => [...table.matchAll(/<tr>\n<td>(.*?)<\/tr>/gs)])
    .map(([, row = ""]) => row.split("<td>").map((cell) => unescaped(cell.replaceAll(/<[^>]*>/g, "")).trim()));

const commandsOf = (html: string): string =>
  [...html.matchAll(/<code class="language-sh">(.*?)<\/code>/gs)].map(([, code = ""]) => unescaped(code)).join("\n");

/** A newline after each answer keeps them apart. */
const CURL = 'curl() { command curl "$@"; echo; }';

/** Has the test's process run `npm run app`: to load the app takes more than a second each time. */
const NPM = `npm() {
  until [ "$1" = -- ]; do shift; done
  for arg; do shift; set -- "$@" --data-urlencode "=$arg"; done
  command curl -sf --data-urlencode "=\${DATA_DIR:-$PWD/.data}" "$@" "$APP"
}`;

/** Runs the app's command that a body names, behind the folder of its stack and `--`. */
const appServer = createServer(async (request, response) => {
  const [DATA_DIR, , ...args] = (await text(request))
    .split("&")
    .map((part) => decodeURIComponent(part.replaceAll("+", " ")));
  const { code, stdout } = await runApp(args, { env: { DATA_DIR } });
  response.writeHead(code === 0 ? 200 : 400).end(stdout);
});

/** In a folder like the project's, on the tests' stack. @param prelude shell commands that come first */
async function paste(commands: string, prelude = NPM): Promise<Json[]> {
  const folder = await mkdtemp(join(tmpdir(), "docs-"));
  const file = process.env["MAILKEEL_STACK"];
  assert.ok(file, "the stack of the tests runs");
  try {
    for (const name of await readdir(ROOT))
      if (!name.startsWith(".")) await symlink(join(ROOT, name), join(folder, name));
    await symlink(dirname(file), join(folder, ".data"));
    const { stdout } = await promisify(execFile)("sh", ["-eu", "-c", `${CURL}\n${prelude}\n${commands}`], {
      cwd: folder,
      env: { ...process.env, APP: `http://127.0.0.1:${(appServer.address() as AddressInfo).port}` },
      timeout: 120_000,
    });
    return stdout.split("\n").flatMap((line) => (line.startsWith("{") ? [JSON.parse(line)] : []));
  } finally {
    await rm(folder, { recursive: true });
  }
}

describe("The documentation", () => {
  before((done) => void appServer.listen(0, "127.0.0.1", done));
  after((done) => void appServer.close(done));

  it("has a page for every guide, each valid on its own: a title, one h1, the navigation, no id twice", async () => {
    for (const path of PAGES) {
      const html = await read(path);
      assert.match(html, /<html lang="en">/, path);
      assert.match(html, /<title>[^<]+<\/title>/, path);
      assert.equal(html.match(/<h1/g)?.length, 1, path);
      assert.match(html, /<a class="skip" href="#content">/, path);
      assert.equal(html.match(/aria-current="page"/g)?.length, 1, path);
      const ids = idsOf(html);
      assert.equal(new Set(ids).size, ids.length, `${path}: ${ids}`);
      assert.doesNotMatch(html, /undefined|NaN|\[object/, path);
      // That page is about them.
      if (path !== MERGE_TAGS_PAGE) assert.doesNotMatch(html, /\{\{ (?!first_name|list_name|fields\.city)|\{%/, path);
    }
  });

  it("links only to what exists: pages, anchors, assets and the document", async () => {
    const ids = new Map<string, string[]>();
    for (const path of PAGES) ids.set(path, idsOf(await read(path)));
    for (const from of PAGES) {
      for (const link of linksOf(await read(from))) {
        const { pathname, hash, protocol } = new URL(link, `${await origin()}${from}`);
        assert.match(protocol, /^https?:$/, link);
        const known = ids.get(pathname);
        if (known && hash) assert.ok(known.includes(hash.slice(1)), `${from} links to ${link}`);
        if (!known) assert.equal((await fetch(`${await origin()}${pathname}`)).status, 200, `${from} links to ${link}`);
      }
    }
  });

  it("lets no page run a script of its text, load from elsewhere or stand in another site's frame", async () => {
    for (const path of PAGES) {
      const policy = (await fetch(`${await origin()}${path}`)).headers.get("content-security-policy") ?? "";
      for (const part of ["default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"])
        assert.ok(policy.includes(part), `${path}: ${policy}`);
      assert.doesNotMatch(policy, /unsafe|https?:|\*/, path);
      assert.equal(policy.includes("script-src"), path === "/docs", path);
      const html = await read(path);
      assert.doesNotMatch(html, /<script(?![^>]* src=)|<style|\sstyle=|\son\w+=/, path);
      for (const link of linksOf(html.slice(0, html.indexOf("<body>")))) assert.match(link, /^\/docs\/assets\//);
    }
  });

  it("sends pages compressed and not again while they are the same, and assets to be kept for ever", async () => {
    const base = await origin();
    const page = await fetch(`${base}/docs/errors`);
    assert.equal(page.headers.get("cache-control"), "no-cache");
    assert.equal(page.headers.get("content-encoding"), "gzip");
    assert.equal(page.headers.get("vary"), "Accept-Encoding");
    const etag = page.headers.get("etag") ?? "";
    const again = await fetch(`${base}/docs/errors`, {
      headers: { "if-none-match": etag, "cache-control": "max-age=0" },
    });
    assert.deepEqual([again.status, await again.text()], [304, ""]);
    const uncompressed = await fetch(`${base}/docs/errors`, { headers: { "accept-encoding": "identity" } });
    assert.equal(uncompressed.headers.get("content-encoding"), null);
    assert.equal(await uncompressed.text(), await page.text());

    const assets = linksOf(await read("/docs")).filter((link) => link.startsWith("/docs/assets/"));
    assert.ok(assets.some((path) => path.endsWith("/swagger-ui-bundle.js")));
    for (const path of assets) {
      const { status, headers } = await fetch(`${base}${path}`);
      assert.equal(status, 200, path);
      assert.equal(headers.get("cache-control"), "public, max-age=31536000, immutable");
      assert.match(headers.get("content-type") ?? "", /^(text\/(css|javascript); charset=utf-8|image\/svg\+xml)$/);
      assert.equal(headers.get("x-content-type-options"), "nosniff");
    }
  });

  it("serves no other file", async () => {
    for (const path of ["assets/", "assets/site.css", "guides/errors.md", "nothing", "assets/..%2f..%2frouter.ts"])
      assert.equal((await fetch(`${await origin()}/docs/${path}`)).status, 404, path);
  });

  it("says of every error code its meaning, its remedy and whether to retry, at the code's anchor", async () => {
    const html = await read("/docs/errors");
    const sections = new Map(
      html.split(/(?=<h[23] )/).map((part) => [/ id="([^"]+)"/.exec(part)?.[1] ?? "", textOf(part)]),
    );
    for (const [code, { meaning, remedy, type }] of Object.entries(ERRORS)) {
      const section = sections.get(code) ?? assert.fail(`no section ${code}`);
      for (const sentence of [plain(meaning), plain(remedy), type])
        assert.ok(section.includes(sentence), `${code}: ${sentence}`);
      assert.match(section, /Retry with waits\.|Retry after the remedy\.|Do not retry unchanged\./, code);
    }
  });

  it("advises to repeat exactly the requests that the client repeats", () => {
    const repeated = Object.entries(ERRORS).filter(([, { retry }]) => retry === "as_is");
    assert.deepEqual(repeated.map(([code]) => code).sort(), [...REPEATABLE_CODES].sort());
    for (const [code, { retry, type }] of Object.entries(ERRORS)) {
      if (type === "invalid_request_error") assert.equal(retry, "never", code);
    }
  });

  it("lists every event with its record, and whether it carries an address", async () => {
    const html = await read("/docs/webhooks");
    for (const name of EVENT_NAMES) {
      const row = html.split("<tr>").find((each) => each.includes(`<td><code>${name}</code>`));
      const cells = [...(row ?? "").matchAll(/<td>(.*?)<\/td>/gs)].map(([, cell = ""]) => textOf(cell));
      const { objectType, contactData, description } = EVENTS[name];
      assert.deepEqual(cells, [name, objectType, contactData ? "yes" : "no", description]);
    }
  });

  it("shows the limits that are in force, also where a setting changes them", async () => {
    const { env } = await stack();
    const facts = factsOf({ ...env, MAX_LISTS: 7, WEBHOOK_LADDER_SECONDS: [0, 90, 3_600] }, BASE_PATH);
    assert.deepEqual(
      [facts.env.MAX_LISTS, facts.ladder.attempts, facts.ladder.waits, facts.ladder.total],
      [7, 3, "1 minute and 30 seconds and 1 hour", "1 hour and 1 minute and 30 seconds"],
    );
    const text = textOf(await read("/docs/limits"));
    for (const shown of [
      "1 to 100, 25 unless given",
      "2 MiB",
      `lists ${env.MAX_LISTS.toLocaleString("en")}`,
      "15 minutes, one use",
    ]) {
      assert.ok(text.includes(shown), shown);
    }
  });

  it("shows in Merge tags what each example prints, and names every merge tag and every filter", async () => {
    const html = await read(MERGE_TAGS_PAGE);
    const tags = rowsOf(html, "prints").map(([tag]) => tag);
    assert.deepEqual(
      tags,
      [...MERGE_TAGS, "fields.NAME"].map((tag) => `{{ ${tag} }}`),
    );
    for (const filter of ALLOWED_FILTERS) assert.ok(html.includes(`<code>${filter}</code>`), filter);
    const examples = rowsOf(html, "a reader gets");
    assert.ok(examples.length > 20);
    const link = '<a href="{{ unsubscribe_url }}">Leave</a>';
    const ada = {
      ...{ email: "ada+news@example.com", first_name: "Ada", last_name: "Lovelace", list_name: "News" },
      fields: { city: "Köln", orders: 12, vip: true, since: "2026-03-01" },
    };
    for (const [template = "", result = ""] of examples) {
      const shown = showMessage({ subject: "News", html: template + link }, ada).html;
      assert.equal(unescaped(shown.replace('<a href="">Leave</a>', "")), result, template);
      assert.deepEqual(checkContent({ subject: "", html: template }, [...Object.keys(ada.fields), "company"]), []);
    }
  });

  it("names in Merge tags what the refusal of a template names", async () => {
    const rows = rowsOf(await read(MERGE_TAGS_PAGE), "instead of");
    assert.ok(rows.length > 5);
    for (const [template = "", right = ""] of rows) {
      const [problem] = checkContent({ subject: "", html: template }, ["city"]);
      assert.ok(
        problem && describeProblem(problem).includes(right),
        `${template}: ${problem && describeProblem(problem)}`,
      );
    }
  });

  it("says at the address in their User-Agent what webhooks are, and shows the numbers that the code holds", async () => {
    const agent = userAgent(await origin());
    const [, page = ""] = /\(\+(.*)\)$/.exec(agent) ?? [];
    assert.equal(page, `${await origin()}/docs/webhooks`);
    const text = textOf(await read("/docs/webhooks"));
    assert.ok(text.includes(agent.split(" ")[0] ?? ""));
    for (const shown of [
      "At most 20, values printable ASCII of at most 1,000 characters, 8 KiB in all",
      "20 tests a minute per team",
      "read for 3 seconds at most, and 16 KiB of it",
      "up to 1 hour",
      "double up to 1 minute in the first hour and to 15 minutes later",
      "For 24 hours, or as many",
    ]) {
      assert.ok(text.includes(shown), shown);
    }
  });

  it("has commands in Getting started that work when they are pasted, and again", async () => {
    const commands = commandsOf(await read("/docs/getting-started"));
    for (let time = 1; time <= 2; time++) {
      const answers = await paste(commands);
      const seen = answers.map(
        ({ data, error, meta }) => error?.code ?? meta.impact?.object ?? (Array.isArray(data) ? "page" : data.object),
      );
      assert.deepEqual(seen, ["api_key", "not_found", "list_subscriber_batch", "page", "newsletter", "impact"]);
      assert.equal(answers[0].data.environment, "TEST");
      assert.equal(answers[3].data.length, 1);
    }
  });

  it("has commands in Your audience that do what it says, from the opt-in to the deletion", async () => {
    const answers = await paste(commandsOf(await read("/docs/audience")));
    const seen = answers.map(({ data, meta }) => data?.object ?? data?.[0]?.status ?? meta.impact.would_delete);
    assert.deepEqual(seen, [
      ...["list_subscriber_batch", "CONFIRMED", "list_subscriber", "list_subscriber_batch", "contact_batch"],
      ...["contact", 2, "subscriber"],
    ]);
    assert.equal(answers[2].data.status, "UNSUBSCRIBED");
    assert.equal(answers[3].data.opted_out.length, 1);
  });

  it("has commands in Sending safely that send", async () => {
    const answers = await paste(commandsOf(await read("/docs/sending")));
    const sent = answers.find(({ data }) => data?.object === "newsletter_send");
    assert.equal(sent?.data.status, "SCHEDULED", JSON.stringify(answers));
    assert.equal(sent?.data.recipients, 1);
  });

  it("has commands in Authentication that mint a key, meet its limits and rotate it", async () => {
    const answers = await paste(commandsOf(await read("/docs/authentication")));
    const seen = answers.map(({ data, error }) => error?.code ?? data.scopes ?? data.lists.length);
    const scopes = ["lists:read", "lists:write"];
    assert.deepEqual(seen, [scopes, "insufficient_scope", 1, scopes, "api_key_revoked"]);
  });

  it("names in Authentication the least role of each scope and every forbidden pair", async () => {
    const text = textOf(await read("/docs/authentication"));
    for (const shown of [
      "lists:read VIEWER",
      "lists:write EDITOR",
      "newsletters:send ADMIN",
      "suppressions:delete with newsletters:send",
      "suppressions:delete with campaigns:send",
    ])
      assert.ok(text.includes(shown), shown);
  });

  it("has commands in A campaign that lead from contacts to the figures", async () => {
    const [bulk, preview, send, campaign, figures] = await paste(commandsOf(await read("/docs/campaign")));
    assert.equal(bulk.data.results.length, 2);
    const { eligible } = preview.data.recipients;
    assert.ok(eligible > 0);
    const { sent } = figures.data.totals;
    assert.deepEqual([send.data.recipients, campaign.data.recipients.sent, sent], [eligible, eligible, eligible]);
  });

  it("has commands in Webhooks that register an endpoint and bring an example of each event", async () => {
    const receiver = await openReceiver();
    try {
      // The tests reach no host of the Internet, and the port may be another program's.
      const commands = commandsOf(await read("/docs/webhooks"))
        .replace("https://example.com", receiver.origin)
        .replace("http://localhost:4000", receiver.origin);
      const [created] = await paste(commands);
      assert.match(created.data.secret, /^whsec_/);
      assert.equal(receiver.received.length, EVENT_NAMES.length);
    } finally {
      await receiver.close();
    }
  });

  it("has commands in README.md that send, again too, and wherever DATA_DIR is", async () => {
    const readme = await readFile(join(ROOT, "README.md"), "utf8");
    const blocks = [...readme.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, code = ""]) => code);
    const byHand = blocks.find((code) => code.includes("call()"));
    assert.ok(byHand);
    const elsewhere = `export DATA_DIR=$(readlink .data); rm .data\n`;
    for (const prelude of [NPM, elsewhere]) {
      const answers = await paste(byHand, prelude);
      assert.equal(answers.at(-2)?.data.status, "SCHEDULED", JSON.stringify(answers));
      assert.equal(answers.at(-2)?.data.recipients, 1);
    }
  });

  it("asks for one version of Node, wherever it names it", async () => {
    const [manifest, launcher, readme] = await Promise.all(
      ["package.json", "stack/launch.mjs", "README.md"].map((name) => readFile(join(ROOT, name), "utf8")),
    );
    const asked = /^>=(\d+)$/.exec(JSON.parse(manifest ?? "").engines.node)?.[1];
    assert.equal(/major < (\d+)/.exec(launcher ?? "")?.[1], asked);
    assert.equal(/Node\.js (\d+) or newer/.exec(readme ?? "")?.[1], asked);
  });
});
