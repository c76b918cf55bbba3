import assert from "node:assert/strict";
import { deflateSync } from "node:zlib";
import type { Page } from "playwright-core";
import { buildConsole } from "../../console/build.ts";
import { cleanImage } from "../../domain/images/clean.ts";
import { enter, openBrowser, violationsOf, widthOf } from "../support/browser.ts";
import { clientAs, type consoleClient } from "../support/console.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { exif, insert, jpegSegment, pngChunk, replaced, SAMPLES, webpChunk, webpWith } from "../support/pictures.ts";
import { stack } from "../support/stack.ts";

/** A PNG of one colour. */
function drawn(width: number, height: number, shade = 0): Buffer {
  const header = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0]);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  const rows = Buffer.alloc((width + 1) * height, shade);
  for (let y = 0; y < height; y++) rows[y * (width + 1)] = 0;
  const [head, data] = [pngChunk("IHDR", header), pngChunk("IDAT", deflateSync(rows, { level: 0 }))];
  return Buffer.concat([SAMPLES.png.subarray(0, 8), head, data, pngChunk("IEND")]);
}

describe("The picker of images in a browser", function () {
  this.timeout(120_000);
  const inPage = openBrowser(/status of 400/);
  let team: TestTeam;
  let client: Awaited<ReturnType<typeof consoleClient>>;
  before(async () => {
    await buildConsole();
    team = await makeTeam();
    client = await clientAs(team, "EDITOR");
  });
  const imagesOf = async () => (await client.app.images.list.query({ query: {} })).data.images;

  const openPicker = (page: Page) => page.getByRole("button", { name: "Choose a logo" }).click();
  const open = async (page: Page) => {
    await enter(page, team.owner.id);
    await page.goto(`${(await stack()).origin}/console/${team.team.id}/live/brand`);
    await openPicker(page);
  };
  const pickedIn = (page: Page) => page.getByLabel("Logo", { exact: true }).inputValue();
  const choose = (page: Page, ...buffers: Buffer[]) =>
    page
      .getByLabel(/^Upload PNG/)
      .setInputFiles(buffers.map((buffer, n) => ({ name: `photo ${n}.png`, mimeType: "image/png", buffer })));
  /** Drops or pastes a file on the open picker. */
  const hand = (page: Page, event: "drop" | "paste", picture: Buffer, type = "image/png") =>
    page.evaluate(
      `(() => {
        const data = new DataTransfer();
        data.items.add(new File([Uint8Array.from(atob("${picture.toString("base64")}"), (c) => c.charCodeAt(0))], "${event}.png", { type: "${type}" }));
        const made = ${event === "drop"} ? new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })
          : new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
        document.querySelector("[aria-label='Images of the team']").dispatchEvent(made);
      })()`,
    );

  it("uploads a wide picture in the width of mails, by a file, a drop or a paste, and gives it to its place", async () => {
    await inPage({ viewport: { width: 900, height: 900 } }, async (page) => {
      await open(page);
      await page.getByText("No images yet.").waitFor();
      await choose(page, drawn(2_400, 101));
      await page.getByRole("dialog").waitFor({ state: "detached" });
      const [first] = await imagesOf();
      assert.deepEqual([first?.name, first?.width, first?.height], ["photo 0.png", 1_200, 51]);
      assert.equal(await pickedIn(page), first?.url);
      for (const event of ["drop", "paste"] as const) {
        await openPicker(page);
        await page.getByRole("button", { name: "photo 0.png", exact: true }).waitFor();
        await hand(page, event, drawn(40, 30, event.length));
        await page.getByRole("dialog").waitFor({ state: "detached" });
        const [newest] = await imagesOf();
        assert.deepEqual([newest?.name, newest?.width], [`${event}.png`, 40]);
        assert.equal(await pickedIn(page), newest?.url);
      }
    });
  });

  it("shows all that were chosen together, picks one, and says why another is refused", async () => {
    await inPage({ viewport: { width: 360, height: 800 } }, async (page) => {
      await open(page);
      await choose(page, drawn(10, 10, 70), drawn(10, 10, 80));
      await page.getByRole("button", { name: "photo 1.png", exact: true }).waitFor();
      assert.deepEqual(await violationsOf(page), []);
      assert.ok((await widthOf(page)) <= 360);
      await hand(page, "drop", Buffer.from("plain text"), "text/plain");
      await choose(page, Buffer.from("no picture"));
      await page.getByRole("alert").getByText("The file is no PNG, JPEG, GIF or WebP.").waitFor();
      await page.getByRole("button", { name: "photo 1.png", exact: true }).click();
      const found = (await imagesOf()).find(({ name }) => name === "photo 1.png");
      assert.equal(await pickedIn(page), found?.url);
    });
  });

  it("deletes an image that a mail shows once its editor has said so", async () => {
    const [image] = await imagesOf();
    await client.api.newsletters.drafts.create.mutate({ body: { name: "N", body: `<img src="${image?.url}">` } });
    const count = (await imagesOf()).length;
    await inPage({}, async (page) => {
      await open(page);
      await page.keyboard.press("Escape");
      await page.getByLabel("Footer").fill("Not to be saved by a dialog");
      await openPicker(page);
      await page
        .getByRole("button", { name: `Delete ${image?.name}`, exact: true })
        .first()
        .click();
      const confirm = page.getByRole("button", { name: "Delete this image" });
      const tick = page.getByRole("checkbox", { name: /^Delete it even if an email shows it/ });
      await tick.check();
      await confirm.click();
      await tick.waitFor({ state: "detached" });
      assert.equal((await imagesOf()).length, count - 1);
      assert.equal((await client.app.team.brand.query({})).data.mail_footer, null);
    });
  });
});

describe("A cleaned image in a browser", function () {
  this.timeout(120_000);
  const inPage = openBrowser();

  it("is drawn as its orientation says", async () => {
    const { jpg, webp, gif, animated } = SAMPLES;
    const named = Buffer.concat([Buffer.from("Exif\0\0"), exif(6)]);
    const pictures: [string, Buffer, string][] = [
      ["image/jpeg", jpg, "8 × 4"],
      ["image/jpeg", insert(jpg, 2, jpegSegment(0xe1, named)), "4 × 8"],
      ["image/png", insert(SAMPLES.png, 33, pngChunk("eXIf", exif(6))), "4 × 8"],
      ["image/webp", webpWith(replaced(webp, 20, 0x28), webpChunk("EXIF", exif(6))), "8 × 4"],
      ["image/gif", gif, "1 × 1"],
      ["image/webp", animated, "1 × 1"],
    ];
    await inPage({}, async (page) => {
      for (const [type, picture, sides] of pictures) {
        const { bytes, width, height } = cleanImage(picture);
        const shown = await page.evaluate(`(async () => {
          const image = new Image();
          image.src = "data:${type};base64,${bytes.toString("base64")}";
          await image.decode();
          return image.naturalWidth + " × " + image.naturalHeight;
        })()`);
        assert.deepEqual([shown, `${width} × ${height}`], [sides, sides], type);
      }
    });
  });
});
