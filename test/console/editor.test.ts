import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { buildConsole } from "../../console/build.ts";
import { assertAccessible, enter, openBrowser, violationsOf } from "../support/browser.ts";
import { consoleClient, signIn } from "../support/console.ts";
import { eventually } from "../support/eventually.ts";
import { makeMember } from "../support/factories.ts";
import { uniquePng } from "../support/images.ts";
import { testsOf } from "../support/long.ts";
import { makeSender, type Sender } from "../support/sending.ts";
import { makeSequence, step } from "../support/sequences.ts";
import { stack } from "../support/stack.ts";

const text = (page: Page) => page.getByRole("textbox", { name: "Text of the email" });
const html = (page: Page) => page.getByRole("textbox", { name: "HTML", exact: true });
const button = (page: Page, name: string) => page.getByRole("button", { name, exact: true });
const type = (page: Page, words: string) => page.keyboard.type(words);
const press = async (page: Page, ...keys: string[]) => {
  for (const key of keys) await page.keyboard.press(key);
};
const focused = (page: Page, selector: string) => page.locator(`${selector}:focus`).waitFor();

/** A link of a text, by keyboard. */
async function typeLink(page: Page, href: string, words: string) {
  await press(page, "Control+k");
  await focused(page, ".dialog input[name=href]");
  await type(page, href);
  await press(page, "Tab");
  await type(page, words);
  await press(page, "Enter");
  await focused(page, ".ProseMirror");
  assert.equal(await page.getByText("Link saved").count(), 0);
}

/** Chooses a block of the menu, by keyboard. */
async function typeBlock(page: Page, name: string) {
  await type(page, `/${name}`);
  await page.getByRole("option", { name, selected: true }).waitFor();
  await press(page, "Enter");
}

/** As a program puts it onto the clipboard. */
const paste = (page: Page, copied: string) =>
  page.evaluate(`{
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/html", ${JSON.stringify(copied)});
    const event = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
    document.activeElement.dispatchEvent(event);
  }`);

/** Pastes a file at the cursor, or drops it at the end of the text; a paste may bring a text, too. */
const give = (page: Page, event: "paste" | "drop", picture: Buffer, copied = "", at = ".ProseMirror > :last-child") =>
  page.evaluate(`{
    const data = new DataTransfer();
    const bytes = Uint8Array.from(atob("${picture.toString("base64")}"), (one) => one.charCodeAt(0));
    data.items.add(new File([bytes], "${event}.png", { type: "image/png" }));
    data.setData("text/html", ${JSON.stringify(copied)});
    const { left, bottom } = document.querySelector("${at}").getBoundingClientRect();
    const common = { bubbles: true, cancelable: true };
    document.querySelector("${at}").dispatchEvent(${
      event === "paste"
        ? `new ClipboardEvent("paste", { ...common, clipboardData: data })`
        : `new DragEvent("drop", { ...common, dataTransfer: data, clientX: left + 5, clientY: bottom - 5 })`
    });
  }`);

const words = (...content: object[]) => ({ type: "paragraph", content });
const word = (text: string, ...marks: object[]) => ({ type: "text", text, ...(marks.length > 0 && { marks }) });
const linkTo = (href: string) => ({ type: "link", attrs: { href } });

const { it, longIt } = testsOf();

describe("The editor of a draft", function () {
  this.timeout(120_000);
  let sender: Sender;
  before(async () => {
    await buildConsole();
    sender = await makeSender({ recipients: 0 });
  });
  // The save of a second editor is refused, as is a template that is not written to its end, and one save without a connection.
  const inPage = openBrowser(/status of (400|409|422|503)/);

  /** Opens a new draft. @param body its HTML; none begins as blocks */
  async function open(page: Page, body?: string, view = "") {
    const { origin } = await stack();
    const { owner, team } = sender;
    const { api, app } = await consoleClient(await enter(page, owner.id), team.id);
    const { data } = await api.newsletters.drafts.create.mutate({ body: { name: "News", body } });
    const one = { type: "newsletter", id: data.id } as const;
    await page.goto(`${origin}/console/${team.id}/live/newsletters/${data.id}${view}`);
    const read = async () => (await app.content.document.query({ query: one })).data;
    /** Once the page has saved. */
    const saved = async () => {
      await page.getByText(/^Saved \d/).waitFor();
      return read();
    };
    return { api, app, one, read, saved };
  }

  it("writes a newsletter of blocks by keyboard alone, and shows it again as it was, as axe asks for", async () => {
    await inPage({}, async (page) => {
      // Its images are of another service.
      const { read, saved } = await open(page, undefined, "?view=text");
      await text(page).focus();
      await typeBlock(page, "Heading 1");
      await type(page, "December");
      await press(page, "Enter");
      await type(page, "Dear {{first");
      await page.getByRole("option", { name: "First name", selected: true }).waitFor();
      await press(page, "Enter");
      await focused(page, "input[name=block-fallback]");
      await type(page, "reader");
      await press(page, "Enter");
      await focused(page, ".ProseMirror");
      await type(page, ", ");
      await type(page, "{{ last_name }} read ");
      await typeLink(page, "example.com/a", "the report");
      await type(page, " or ");
      await typeLink(page, "mailto:ada@example.com", "write");
      await press(page, "Enter");
      await typeBlock(page, "Image");
      await focused(page, "input[name=block-src]");
      await type(page, "https://example.com/a.png");
      await press(page, "Tab");
      await type(page, "A cat");
      await press(page, "Escape");
      await focused(page, ".ProseMirror");
      await press(page, "ArrowRight", "Enter");
      await typeBlock(page, "Button");
      await focused(page, "input[name=block-label]");
      await press(page, "Control+a");
      await type(page, "Read");
      await press(page, "Tab");
      await type(page, "https://example.com/b");
      await press(page, "Escape");
      await focused(page, ".ProseMirror");
      // Over the image, and back over it by "undo" and "redo".
      await press(page, "Alt+ArrowUp", "Control+z", "Control+Shift+z");
      // The image is selected.
      await press(page, "Alt+F10", "ArrowLeft", "Enter");
      await focused(page, "[role=menuitem]");
      await press(page, "d", "Enter");
      await focused(page, ".ProseMirror");
      await page.getByLabel("Preheader", { exact: true }).fill("All of ");
      await page.getByLabel("Personalise: Preheader").selectOption("First name");
      await type(page, "you");
      const { blocks, preheader, body } = await saved();
      assert.deepEqual(blocks, {
        type: "doc",
        content: [
          { type: "heading", attrs: { level: 1 }, content: [word("December")] },
          words(
            word("Dear "),
            { type: "mergeTag", attrs: { name: "first_name", fallback: "reader" } },
            word(", "),
            { type: "mergeTag", attrs: { name: "last_name" } },
            word(" read "),
            word("the report", linkTo("https://example.com/a")),
            word(" or "),
            word("write", linkTo("mailto:ada@example.com")),
          ),
          { type: "button", attrs: { label: "Read", href: "https://example.com/b" } },
          { type: "image", attrs: { src: "https://example.com/a.png", alt: "A cat" } },
          { type: "image", attrs: { src: "https://example.com/a.png", alt: "A cat" } },
        ],
      });
      assert.equal(preheader, 'All of {{ first_name | default: "you" }}');
      assert.match(body ?? "", /Dear \{\{ first_name \| default: "reader" \}\}/);

      await page.reload();
      await page.getByText("First name, or “reader”").waitFor();
      await text(page).focus();
      await press(page, "Control+End");
      await page.getByText("Saved").waitFor();
      assert.deepEqual((await read()).blocks, blocks);
      await page.locator(".ProseMirror [data-block=image]").first().click();
      await page.getByLabel("Alternative text").waitFor();
      await assertAccessible(page);
    });
  });

  longIt("makes, moves and removes every block by mouse", async () => {
    await inPage({ viewport: { width: 1_440, height: 1_200 } }, async (page) => {
      const { saved, read } = await open(page);
      await text(page).click();
      await type(page, "First");
      const names = ["Divider", "Space", "Two columns", "Social links", "HTML"];
      for (const name of names) {
        await button(page, "Insert").click();
        await page.getByRole("option", { name, exact: true }).click();
        if (name === "Two columns") await type(page, "In a column");
        if (name === "Two columns") await page.locator(".ProseMirror [data-block=divider]").click();
        if (name === "Social links") await page.getByLabel("Mastodon").fill("https://example.social/@ada");
        if (name === "HTML") await page.locator("textarea[name=block-html]").fill("<b>Own</b>");
      }
      type Blocks = { content: { type: string }[] };
      const types = async () => {
        await saved();
        return ((await read()).blocks as Blocks).content.map((one) => one.type);
      };
      assert.deepEqual(await types(), ["paragraph", "divider", "socialLinks", "html", "spacer", "columns"]);
      await text(page).getByText("First").click();
      await page.locator(".ProseMirror [data-block=html]").hover();
      const handle = page.getByRole("button", { name: /^Select this block/ });
      await handle.dragTo(page.locator(".ProseMirror > p").first(), { targetPosition: { x: 20, y: 1 } });
      await page
        .locator(".ProseMirror > [data-block=html]:first-child, .ProseMirror > :nth-child(2)[data-block=html]")
        .waitFor();
      await page.locator(".ProseMirror [data-block=spacer]").click();
      for (const name of ["Move the block down", "Remove the block"]) {
        await button(page, "More actions: text and block").click();
        await page.getByRole("menuitem", { name }).click();
      }
      const rest = (await types()).filter((one) => one !== "html");
      assert.deepEqual(rest, ["paragraph", "divider", "socialLinks", "columns"]);
      await button(page, "Undo").click();
      assert.ok((await types()).includes("spacer"));

      await button(page, "More actions").click();
      await page.getByRole("menuitem", { name: "Duplicate" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Duplicate" }).click();
      await page.getByRole("heading", { name: "Copy of News" }).waitFor();
      await text(page).getByText("In a column").waitFor();
    });
  });

  it("takes texts of Word and Google Docs without what these put around them", async () => {
    await inPage({}, async (page) => {
      const { read } = await open(page);
      await text(page).click();
      for (const file of ["word", "google-docs"]) {
        await press(page, "Control+a", "Delete");
        await paste(page, readFileSync(`${import.meta.dirname}/../data/paste/${file}.html`, "utf8"));
        const item = (one: string) => ({ type: "listItem", content: [words(word(one))] });
        const expected = {
          type: "doc",
          content: [
            { type: "heading", attrs: { level: 1 }, content: [word("The December issue")] },
            words(
              word("Dear readers, "),
              word("winter", { type: "bold" }),
              word(" is "),
              word("here", { type: "italic" }),
              word(". Read "),
              word("the report", linkTo("https://example.com/winter?a=1&b=2")),
              word("."),
            ),
            { type: "bulletList", content: [item("Snow"), item("Ice")] },
            ...(file === "word" ? [{ type: "orderedList", content: [item("Pack")] }] : []),
          ],
        };
        const isSaved = async () => {
          assert.deepEqual((await read()).blocks, expected);
          return true;
        };
        await eventually(isSaved, { what: `the text of ${file}` });
      }
    });
  });

  /** The HTML in which the editor shows what is pasted into an empty text, or over one that is selected. */
  async function shownOf(page: Page, copied: string, selected = "") {
    await text(page).focus();
    await press(page, "Control+a", "Delete");
    await type(page, selected);
    if (selected) await press(page, "Control+a");
    await paste(page, copied);
    const shown = await text(page).innerHTML();
    return shown.replaceAll(/ (target|rel)="[^"]*"/g, "");
  }

  it("keeps the addresses and the words of a text that is pasted", async () => {
    await inPage({}, async (page) => {
      await open(page, undefined, "?view=text");
      const link = (href: string, words: string) => `<a href="${href}">${words}</a>`;
      const own = link("https://recast.ai/?ref=news", "Recast.AI");
      assert.equal(await shownOf(page, `<p>By ${own} now</p>`), `<p>By ${own} now</p>`);
      assert.equal(await shownOf(page, own, "Selected"), `<p>${own}</p>`);
      const address = "https://example.com/x";
      assert.equal(await shownOf(page, address, "Selected"), `<p>${link(address, "Selected")}</p>`);
      assert.equal(await shownOf(page, "<p>example.com</p>"), `<p>${link("https://example.com", "example.com")}</p>`);
      const mended = [
        [" https://example.com/a b?c={d} ", "https://example.com/a%20b?c={d}"],
        ["mailto:anna@example.com?subject=Hi you", "mailto:anna@example.com?subject=Hi%20you"],
        [
          `https://www.google.com/url?sa=D&url=${encodeURIComponent("https://example.com/a b")}`,
          "https://example.com/a%20b",
        ],
        ["https://example.com/?a={{ frist_name }}", "https://example.com/?a={{ frist_name }}"],
      ] as const;
      for (const [href, to] of mended) assert.equal(await shownOf(page, link(href, "x")), `<p>${link(to, "x")}</p>`);
      const refused = [
        `https://example.com/${"x".repeat(2_000)}`,
        "https://example.com/{{ email | upcase }}",
        "#_Toc1",
      ];
      for (const href of refused) assert.equal(await shownOf(page, `<p>${link(href, "x")}</p>`), "<p>x</p>", href);
      const image = `<img src="https://example.com/a.png">`;
      assert.match(
        await shownOf(page, link("https://example.com/a b", image)),
        /href&quot;:&quot;https:\/\/example.com\/a%20b&quot;/,
      );
      assert.match(await shownOf(page, link("#top", image)), /href&quot;:null/);
      const lines =
        "<!--StartFragment--><span>NEWS</span><br><span>MARCH <b>2016</b></span><br>Dear<br><p>Two</p><br><p>Three</p>";
      const shown = "<p>NEWS<br>MARCH <strong>2016</strong><br>Dear</p><p>Two</p><p>Three</p>";
      assert.equal(await shownOf(page, lines), shown);
      const tag = `<span data-block="mergeTag" data-values='{"name":"email"}'></span>`;
      assert.match(await shownOf(page, `Dear<br>${tag}`), /^<p>Dear<br>.*<span data-block="mergeTag"/);
      const typed = "*|LIST:COMPANY|* and _under_ and **two**";
      assert.equal(await shownOf(page, `<p>${typed}</p>`), `<p>${typed}</p>`);
    });
  });

  it("pastes a table as lines of its short texts, or as the blocks of its cells", async () => {
    await inPage({}, async (page) => {
      await open(page, undefined, "?view=text");
      const row = (...cells: string[]) => `<tr>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;
      const rows = [
        row("Website <b>hosting</b>", "$12.00"),
        row("<p>Domain</p>", "\n<div><p>$14.00</p></div>", "&nbsp;"),
      ];
      const lines = "<p>Website <strong>hosting</strong> – $12.00</p><p>Domain – $14.00</p>";
      const table = `<table><caption>Receipt</caption><thead><tr><th>Item</th><th>Price</th></tr></thead>${rows.join("")}</table>`;
      assert.equal(await shownOf(page, table), `<p>Receipt</p><p>Item – Price</p>${lines}`);
      const long = "A text of a column, which is longer than any that stands in one line with others.";
      const layout = `<table>${row(`<table>${rows[0]}${row('<p align="center">Small</p>')}</table>`)}${row(long, "<h2>News</h2><p>Two</p>")}${row("Left", long)}</table>`;
      const blocks = `<p>${long}</p><h2>News</h2><p>Two</p><p>Left</p><p>${long}</p>`;
      assert.equal(
        await shownOf(page, layout),
        `${lines.replace(/(?<=<\/p>).*/, "")}<p style="text-align: center;">Small</p>${blocks}`,
      );
      const sheet = `<table>${row("", "2024", "2025")}${row("", " ", "<p>&nbsp;</p>")}${row("Sold", "", "7")}${row("Lost", "1", "")}</table>`;
      assert.equal(await shownOf(page, sheet), "<p>- – 2024 – 2025</p><p>Sold – - – 7</p><p>Lost – 1</p>");
    });
  });

  it("pastes the text alone of over 10,000 elements, and waits for no style that does not end", async () => {
    await inPage({}, async (page) => {
      await open(page, undefined, "?view=text");
      const many = "<i></i>".repeat(10_000);
      const copied = `<h1>A &lt;b&gt;</h1><table><tr><td>B\nb</td><td><b>C</b></td></tr></table>D<br>E${many}`;
      assert.equal(await shownOf(page, copied), "<p>A &lt;b&gt;</p><p>B b C</p><p>D</p><p>E</p>");
      const began = performance.now();
      const shown = await shownOf(page, `<p>Text</p>${"<![if ".repeat(60_000)}${"<style ".repeat(60_000)}`);
      assert.equal(shown, "<p>Text</p>");
      const ms = performance.now() - began;
      assert.ok(ms < 8_000, `${ms} ms`);
    });
  });

  it("saves a merge tag that there is not, and shows so in its settings", async () => {
    await inPage({}, async (page) => {
      const { saved } = await open(page, undefined, "?view=text");
      await shownOf(page, "<p>Welcome, {{ name }}</p>");
      const tag = { type: "mergeTag", attrs: { name: "name" } };
      assert.deepEqual((await saved()).blocks, { type: "doc", content: [words(word("Welcome, "), tag)] });
      await page.locator(".ProseMirror .chip").click();
      const shows = page.getByLabel("Shows");
      assert.equal(await shows.locator(":checked").textContent(), "Name (unknown in this email)");
      await shows.selectOption("First name");
      await page.locator(".ProseMirror .chip", { hasText: "First name" }).waitFor();
      assert.equal(await shows.getByText("unknown").count(), 0);
    });
  });

  it("keeps the list of merge tags small beside its field, also with many custom fields", async () => {
    const { owner, team, newsletterId } = await makeSender({ recipients: 0 });
    await inPage({}, async (page) => {
      const { app } = await consoleClient(await enter(page, owner.id), team.id);
      for (let i = 1; i <= 9; i++)
        await app.audience.createField.mutate({ body: { name: `field_${i}`, type: "text" } });
      await page.goto(`${(await stack()).origin}/console/${team.id}/live/newsletters/${newsletterId}`);
      const list = page.getByLabel("Personalise: Subject");
      await list.selectOption("Field 9");
      assert.match(await page.getByLabel("Subject", { exact: true }).inputValue(), /\{\{ fields\.field_9 /);
      const [small, field] = await Promise.all([list, page.locator(".tagged").first()].map((one) => one.boundingBox()));
      assert.ok(small && field && small.width < 60 && small.y - field.y < 8, JSON.stringify([small, field]));
    });
  });

  it("checks a link before its dialog closes, and completes that of a button once the writer leaves it", async () => {
    await inPage({}, async (page) => {
      const { saved } = await open(page, undefined, "?view=text");
      await text(page).focus();
      await press(page, "Control+k");
      const dialog = page.getByRole("dialog", { name: "Link" });
      await dialog.getByLabel("Text").fill("Anna");
      const address = dialog.getByLabel("Address");
      assert.ok(await address.locator("xpath=..").locator("option[value='{{ unsubscribe_url }}']").count());
      for (const href of ["{{ web_version_url }}", "htmlemail"]) {
        await address.fill(href);
        await press(page, "Enter");
        await dialog.locator(".field .wrong", { hasText: "or be one merge tag" }).waitFor();
      }
      await address.fill("anna@example.com");
      await press(page, "Enter");
      await focused(page, ".ProseMirror");
      await press(page, "Enter");
      await typeBlock(page, "Button");
      const link = page.getByLabel("Link", { exact: true }).and(page.locator("input"));
      await link.fill("nowhere");
      await press(page, "Tab");
      const refusal = page.locator(".panel").getByText("or be one merge tag");
      await refusal.waitFor();
      await link.fill("example.com/a");
      await refusal.waitFor({ state: "detached" });
      await press(page, "Enter");
      await focused(page, ".ProseMirror");
      await type(page, "Below");
      const content = [
        words(word("Anna", linkTo("mailto:anna@example.com"))),
        { type: "button", attrs: { label: "Read more", href: "https://example.com/a" } },
        words(word("Below")),
      ];
      assert.deepEqual((await saved()).blocks, { type: "doc", content });
    });
  });

  it("uploads an image that is pasted or dropped, shows it, asks for its text, and has the cursor below it", async () => {
    await inPage({ viewport: { width: 1_440, height: 900 } }, async (page) => {
      const { app, saved } = await open(page);
      await text(page).click();
      await type(page, "Our cats");
      await give(page, "paste", uniquePng(), "<p> and a picture of this text</p>");
      for (const event of ["paste", "drop"] as const) {
        await give(page, event, uniquePng());
        await page.locator("input[name=block-alt][value='']").waitFor();
        await focused(page, ".ProseMirror");
        await type(page, `Below ${event}`);
        await page.locator(".ProseMirror > [data-block=image] + p", { hasText: `Below ${event}` }).waitFor();
        await page.locator(".ProseMirror [data-block=image]").last().click();
        await page.getByLabel("Alternative text").fill(`A cat by ${event}`);
        await press(page, "Enter");
        await focused(page, ".ProseMirror");
      }
      const shown = page.locator(".ProseMirror img");
      await eventually(async () => (await shown.count()) === 2, { what: "two images" });
      const replaced = await shown.last().getAttribute("src");
      // Elsewhere on it: it is no second half of a double click.
      await page
        .locator(".ProseMirror [data-block=image]")
        .last()
        .click({ position: { x: 40, y: 12 } });
      await give(page, "drop", uniquePng(), "", ".ProseMirror > [data-block=image]:last-of-type");
      await eventually(async () => (await shown.last().getAttribute("src")) !== replaced, { what: "another image" });
      assert.equal(await page.locator("[name=block-src]").count(), 0);
      const drawn = () =>
        shown.evaluateAll((all) => (all as { naturalWidth?: number }[]).every((one) => one.naturalWidth));
      await eventually(drawn, { what: "images that the page has loaded" });
      const { blocks } = await saved();
      const { images } = (await app.images.list.query({ query: {} })).data;
      const imageOf = (event: string) => {
        const { url, width } = images.find(({ name }) => name === `${event}.png`) ?? {};
        return { type: "image", attrs: { src: url, alt: `A cat by ${event}`, width } };
      };
      const { content } = blocks as { content: { type: string }[] };
      assert.deepEqual(
        content.filter((one) => one.type === "image"),
        [imageOf("paste"), imageOf("drop")],
      );
      await page.locator(".ProseMirror [data-block=image]").first().click();
      const [words_, values] = await Promise.all([".paper", ".panel"].map((one) => page.locator(one).boundingBox()));
      assert.ok(words_ && values && values.x >= words_.x + words_.width, "the values stand beside the text");
      const mail = await page.locator("[aria-label='The email, to scroll']").boundingBox();
      assert.ok(mail && values.y + values.height <= mail.y, "and above the preview");
      const low = page.locator(".ProseMirror [data-block=image]").last();
      await low.evaluate((image: { scrollIntoView(): void }) => image.scrollIntoView());
      await low.click();
      const shownAt = (await page.locator(".panel").boundingBox())?.y ?? -1;
      assert.ok(shownAt >= -1, `the values of a block at the end are not above the window, but at ${shownAt}`);
      await page.locator(".ProseMirror [data-block=image]").first().click();
      const tools = page.getByRole("toolbar");
      assert.ok((await tools.evaluate((one) => one.scrollWidth - one.clientWidth)) <= 0, "no tool is cut off");
      await button(page, "Insert").click();
      await page.getByRole("group", { name: "Layout" }).getByRole("option", { name: "Two columns" }).waitFor();
      await press(page, "Escape");
      await button(page, "Choose an image").click();
      await page.getByRole("dialog").getByRole("button", { name: "drop.png", exact: true }).first().click();
      await focused(page, ".ProseMirror");
      const picked = { ...imageOf("drop"), attrs: { ...imageOf("drop").attrs, alt: "A cat by paste" } };
      const again = (await saved()).blocks as typeof blocks & { content: { type: string }[] };
      assert.deepEqual(again.content.filter((one) => one.type === "image")[0], picked);
      await page.locator(".ProseMirror [data-block=image]").last().click();
      await press(page, "ArrowRight", "Control+b");
      await type(page, "Bold");
      await page.locator(".ProseMirror > [data-block=image] + p > strong", { hasText: "Bold" }).waitFor();
      await page.locator(".ProseMirror [data-block=image]").last().dblclick();
      await type(page, "Below");
      await page.locator(".ProseMirror > [data-block=image] + p", { hasText: /^Below$/ }).waitFor();
      assert.equal(await shown.count(), 2);
    });
  });

  it("says before a send what could be better in the mail, and saves it again in a brand that was changed", async () => {
    await inPage({}, async (page) => {
      const { app, one, read } = await open(page);
      const content = [
        words(word("Read", linkTo("http://example.com"))),
        ...["Dear [name of reader]", "See [the place]"].map((text) => words(word(text))),
      ];
      const blocks = { type: "doc" as const, content } as never;
      await app.content.saveBlocks.mutate({ body: { ...one, blocks, preheader: null } });
      await page.reload();
      const list = page.getByRole("list", { name: "Suggestions" });
      const unfinished = page.getByRole("list", { name: "Fix before sending" });
      const found = async (isWithoutAddress: boolean) => {
        await list.getByText("with http:").waitFor();
        await unfinished.getByText("square brackets").waitFor();
        assert.equal(await list.getByText("no postal address").count(), Number(isWithoutAddress));
      };
      const asked: string[] = [];
      page.on("request", (request) => /content\.links/.test(request.url()) && asked.push(request.url()));
      await page.getByRole("link", { name: "Review and send" }).press("Enter");
      await found(true);
      await focused(page, "[aria-label='Send'] [role=status]");
      // Each press shows the next place, in the preview, too.
      const frame = page.frames().find((one) => /preview/.test(one.url()));
      for (const [text, place] of [
        ["Dear [name of reader]", "#b1"],
        ["See [the place]", "#b2"],
        ["Dear [name of reader]", "#b1"],
      ]) {
        await unfinished.getByRole("button", { name: /^Show it: .*square brackets/ }).click();
        const isShown = async () => (await page.evaluate("getSelection().toString()")) === text;
        await eventually(isShown, { what: `the selection of “${text}”` });
        await eventually(async () => frame?.url().endsWith(`${place}`) ?? false, { what: `the preview at ${place}` });
      }
      await button(page, "More actions").click();
      await page.getByRole("menuitem", { name: "Save as template" }).click();
      await button(page, "Save template").click();
      await page.getByRole("dialog").waitFor({ state: "detached" });
      const again = page.waitForRequest(/content\.links/);
      await button(page, "Check links").press("Enter");
      await again;
      assert.equal(asked.length, 2, "a change asks the servers of the links no more");
      await list.getByRole("link", { name: "Brand" }).click();
      await page.getByLabel("Postal address").fill("1 High Street\nLondon");
      await page.getByLabel("Accent colour").fill("#ffeb3b");
      await page.locator(".sample").getByText("1 High Street").waitFor();
      await button(page, "Save").click();
      await page.getByText("Saved", { exact: true }).waitFor();
      await page.goBack();
      const apply = button(page, "Use the brand's present colours");
      await apply.waitFor();
      await button(page, "Check the send").click();
      await page.getByRole("region", { name: "Send" }).locator(apply).click();
      await page.getByText("The brand has changed").first().waitFor({ state: "detached" });
      assert.match((await read()).body ?? "", /content="en #ffeb3b #ffffff sans"/);
      await button(page, "Check the send").click();
      await found(false);
      await app.team.changeBrand.mutate({ body: { postal_address: null } });
    });
  });

  it("brings the values of a block into view when it shows or inserts one, and adds nothing between two blocks", async () => {
    await inPage({ viewport: { width: 1_440, height: 900 } }, async (page) => {
      const { app, one, read, saved } = await open(page, undefined, "?view=text");
      await text(page).waitFor();
      const hint = "getComputedStyle(document.querySelector('.ProseMirror > p'), '::before').content";
      assert.equal(await page.evaluate(hint), '"Write, or type /"');
      const lines = Array.from({ length: 30 }, () => words(word("A line of the newsletter.")));
      const image = { type: "image", attrs: { src: "https://example.com/a.png" } };
      const link = { type: "button", attrs: { label: "Read", href: "https://example.com/b" } };
      const content = [...lines, image, link];
      await app.content.saveBlocks.mutate({
        body: { ...one, blocks: { type: "doc", content } as never, preheader: null },
      });
      await page.reload();
      await button(page, "Check the send").click();
      await page.getByRole("button", { name: /^Show it: .*image/ }).click();
      await focused(page, "input[name=block-alt]");
      await page.getByLabel("Preview as").waitFor();
      assert.equal(await page.getByRole("region", { name: "Preview" }).getByRole("status").count(), 0);
      await page.getByLabel("Other people: address or name").fill("absent@");
      await page.getByLabel("Other people: address or name").press("Enter");
      await page.getByText("No matches.").waitFor();
      await page.getByLabel("Other people: address or name").fill("");
      await page.getByLabel("Other people: address or name").press("Enter");
      await page.locator("input[name=block-alt]").focus();
      const alt = await page.locator("input[name=block-alt]").boundingBox();
      assert.ok(alt && alt.y >= 0 && alt.y + alt.height <= 900, `${alt?.y}`);
      await type(page, "A cat");
      await press(page, "Enter");
      await focused(page, ".ProseMirror");
      await eventually(async () => JSON.stringify((await read()).blocks).includes("A cat"), { what: "the text" });
      assert.equal(((await read()).blocks as { content: unknown[] }).content.length, content.length);

      await page.locator(".ProseMirror > p").nth(12).click();
      await saved();
      const top = () => page.evaluate<number>("scrollY");
      const before = await top();
      await type(page, "{{first");
      await press(page, "Enter");
      await focused(page, "input[name=block-fallback]");
      assert.equal(await top(), before);
    });
  });

  it("writes HTML without another byte than those that were typed, as axe asks for, and shows a refusal at its line", async () => {
    await inPage({}, async (page) => {
      const write = async (original: string) => {
        const { saved } = await open(page, original);
        await html(page).focus();
        await press(page, "Control+End");
        await type(page, "<!-- end -->");
        const { body, blocks } = await saved();
        assert.equal(body, `${original}<!-- end -->`);
        assert.equal(blocks, null);
        return saved;
      };
      await write("\ufeff<p>One</p>  \r\n\t<p>Two</p>\r\n");
      const saved = await write("<p>One</p>\r\n<p style='color: red'>Two</p>\n\n<p>\u00a0Three</p>\r");
      await assertAccessible(page);
      await press(page, "Control+Home");
      await type(page, "{{{{ first_n");
      await page.getByRole("alert").waitFor();
      await page.locator(".cm-lint-marker-error").waitFor();
      await press(page, "Control+a");
      await type(page, "x");
      assert.equal((await saved()).body, "x");
    });
  });

  it("keeps the cursor and a selected block between the tools and the values, which move no text, on a phone", async () => {
    await inPage({ viewport: { width: 390, height: 844 } }, async (page) => {
      const { app, one } = await open(page, undefined, "?view=text");
      const paragraphs = Array.from({ length: 12 }, () =>
        words(word("Words that fill more than one line of a phone.")),
      );
      const area = {
        type: "columns",
        attrs: { background: "#f3f4f6" },
        content: [{ type: "column", content: paragraphs.slice(0, 1) }],
      };
      const blocks = {
        type: "doc" as const,
        content: [area, ...paragraphs, { type: "spacer", attrs: { height: 24 } }, ...paragraphs],
      };
      await app.content.saveBlocks.mutate({ body: { ...one, preheader: null, blocks: blocks as never } });
      await page.reload();
      await page.locator(".ProseMirror p").last().click();
      const seen = new Set<string>();
      for (let i = 0; i < 30; i++) {
        await press(page, "ArrowUp");
        // Once the page is laid out.
        const place =
          await page.evaluate(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
          const { focusNode, focusOffset } = getSelection();
          const node = document.querySelector(".ProseMirror-selectednode");
          const range = document.createRange();
          if (!node) range.setStart(focusNode, focusOffset);
          const { top, bottom } = (node ?? range).getBoundingClientRect();
          const sides = [".tools", ".dock"].map((name) => document.querySelector(name).getBoundingClientRect());
          done([node ? "block" : "cursor", top >= sides[0].bottom && bottom <= sides[1].top]);
        })))`);
        seen.add(String(place));
      }
      assert.deepEqual([...seen].sort(), ["block,true", "cursor,true"]);
      const inArea = page.locator("[data-column] p");
      await page.locator(".ProseMirror > p").first().click();
      const before = await inArea.boundingBox();
      await inArea.click();
      await page.getByRole("group", { name: "Area" }).getByLabel("Background").waitFor();
      assert.deepEqual(await inArea.boundingBox(), before);

      await button(page, "Insert").click();
      const menu = await page.getByRole("listbox", { name: "Blocks" }).boundingBox();
      const end = (menu?.y ?? 0) + (menu?.height ?? 0);
      assert.ok(menu && menu.y >= 0 && end <= 844, `the menu ends at ${end}`);
      const shown = `document.elementFromPoint(${menu.x + 20}, ${end - 4}).closest("[role=listbox]") !== null`;
      assert.ok(await page.evaluate(shown), "the menu lies on the values");
      await press(page, "Escape");
      await button(page, "Close the settings").click();
      await page.getByRole("group", { name: "Area" }).waitFor({ state: "detached" });
      await focused(page, ".ProseMirror");
    });
  });

  it("keeps the cursor in columns, selects their row, aligns, and saves while the writer types", async () => {
    await inPage({}, async (page) => {
      const { app, one, read, saved } = await open(page, undefined, "?view=text");
      const blocks = {
        type: "doc",
        content: [{ type: "image", attrs: { src: "https://example.com/a.png" } }, words()],
      };
      await app.content.saveBlocks.mutate({ body: { ...one, preheader: null, blocks: blocks as never } });
      await page.reload();
      await page.locator(".ProseMirror [data-block=image]").waitFor();
      assert.equal(await page.locator(".ProseMirror-selectednode").count(), 0);

      await text(page).focus();
      await typeBlock(page, "Three columns");
      await page.getByLabel("Background").fill("#ffff00");
      const cells = page.locator("[data-column]");
      await cells.first().click();
      await type(page, "a");
      await press(page, "Control+d");
      assert.deepEqual(await cells.allTextContents(), ["aa", "", ""]);
      await cells.first().locator("p").first().hover();
      const handle = page.getByRole("button", { name: /^Select this block/ });
      await handle.click();
      await press(page, "Control+d");
      assert.equal(await cells.count(), 6);
      // The copy is selected, so that this press goes in.
      await handle.click();
      await page.locator("[data-column] > p.ProseMirror-selectednode").first().waitFor();

      await cells.last().click();
      // The browser tells the editor of another selection after the press.
      await page.locator(".ProseMirror-selectednode").waitFor({ state: "detached" });
      await press(page, "Control+b");
      await type(page, "b");
      await press(page, "Control+b", "Control+Shift+e");
      await type(page, "c");
      const style = "text-align: center;";
      assert.equal(await cells.last().innerHTML(), `<p style="${style}"><strong>b</strong>c</p>`);

      // Another style keeps the alignment.
      for (const [name, element] of [
        ["Heading 2", "h2"],
        ["Text", "p"],
        ["Quote", "blockquote > p"],
      ] as const) {
        await page.getByLabel("Style", { exact: true }).selectOption(name);
        await cells.last().locator(`${element}[style="${style}"]`, { hasText: "bc" }).waitFor();
      }

      // Before the image, where no text is yet.
      await page.locator(".ProseMirror > [data-block=image]").click();
      await press(page, "ArrowLeft", "Control+Shift+e");
      await page.locator(`.ProseMirror > p:first-child[style="${style}"]`).waitFor();

      const before = JSON.stringify(await saved());
      await page.clock.install();
      await page.clock.pauseAt(Date.now() + 60_000);
      for (let i = 0; i < 10; i++) {
        await type(page, "d");
        await page.clock.runFor(1_400);
      }
      await eventually(async () => JSON.stringify(await read()) !== before, { what: "a save" });
    });
  });

  it("saves text and choices one after the other, and as soon as there is a connection again", async () => {
    await inPage({}, async (page) => {
      const { api, one, read, saved } = await open(page, undefined, "?view=text");
      const refused: string[] = [];
      page.on("response", (answer) => answer.status() === 409 && refused.push(answer.url()));
      await text(page).click();
      await type(page, "Before the choices");
      await page.getByText("Days: any").click();
      await page.getByRole("checkbox", { name: "Tuesday" }).check();
      await page.getByLabel("Track opens and clicks").selectOption("off");
      await page.getByRole("checkbox", { name: "Friday" }).check();
      const params = { newsletterId: one.id };
      const days = async () => (await api.newsletters.drafts.retrieve.query({ params })).data.send_days.join();
      await eventually(async () => (await days()) === "2,5", { what: "both days" });
      await saved();
      assert.match(JSON.stringify(await read()), /Before the choices/);
      assert.deepEqual(refused, []);

      await page.route(/saveBlocks/, (route) => route.fulfill({ status: 503, body: "" }));
      await page.clock.install();
      await page.clock.pauseAt(Date.now() + 60_000);
      await text(page).click();
      await type(page, "Without a connection");
      const isRefused = async () => {
        await page.clock.runFor(250);
        return page.getByText("The service cannot be reached").isVisible();
      };
      await eventually(isRefused, { what: "a save that fails" });
      await page.unroute(/saveBlocks/);
      // The clock of the page stands: no later attempt is due.
      await page.evaluate(`dispatchEvent(new Event("online"))`);
      await eventually(async () => /Without/.test(JSON.stringify(await read())), { what: "the text" });
    });
  });

  it("changes blocks into HTML and HTML into blocks when the writer says so, and restores versions", async () => {
    await inPage({}, async (page) => {
      const { saved, read } = await open(page);
      await text(page).click();
      await type(page, "Dear reader");
      const { blocks } = await saved();
      await button(page, "Write HTML").click();
      await page.getByRole("dialog").getByText("The blocks stay under “Versions”").waitFor();
      await page.getByRole("dialog").getByRole("button", { name: "Write HTML" }).click();
      await html(page).waitFor();
      await eventually(async () => (await read()).blocks === null, { what: "HTML" });
      await html(page).focus();
      await press(page, "Control+End");
      await type(page, "<!-- own -->");
      const { body } = await saved();
      assert.match(body ?? "", /^<!doctype html>.*Dear reader.*<!-- own -->$/s);

      await button(page, "Versions").press("Enter");
      const versions = page.getByRole("dialog").locator("summary");
      await versions.filter({ hasNotText: "(HTML)" }).first().click();
      // The page behind the dialog takes no focus.
      assert.deepEqual(await violationsOf(page, ["scrollable-region-focusable"]), []);
      await button(page, "Restore this version").click();
      await text(page).getByText("Dear reader").waitFor();
      assert.deepEqual((await read()).blocks, blocks);

      await button(page, "Versions").press("Enter");
      await versions.filter({ hasText: "(HTML)" }).first().click();
      await button(page, "Restore this version").click();
      await html(page).waitFor();
      await button(page, "Write with blocks").press("Enter");
      await page.getByRole("dialog").getByRole("button", { name: "Write with blocks" }).click();
      await text(page).getByText("Dear reader").waitFor();
      await eventually(async () => (await read()).blocks !== null, { what: "blocks" });
      assert.deepEqual((await read()).blocks, blocks);
    });
  });

  it("asks about the lines that another member has changed meanwhile, and takes those that it shows", async () => {
    const ada = await makeMember(sender.em, sender.team.id, "EDITOR");
    ada.name = "Ada";
    await sender.em.flush();
    const { app } = await consoleClient(await signIn(ada.id), sender.team.id);
    await inPage({}, async (page) => {
      const { saved, one, read } = await open(page);
      const write = async (words_: string) => {
        const { updated_at } = await read();
        const blocks = { type: "doc" as const, content: [words(word(words_))] } as never;
        await app.content.saveBlocks.mutate(
          { body: { ...one, blocks, preheader: null } },
          { context: { began: `${one.id} ${updated_at}` } },
        );
      };
      await text(page).click();
      const seen = page.waitForResponse(/content\.document/);
      await type(page, "Mine");
      await saved();
      await seen;
      await write("Ada's");
      await type(page, " again");
      const question = page.getByRole("dialog", { name: "Ada has changed this" });
      await question.locator("del", { hasText: "Ada's" }).waitFor();
      await question.locator("ins", { hasText: "Mine again" }).waitFor();
      await button(page, "Keep theirs").click();
      await text(page).getByText("Ada's", { exact: true }).waitFor();
      await page.getByLabel("Subject", { exact: true }).fill("Mine");
      await write("Ada's again");
      await saved();
      await text(page).getByText("Ada's again", { exact: true }).waitFor();
    });
  });

  it("checks the mail of each step before a sequence starts, as that of a send", async () => {
    const body =
      '<p>Dear {{ first_name }}</p><img src="https://example.com/a.png"><a href="https://gone.invalid/">Read</a>';
    const steps = [step("a", { body }), step("b", { body: "<p>See [the place]</p>", stop_if: { event: "clicked" } })];
    const id = await makeSequence(sender, { steps, isStarted: false });
    await inPage({}, async (page) => {
      await enter(page, sender.owner.id);
      await page.goto(`${(await stack()).origin}/console/${sender.team.id}/live/sequences/${id}`);
      await button(page, "Start").click();
      const found = (title: string) =>
        page.getByRole("dialog").getByRole("list", { name: title }).getByRole("listitem");
      await found("Step 2: Hello from b").getByText("square brackets").waitFor();
      await page.getByText("Checking…").waitFor({ state: "detached" });
      const all = await Promise.all(
        ["Step 1: Hello from a", "Step 2: Hello from b"].map((one) => found(one).allTextContents()),
      );
      const kinds = [/alternative text/, /gone\.invalid/, /no postal address/, /square brackets/];
      assert.deepEqual(
        all.map((texts) => kinds.map((kind) => texts.filter((text) => kind.test(text)).length)),
        [
          [1, 1, 1, 0],
          [0, 0, 0, 1],
        ],
      );
      const untracked = found("Step 2: Hello from b").filter({ hasText: "are not counted" });
      await untracked.getByRole("button", { name: "Change tracking" }).click();
      await page.getByLabel("Track opens and clicks").selectOption("on");
      assert.deepEqual(await violationsOf(page), []);
      await page.getByRole("dialog", { name: "Change tracking" }).getByRole("button", { name: "Change" }).click();
      await untracked.waitFor({ state: "detached" });
      const start = page.getByRole("dialog").getByRole("button", { name: "Start" });
      await start.and(page.locator(":enabled")).waitFor();
      await page.getByLabel("Who enters").selectOption("all");
      await start.and(page.locator(":disabled")).waitFor();
      assert.deepEqual(await violationsOf(page), []);
      const hint = (await page.getByText(/^Type \d+ to confirm/).textContent()) ?? "";
      await page.getByLabel("Number of people").fill(/\d+/.exec(hint)?.[0] ?? "");
      await start.click();
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await page.getByText("counted for everyone who has not said no").waitFor();
      await page.getByRole("link", { name: "Overview", exact: true }).click();
      const going = page.getByRole("region", { name: "Sending and scheduled" });
      await going.getByText("Running sequences:").getByRole("link", { name: "Welcome" }).waitFor();
    });
  });

  it("saves no new step before it has a subject, says so only when asked, and never leaves it without a question", async () => {
    const params = { sequenceId: await makeSequence(sender, { steps: [step("a")], isStarted: false }) };
    const open = async (page: Page) => {
      const { app } = await consoleClient(await enter(page, sender.owner.id), sender.team.id);
      await page.goto(`${(await stack()).origin}/console/${sender.team.id}/live/sequences/${params.sequenceId}`);
      await button(page, "New step at the end").click();
      await text(page).waitFor();
      return {
        steps: async () => (await app.sequences.show.query({ params })).data.steps,
        wait: page.getByLabel("Wait", { exact: true }),
        refusal: page.getByText("Please fill out this field"),
        status: (words: string) => page.getByRole("status").getByText(words, { exact: true }).waitFor(),
        stay: async () => {
          await button(page, "Close").click();
          await page.getByRole("dialog", { name: "Unsaved changes" }).waitFor();
          await button(page, "Stay here").click();
        },
      };
    };
    await inPage({}, async (page) => {
      const { wait, refusal, status, stay } = await open(page);
      await status("Not saved yet: write a subject");
      await page.clock.install();
      await page.clock.pauseAt(Date.now() + 60_000);
      await wait.fill("3");
      await page.clock.runFor(30_000);
      assert.equal(await refusal.count(), 0);
      await page.clock.resume();
      await stay();
      await refusal.waitFor();
    });
    await inPage({}, async (page) => {
      const { steps, wait, refusal, status, stay } = await open(page);
      const subject = page.getByLabel("Subject", { exact: true });
      await subject.fill("Third day");
      await subject.fill("");
      assert.equal(await refusal.count(), 0);
      await wait.fill("3");
      await refusal.waitFor();
      await stay();
      await subject.fill("Third day");
      await refusal.waitFor({ state: "detached" });
      await eventually(async () => (await steps())[1]?.wait_minutes === 3 * 1_440, { what: "the step" });

      await page.getByText("Time of day, days and conditions").click();
      const leaving = page.getByRole("region", { name: "Leave the sequence if" });
      await leaving.getByRole("button", { name: "Add a condition" }).click();
      await assertAccessible(page);
      await status("Not saved yet: complete its conditions");
      await page.getByLabel("Value").fill("@example.com");
      await eventually(async () => (await steps())[1]?.stop_if !== null, { what: "the condition" });
    });
  });

  it("says in words when each step is mailed and to whom it is not, and shows its settings where it has some", async () => {
    const { api } = await consoleClient(await signIn(sender.owner.id), sender.team.id);
    const resource = (await api.newsletters.drafts.create.mutate({ body: { name: "June news" } })).data.id;
    const field = (name: string, op: string, value: unknown) => ({ field: name, op, value });
    const four = ["Ada", "Bob", "Cy", "Di"];
    const added = field("created_at", "lt", { days_from_today: -3 });
    const skip_if = { event: "opened", resource, within_days: 9 };
    const group = {
      all: [
        ...[field("first_name", "in", four), { any: [{ not: { list: sender.listId } }, added] }],
        ...[field("email_status", "ne", "INVALID"), { not: { event: "clicked" } }],
      ],
    };
    const steps = [
      step("a", { skip_if, time_of_day: "09:30" }),
      step("b", { stop_if: group, skip_if: { not: { all: [added] } } }),
      step("c", { stop_if: { any: [field("created_at", "within_days", 1), field("last_name", "exists", false)] } }),
    ];
    const id = await makeSequence(sender, { steps, isStarted: false });
    await inPage({}, async (page) => {
      await enter(page, sender.owner.id);
      await page.goto(`${(await stack()).origin}/console/${sender.team.id}/live/sequences/${id}`);
      for (const words of [
        "Skipped if they opened “June news” in the last 9 days",
        "Leaves if first name is one of Ada or Bob or Cy or 1 more and (“Readers” does not have the person as subscribed or date added is before 3 days ago) and address status is not bounced and 1 more",
        "Skipped if its conditions hold",
        "Leaves if date added is within the last day or last name is not known",
      ]) {
        await page.getByRole("cell").getByText(words, { exact: true }).waitFor();
      }
      await button(page, "Hello from a").click();
      const wait = page.getByLabel("Wait", { exact: true });
      const hint = (words: string) => page.locator(".field", { has: wait }).getByText(words, { exact: true }).waitFor();
      await hint("1 day after they join, at 09:30");
      await wait.fill("2");
      await hint("2 days after they join, at 09:30");
      await page.getByLabel("Time of day").fill("");
      await hint("2 days after they join");
      await assertAccessible(page);
    });
  });

  longIt(
    "writes the steps of a sequence, one open at a time; those of one that was started by a press on Save alone",
    async () => {
      const params = { sequenceId: await makeSequence(sender, { steps: [step("a")], isStarted: false }) };
      await inPage({}, async (page) => {
        const { app } = await consoleClient(await enter(page, sender.owner.id), sender.team.id);
        const url = `${(await stack()).origin}/console/${sender.team.id}/live/sequences/${params.sequenceId}`;
        const steps = async () => (await app.sequences.show.query({ params })).data.steps;
        const subjectsAre = (...subjects: string[]) =>
          eventually(async () => (await steps()).map(({ subject }) => subject).join() === subjects.join(), {
            what: `the steps ${subjects}`,
          });
        const subject = page.getByLabel("Subject", { exact: true });
        await page.goto(`${url}?step=first&after=-`);
        await page.getByText("Not saved yet").waitFor();
        assert.equal(await page.getByLabel("Wait", { exact: true }).inputValue(), "0");
        await page.goto(url);
        await button(page, "New step at the end").click();
        await subject.fill("Second");
        await text(page).click();
        await type(page, "Of blocks");
        await subjectsAre("Hello from a", "Second");
        await page.frameLocator("iframe").getByText("Of blocks").waitFor();
        await assertAccessible(page);

        await button(page, "Hello from a").click();
        await html(page).waitFor();
        assert.equal(await text(page).count(), 0);
        await page.getByText("Time of day, days and conditions").click();
        await button(page, "Add a condition").first().click();
        await page.getByLabel("About").selectOption("Email activity");
        await page.getByRole("list", { name: "Suggestions" }).getByText("are not counted").waitFor();
        await eventually(async () => (await steps())[0]?.stop_if !== null, { what: "the condition" });

        await app.sequences.start.mutate({ params, body: { include_members: false } });
        await page.reload();
        await subject.fill("Running");
        await button(page, "Second").click();
        await page.getByRole("dialog", { name: "Unsaved changes" }).waitFor();
        await button(page, "Stay here").click();
        await subjectsAre("Hello from a", "Second");
        await button(page, "Save").click();
        await subjectsAre("Running", "Second");
      });
    },
  );
});
