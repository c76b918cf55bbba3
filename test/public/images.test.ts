import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { Readable } from "node:stream";
import { appRouter } from "../../api/router.ts";
import { newId } from "../../domain/ids.ts";
import { imageFile, imageUrl } from "../../domain/images/links.ts";
import { en } from "../../domain/languages/en.ts";
import { type FileStore, openImageStore, type StoredFile } from "../../lib/file-store.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { type Cookies, signIn } from "../support/console.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, openStackVault, type TestTeam, unique } from "../support/factories.ts";
import { tryUpload, uniquePng, uploadImage } from "../support/images.ts";
import { SAMPLES } from "../support/pictures.ts";
import { stack } from "../support/stack.ts";

/** A store whose answers a test chooses. */
const storeOf = (get: FileStore["get"]): FileStore => ({ put: async () => {}, delete: async () => {}, get });

describe("GET /i/{image}", () => {
  let team: TestTeam;
  let cookies: Cookies;
  const apps: TestApp[] = [];
  before(async () => {
    team = await makeTeam();
    cookies = await signIn(team.owner.id);
  });
  after(async () => {
    for (const app of apps) await app.close();
  });
  const serve = async (get: FileStore["get"]): Promise<TestApp> => {
    const app = await serveRoutes(appRouter, { with: { images: storeOf(get) } });
    // The hash key comes with the first connection.
    await app.deps.connectDatabase();
    apps.push(app);
    return app;
  };
  const urlAt = ({ origin, deps }: TestApp): string =>
    imageUrl(deps.vault, origin, imageFile(team.team.id, newId("image"), "png"));

  it("shows an image of each type to pages of other sites, and lets browsers keep it for good", async () => {
    for (const [ending, type] of Object.entries({
      png: "image/png",
      jpg: "image/jpeg",
      gif: "image/gif",
      webp: "image/webp",
    })) {
      const content = SAMPLES[ending as "png"];
      const { url, id } = await uploadImage(cookies, team.team.id, content);
      const answer = await fetch(url);
      assert.deepEqual([answer.status, Buffer.from(await answer.arrayBuffer())], [200, content]);
      const expected = {
        "content-type": type,
        "content-length": `${content.length}`,
        "cache-control": "public, max-age=31536000, immutable",
        "content-security-policy": "default-src 'none'; sandbox",
        "cross-origin-resource-policy": "cross-origin",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "x-robots-tag": "noindex, nofollow",
        etag: `"${id}"`,
        "set-cookie": null,
      };
      assert.deepEqual(
        Object.fromEntries(Object.keys(expected).map((name) => [name, answer.headers.get(name)])),
        expected,
      );
      const head = await fetch(url, { method: "HEAD" });
      assert.deepEqual(
        [head.status, head.headers.get("content-length"), await head.text()],
        [200, `${content.length}`, ""],
      );
      const known = await fetch(url, { headers: { "if-none-match": `W/"x", "${id}"` } });
      assert.deepEqual(
        [known.status, known.headers.get("cache-control"), await known.text()],
        [304, expected["cache-control"], ""],
      );
      assert.equal((await fetch(url, { method: "POST" })).status, 404);
    }
  });

  it("is refused where any part of its name was changed, before the store is asked, and leads to no other file", async () => {
    let asked = 0;
    const app = await serve(async () => {
      asked++;
      return undefined;
    });
    const url = new URL(urlAt(app));
    const [team_ = "", id = "", signature = "", ending = ""] = url.pathname.slice("/i/".length).split(".");
    const names = [
      `${team_}.${id}.${signature}.gif`,
      `${team_}.${id}.${signature.slice(1)}x.png`,
      `${id}.${team_}.${signature}.png`,
      `${newId("team").slice(5)}.${id}.${signature}.${ending}`,
      `..%2F${team_}.${id}.${signature}.${ending}`,
      `${team_}%2F${id}.${ending}`,
      ...["..%2f..%2fsecrets.json", "%00", "%E0%A4%A", "", "x"],
    ];
    for (const name of names) assert.equal((await fetch(`${app.origin}/i/${name}`)).status, 404, name);
    assert.equal(asked, 0);
    const missing = await fetch(url);
    assert.deepEqual(
      [missing.status, missing.headers.get("cache-control"), missing.headers.get("etag"), asked],
      [404, "no-store", null, 1],
    );
  });

  it("needs no Postgres", async () => {
    const bytes = SAMPLES.png.length;
    const app = await serve(async () => ({ bytes, content: Readable.from([SAMPLES.png]) }));
    const url = urlAt(app);
    await app.deps.orm.close(true);
    assert.equal((await fetch(url)).status, 200);
  });

  it("is cut off, and never shown as whole, where the store fails in the middle", async () => {
    const app = await serve(async () => ({
      bytes: 1_000_000,
      content: Readable.from(
        (async function* () {
          yield Buffer.alloc(1_000);
          throw new Error("the disk is gone");
        })(),
      ),
    }));
    await assert.rejects(async () => (await fetch(urlAt(app))).arrayBuffer());
    const failing = await serve(async () => {
      throw new Error("the bucket answered 500");
    });
    const failed = await fetch(urlAt(failing));
    assert.deepEqual([failed.status, (await failed.text()).includes(en.refused.title)], [500, true]);
  });

  it("is refused for now where the store is silent, whose answer is then ended", async () => {
    let ended = false;
    const app = await serve((_file, signal) => {
      signal.addEventListener("abort", () => {
        ended = true;
      });
      return new Promise(() => {});
    });
    const answer = await fetch(urlAt(app));
    assert.deepEqual([answer.status, answer.headers.get("retry-after"), ended], [503, "5", true]);
  });

  it("holds little of an image for a reader that does not read, and nothing for one that leaves", async () => {
    const stored: StoredFile[] = [];
    let read = 0;
    const app = await serve(async () => {
      const content = Readable.from(
        (async function* () {
          for (;;) {
            read += 65_536;
            yield Buffer.alloc(65_536);
          }
        })(),
        { objectMode: false, highWaterMark: 65_536 },
      );
      stored.push({ bytes: 10 ** 12, content });
      return stored.at(-1);
    });
    const { hostname, port, pathname } = new URL(urlAt(app));
    const socket = connect(Number(port), hostname);
    await once(socket, "connect");
    socket.write(`GET ${pathname} HTTP/1.1\r\nHost: x\r\n\r\n`);
    let before = -1;
    // The process hands over as much as the buffers of the kernel take.
    await eventually(
      () => {
        const isStill = read > 0 && read === before;
        before = read;
        return isStill;
      },
      { everyMs: 300, what: "the end of the reading" },
    );
    assert.ok(read < 32 * 1024 * 1024, `${read} bytes`);
    assert.ok(stored[0]?.content.readableLength !== undefined && stored[0].content.readableLength <= 131_072);
    socket.destroy();
    await eventually(() => stored[0]?.content.destroyed, { what: "the end of the stored file" });
  });

  it("is read by a client 64 times at once at most; its further requests wait", async () => {
    const waiting: (() => void)[] = [];
    const app = await serve(async () => {
      await new Promise<void>((resolve) => waiting.push(resolve));
      return { bytes: 1, content: Readable.from([Buffer.from("x")]) };
    });
    const url = urlAt(app);
    const answers = Array.from({ length: 70 }, async () => (await fetch(url)).arrayBuffer());
    await eventually(() => waiting.length === 64, { what: "64 readings" });
    await fetch(app.origin);
    assert.equal(waiting.length, 64);
    const release = setInterval(() => {
      for (const resolve of waiting.splice(0)) resolve();
    }, 10);
    await Promise.all(answers).finally(() => clearInterval(release));
  });

  it("works under every signing secret, because a template outlives them", async () => {
    const vault = await openStackVault();
    const app = await serve(async () => ({ bytes: 1, content: Readable.from([Buffer.from("x")]) }));
    const url = imageUrl(vault, app.origin, imageFile(team.team.id, newId("image"), "gif"));
    assert.equal((await fetch(url)).status, 200);
  });

  it("is neither stored nor shown where the settings name no store", async () => {
    const app = await serveRoutes(appRouter, { with: { images: undefined } });
    apps.push(app);
    await app.deps.connectDatabase();
    assert.equal((await fetch(urlAt(app))).status, 404);
    const refused = await tryUpload(cookies, team.team.id, SAMPLES.png, { at: app.origin, name: unique("a") });
    const { error } = (await refused.json()) as { error: { code: string; message: string } };
    assert.equal(error.code, "resource_state_invalid");
    assert.match(error.message, /IMAGES_DIRECTORY or IMAGES_S3_URL/);
  });

  it("is not stored by a process whose folder lacks the newest one, and its member is led to the operator", async () => {
    await uploadImage(cookies, team.team.id, uniquePng());
    const folder = mkdtempSync(`${tmpdir()}/images-`);
    const own = openImageStore({ ...(await stack()).env, IMAGES_DIRECTORY: folder, IMAGES_S3_URL: undefined });
    const app = await serveRoutes(appRouter, { with: { images: own } });
    apps.push(app);
    const refused = await tryUpload(cookies, team.team.id, uniquePng(), { at: app.origin });
    const { error } = (await refused.json()) as { error: { code: string; message: string } };
    assert.equal(error.code, "service_unavailable");
    assert.match(error.message, /ask the operator of the service to look at its store/);
    assert.deepEqual(readdirSync(folder), []);
    rmSync(folder, { recursive: true });
  });

  it("is not stored where the store fails, and what it may have written is noted for deletion", async () => {
    const files: string[] = [];
    const put = async (file: string) => {
      files.push(file);
      throw new Error("no space left on device");
    };
    const app = await serveRoutes(appRouter, {
      with: { images: { ...storeOf(async () => ({ bytes: 0, content: Readable.from([]) })), put } },
    });
    apps.push(app);
    const answer = await tryUpload(cookies, team.team.id, SAMPLES.lossless, { at: app.origin });
    assert.equal(answer.status, 503);
    const noted = await team.em
      .fork()
      .execute<{ in_future: boolean }[]>(
        "select due_at > now() + interval '50 minutes' as in_future from unused_image_files where file = ?",
        [files[0] ?? ""],
      );
    assert.deepEqual(noted, [{ in_future: true }]);
  });

  it("is limited to so many images and bytes of a team, also where they come at once", async () => {
    const { team: other, owner } = await makeTeam();
    const member = await signIn(owner.id);
    const limited = async (changes: { MAX_IMAGES?: number; MAX_IMAGE_MEGABYTES?: number }) => {
      const app = await serveRoutes(appRouter, { changes });
      apps.push(app);
      return app.origin;
    };
    const at = await limited({ MAX_IMAGES: 2 });
    const { png, jpg, gif, webp } = SAMPLES;
    const statuses = await Promise.all(
      [png, jpg, gif, webp].map(async (each) => (await tryUpload(member, other.id, each, { at })).status),
    );
    assert.deepEqual(statuses.sort(), [200, 200, 409, 409]);
    const kept = await team.em.fork().execute("select 1 from images where team_id = ?", [other.id]);
    assert.equal(kept.length, 2);
    await team.em.fork().execute("update images set bytes = 999999 where team_id = ?", [other.id]);
    const refused = await tryUpload(member, other.id, SAMPLES.animated, {
      at: await limited({ MAX_IMAGE_MEGABYTES: 2 }),
    });
    const { error } = (await refused.json()) as { error: { code: string; message: string } };
    assert.deepEqual(
      [error.code, error.message],
      ["resource_limit_reached", "The team may have 2 MB of images; delete some that no email shows."],
    );
  });
});
