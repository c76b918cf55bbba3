import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { request } from "node:http";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { imageUrl } from "../../domain/images/links.ts";
import { type Cookies, clientAs, consoleClient, consoleFetch, refusalCodeOf, signIn } from "../support/console.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, makeMember, makeTeam, openStackDatabase, type TestTeam } from "../support/factories.ts";
import { tryUpload, uniquePng, uploadImage } from "../support/images.ts";
import { exif, insert, pngChunk, pngOf, SAMPLES, SECRET } from "../support/pictures.ts";
import { stack } from "../support/stack.ts";

const MIB = 1024 * 1024;

describe("Images in the console", () => {
  let own: TestTeam;
  let cookies: Cookies;
  let folder: string;
  before(async () => {
    own = await makeTeam();
    cookies = await signIn((await makeMember(own.em, own.team.id, "EDITOR")).id);
    folder = (await stack()).env.IMAGES_DIRECTORY ?? assert.fail("the stack has no folder for images");
  });
  const client = (environment?: "LIVE" | "TEST") => consoleClient(cookies, own.team.id, environment);
  const fileOf = async (id: string) =>
    (await kysely(own.em.fork()).selectFrom("images").select("file").where("id", "=", id).executeTakeFirstOrThrow())
      .file;
  const filesOf = (teamId: string) => {
    const path = `${folder}/${teamId.replace("team_", "")}`;
    return existsSync(path) ? readdirSync(path) : [];
  };

  it("are cleaned, stored once for each content, listed the newest first, and shown at their URL", async () => {
    const name = "Ferien in Köln, Spring 2026.png";
    const picture = uniquePng();
    const first = await uploadImage(cookies, own.team.id, insert(picture, 33, pngChunk("tEXt", SECRET)), { name });
    const { id, url, created_at, ...facts } = first;
    assert.deepEqual(facts, { name, bytes: picture.length, width: 8, height: 4 });
    assert.match(created_at, /^\d{4}-\d\d-\d\dT.*Z$/);
    const shown = await fetch(url);
    assert.deepEqual(Buffer.from(await shown.arrayBuffer()), picture);
    const files = filesOf(own.team.id).length;
    const again = await uploadImage(cookies, own.team.id, insert(picture, 33, pngChunk("eXIf", exif())), {
      name: "b.png",
    });
    assert.deepEqual(again, first);
    assert.equal(filesOf(own.team.id).length, files, "no second file");
    const second = await uploadImage(cookies, own.team.id, SAMPLES.jpg, { name: "x".repeat(300) });
    assert.deepEqual([second.name.length, second.url.slice(-4)], [200, ".jpg"]);

    const { app } = await client();
    const { images, has_more } = (await app.images.list.query({ query: {} })).data;
    assert.deepEqual([images.slice(0, 2), has_more], [[second, first], false]);
    const older = (await app.images.list.query({ query: { before: second.id } })).data.images;
    assert.equal(older[0]?.id, id);
    const { count, bytes, max_count, max_bytes } = (await app.images.usage.query({})).data;
    assert.deepEqual([count, bytes, max_count, max_bytes], [2, picture.length + SAMPLES.jpg.length, 10_000, 1e9]);
    const test = await client("TEST");
    assert.deepEqual((await test.app.images.list.query({ query: {} })).data.images, [], "an environment sees its own");
  });

  it("are one row and one file also when the same content comes many times at once", async () => {
    const picture = uniquePng();
    const made = await Promise.all(Array.from({ length: 6 }, () => uploadImage(cookies, own.team.id, picture)));
    assert.equal(new Set(made.map(({ id }) => id)).size, 1);
    // The files of the uploads that lost the race are deleted like those of deleted images.
    const em = own.em.fork();
    const mine = sql`file like ${`${own.team.id.replace("team_", "")}/%`}`;
    await sql`update unused_image_files set due_at = now() where ${mine}`.execute(kysely(em));
    await eventually(
      async () => (await sql`select from unused_image_files where ${mine}`.execute(kysely(em))).rows.length === 0,
      {
        what: "the deletion of other files",
      },
    );
    const { rows } = await sql`select from images where team_id = ${own.team.id}`.execute(kysely(em));
    assert.equal(filesOf(own.team.id).length, rows.length);
  });

  it("are refused by their content, size and sides before anything is stored", async () => {
    const refused = async (content: Buffer) => {
      const answer = await tryUpload(cookies, own.team.id, content);
      const { error } = (await answer.json()) as { error: { code: string; message: string } };
      return [answer.status, error.code, error.message];
    };
    const files = filesOf(own.team.id);
    for (const content of [Buffer.from("<svg/>"), Buffer.alloc(0), pngOf(8_001, 1), SAMPLES.png.subarray(0, 60)]) {
      assert.deepEqual((await refused(content)).slice(0, 2), [400, "validation_failed"]);
    }
    assert.deepEqual(await refused(Buffer.alloc(5 * MIB + 1)), [
      ...[413, "payload_too_large"],
      "The body may be 5242880 bytes at most.",
    ]);
    assert.equal(
      (await uploadImage(cookies, own.team.id, uniquePng(5 * MIB - SAMPLES.png.length - 12))).bytes,
      5 * MIB,
    );
    assert.equal(filesOf(own.team.id).length, files.length + 1);
  });

  it("are not held beyond their limit where no length is declared, and no other path takes as much", async () => {
    const { origin } = await stack();
    const headers = {
      cookie: Object.entries(cookies)
        .map(([name, value]) => `${name}=${value}`)
        .join("; "),
      ...{ origin, "mailkeel-team": own.team.id, "transfer-encoding": "chunked" },
    };
    const status = await new Promise((resolve) => {
      const sent = request(`${origin}/console/images`, { method: "POST", headers }, (answer) =>
        resolve(answer.statusCode),
      );
      sent.on("error", () => {});
      for (let n = 0; n < 6; n++) sent.write(Buffer.alloc(MIB));
    });
    assert.equal(status, 413);
    for (const path of ["/images/x", "/session", "/trpc/app.images.remove", "/imagesx"]) {
      const { status } = await consoleFetch({ ...cookies }, "POST", path, Buffer.alloc(3 * MIB));
      assert.equal(status, 413, path);
    }
  });

  it("are uploaded and deleted by an EDITOR of the team, from a page of the console", async () => {
    const viewer = await signIn((await makeMember(own.em, own.team.id, "VIEWER")).id);
    const other = await makeTeam();
    const codeOf = async (answer: Promise<Response>) =>
      ((await (await answer).json()) as { error: { code: string } }).error.code;
    assert.equal(await codeOf(tryUpload(viewer, own.team.id, SAMPLES.png)), "role_insufficient");
    assert.equal(await codeOf(tryUpload(cookies, other.team.id, SAMPLES.png)), "api_key_invalid");
    assert.equal(await codeOf(tryUpload({}, own.team.id, SAMPLES.png)), "api_key_missing");
    const headers = { origin: "https://elsewhere.example", "mailkeel-team": own.team.id };
    assert.equal(
      await codeOf(consoleFetch({ ...cookies }, "POST", "/images", SAMPLES.png, headers)),
      "role_insufficient",
    );
    const wrong = { "mailkeel-team": own.team.id, "mailkeel-environment": "STAGE" };
    assert.equal(
      await codeOf(consoleFetch({ ...cookies }, "POST", "/images", SAMPLES.png, wrong)),
      "validation_failed",
    );
  });

  it("are deleted with their file; one that a mail shows only when its editor knows", async () => {
    const { app, api } = await client();
    const image = await uploadImage(cookies, own.team.id, uniquePng());
    const file = `${folder}/${await fileOf(image.id)}`;
    const remove = (although_used = false) =>
      app.images.remove.mutate({ params: { imageId: image.id }, body: { although_used } });
    const draft = { name: "Spring", body: `<img src="${image.url}">` };
    const { data: made } = await api.newsletters.drafts.create.mutate({ body: draft });
    await assert.rejects(remove(), /^.*1 of the newest mails show this image, and 0 of them are no drafts/);
    await api.newsletters.drafts.remove.mutate({ params: { newsletterId: made.id } });
    await assert.rejects(remove(), /1 of the newest mails show this image/, "one that may be restored");
    await app.bin.restore.mutate({ params: { recordId: made.id } });
    await own.em.fork().execute("update newsletters set status = 'SENT' where team_id = ?", [own.team.id]);
    await assert.rejects(remove(), /and 1 of them are no drafts: their readers would see a gap/);
    assert.equal((await fetch(image.url)).status, 200, "an image of sent mail stays");
    await remove(true);
    assert.equal(await refusalCodeOf(remove(true)), "not_found");
    await eventually(() => !existsSync(file), { what: "the deletion of the file" });
    await eventually(async () => (await fetch(image.url)).status === 404, { what: "the end of its URL" });
  });

  it("stay while one is the logo of the team, unless its end is wanted", async () => {
    const { app } = await client();
    const image = await uploadImage(cookies, own.team.id, uniquePng());
    const admin = await clientAs(own, "ADMIN");
    const setLogo = (logo_url: string | null) => admin.app.team.changeBrand.mutate({ body: { logo_url } });
    const remove = () => app.images.remove.mutate({ params: { imageId: image.id }, body: { although_used: false } });
    await setLogo(image.url);
    await assert.rejects(remove(), /the logo of the team's brand/);
    await setLogo(null);
    await remove();
  });

  it("go with their team, rows and files", async () => {
    const other = await makeTeam();
    const member = await signIn(other.owner.id);
    const image = await uploadImage(member, other.team.id, uniquePng());
    await uploadImage(member, other.team.id, uniquePng(), { environment: "TEST" });
    assert.equal(filesOf(other.team.id).length, 2);
    const owner = await openStackDatabase("owner");
    await owner.em
      .fork()
      .execute("delete from teams where id = ?", [other.team.id])
      .finally(() => owner.close(true));
    await eventually(() => filesOf(other.team.id).length === 0, { what: "the deletion of the team's files" });
    assert.equal((await fetch(image.url)).status, 404);
  });

  it("are another team's under its own files alone, although the content is the same", async () => {
    const other = await makeTeam();
    const mine = await uploadImage(cookies, own.team.id, SAMPLES.gif);
    const theirs = await uploadImage(await signIn(other.owner.id), other.team.id, SAMPLES.gif);
    assert.notEqual(mine.url, theirs.url);
    const removing = (await client()).app.images.remove.mutate({
      params: { imageId: theirs.id },
      body: { although_used: true },
    });
    assert.equal(await refusalCodeOf(removing), "not_found");
    const { vault } = await backdoor();
    assert.equal(theirs.url, imageUrl(vault, (await stack()).origin, await fileOf(theirs.id)));
  });

  it("are asked for by a VIEWER", async () => {
    const viewer = await clientAs(own, "VIEWER");
    assert.ok((await viewer.app.images.list.query({ query: {} })).data.images.length > 0);
  });
});
