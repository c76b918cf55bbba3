import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { buffer } from "node:stream/consumers";
import { type FileStore, openImageStore } from "../../lib/file-store.ts";
import { eventually } from "../support/eventually.ts";
import { listenLocally } from "../support/listen-locally.ts";

const REGION = "eu-central-1";
const KEY_ID = "AKIDEXAMPLE";
const SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

const sha256 = (data: string | Buffer) => createHash("sha256").update(data).digest("hex");
const hmac = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text).digest();

/** Whether a request is signed as Signature Version 4 says, also over its body where the header names the body's hash. */
function isSigned({ method, url, headers }: IncomingMessage, body: Buffer): boolean {
  const [, day = "", names = "", signature = ""] =
    new RegExp(
      `^AWS4-HMAC-SHA256 Credential=${KEY_ID}/(\\d{8})/${REGION}/s3/aws4_request, SignedHeaders=([\\w;-]+), Signature=([0-9a-f]{64})$`,
    ).exec(headers.authorization ?? "") ?? [];
  const hash = String(headers["x-amz-content-sha256"]);
  if (hash !== "UNSIGNED-PAYLOAD" && hash !== sha256(body)) return false;
  if (!["host", "x-amz-content-sha256", "x-amz-date"].every((name) => names.split(";").includes(name))) return false;
  const canonical = names.split(";").map((name) => `${name}:${String(headers[name]).trim()}\n`);
  const request = [method, url, "", canonical.join(""), names, hash].join("\n");
  const at = String(headers["x-amz-date"]);
  const text = ["AWS4-HMAC-SHA256", at, `${day}/${REGION}/s3/aws4_request`, sha256(request)].join("\n");
  const key = [day, REGION, "s3", "aws4_request"].reduce<string | Buffer>(hmac, `AWS4${SECRET}`);
  return (
    Math.abs(Date.parse(at.replace(/(....)(..)(..)T(..)(..)(..)Z/, "$1-$2-$3T$4:$5:$6Z")) - Date.now()) < 60_000 &&
    hmac(key, text).toString("hex") === signature
  );
}

/** A bucket that answers as Amazon S3 does, to signed requests alone. */
class Bucket {
  readonly objects = new Map<string, { type: string | undefined; body: Buffer }>();
  readonly server: Server = createServer((req, res) => void this.#answer(req, res));
  /** In place of the usual answer. */
  answer: ((req: IncomingMessage, res: ServerResponse) => void) | undefined;

  async #answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const body = await buffer(req);
    if (this.answer) return this.answer(req, res);
    if (!isSigned(req, body)) return void res.writeHead(403).end("<Error><Code>SignatureDoesNotMatch</Code></Error>");
    const path = req.url ?? "";
    if (!path.startsWith("/bucket/")) return void res.writeHead(404).end("<Error><Code>NoSuchBucket</Code></Error>");
    if (req.method === "PUT") this.objects.set(path, { type: req.headers["content-type"], body });
    if (req.method === "DELETE") this.objects.delete(path);
    if (req.method !== "GET") return void res.writeHead(req.method === "PUT" ? 200 : 204).end();
    const found = this.objects.get(path);
    if (!found) return void res.writeHead(404).end("<Error><Code>NoSuchKey</Code></Error>");
    res.writeHead(200, { "content-length": found.body.length }).end(found.body);
  }
}

const NAME = "01m7zh34n8e49vnbt7e64rvp0c/01m7zh34n8e49vnbt7e64rvp0d.png";
const CONTENT = Buffer.alloc(300_000, "a picture");
const unending = new AbortController().signal;

describe("A store of images", () => {
  const folder = mkdtempSync(`${tmpdir()}/mailkeel-images-`);
  const bucket = new Bucket();
  let url: string;
  before(async () => {
    url = `http://127.0.0.1:${await listenLocally(bucket.server)}/bucket`;
  });
  after(() => {
    bucket.server.closeAllConnections();
    bucket.server.close();
    rmSync(folder, { recursive: true });
  });

  const bucketWith = (settings: { url?: string; region?: string; keyId?: string; secret?: string } = {}): FileStore =>
    openImageStore({
      IMAGES_DIRECTORY: undefined,
      IMAGES_S3_URL: settings.url ?? url,
      IMAGES_S3_REGION: settings.region ?? REGION,
      IMAGES_S3_KEY_ID: settings.keyId ?? KEY_ID,
      IMAGES_S3_SECRET_KEY: settings.secret ?? SECRET,
    }) ?? assert.fail();
  const none = {
    IMAGES_S3_URL: undefined,
    IMAGES_S3_REGION: undefined,
    IMAGES_S3_KEY_ID: undefined,
    IMAGES_S3_SECRET_KEY: undefined,
  };
  const folderAt = (path: string): FileStore => openImageStore({ ...none, IMAGES_DIRECTORY: path }) ?? assert.fail();
  const read = async (store: FileStore, name: string) => {
    const found = await store.get(name, unending);
    return found && { bytes: found.bytes, content: await buffer(found.content) };
  };

  it("is none without a setting", () => {
    assert.equal(openImageStore({ ...none, IMAGES_DIRECTORY: undefined }), undefined);
  });

  for (const [kind, open] of [
    ["folder", () => folderAt(`${folder}/made/by/the/first`)],
    ["bucket", () => bucketWith()],
  ] as const) {
    describe(`that is a ${kind}`, () => {
      it("gives back what was put, until it is deleted, however often that is done", async () => {
        const store = open();
        await store.delete(NAME);
        assert.equal(await store.get(NAME, unending), undefined);
        for (let n = 0; n < 2; n++) await store.put(NAME, "image/png", CONTENT);
        assert.deepEqual(await read(store, NAME), { bytes: CONTENT.length, content: CONTENT });
        for (let n = 0; n < 2; n++) await store.delete(NAME);
        assert.equal(await store.get(NAME, unending), undefined);
      });

      it("ends a reading by its signal", async () => {
        const store = open();
        await store.put(NAME, "image/png", CONTENT);
        const stop = new AbortController();
        const found = (await store.get(NAME, stop.signal)) ?? assert.fail();
        const ended = once(found.content, "error");
        found.content.once("data", () => stop.abort());
        await ended;
        assert.ok(found.content.destroyed);
        stop.abort();
        await assert.rejects(store.get(NAME, stop.signal));
      });
    });
  }

  it("leaves in a folder no part of a file under its name, and deletes what an interrupted write has left", async () => {
    const store = folderAt(folder);
    const team = `${folder}/team`;
    mkdirSync(team);
    writeFileSync(`${team}/one.png.part`, "half");
    assert.equal(await store.get("team/one.png", unending), undefined);
    await store.delete("team/one.png");
    assert.deepEqual(readdirSync(team), []);
    // A folder in its place: the write fails, as on a full disk.
    mkdirSync(`${team}/two.png.part`);
    await assert.rejects(store.put("team/two.png", "image/png", CONTENT));
    assert.deepEqual(readdirSync(team), ["two.png.part"]);
  });

  it("fails at a bucket with wrong keys, another region or a bucket that is missing, without a secret in the error", async () => {
    for (const store of [
      bucketWith({ secret: "another" }),
      bucketWith({ keyId: "AKIDOTHER" }),
      bucketWith({ region: "us-east-1" }),
      bucketWith({ url: url.replace("/bucket", "/other") }),
      bucketWith({ url: "http://127.0.0.1:1/bucket" }),
    ]) {
      await assert.rejects(
        store.put(NAME, "image/png", CONTENT),
        (error: Error) => !`${error} ${error.cause}`.includes(SECRET),
      );
    }
    await bucketWith().put(NAME, "image/png", CONTENT);
    assert.equal(bucket.objects.get(`/bucket/${NAME}`)?.type, "image/png");
  });

  it("follows no redirect of a bucket, and waits for a silent one no longer than its signal says", async () => {
    const store = bucketWith();
    try {
      bucket.answer = (_req, res) => res.writeHead(307, { location: "http://127.0.0.1:1/" }).end();
      await assert.rejects(store.get(NAME, unending));
      bucket.answer = (_req, res) => res.writeHead(503).end("slow down");
      await assert.rejects(store.get(NAME, unending), /^Error: The bucket answered GET with 503$/);
      await assert.rejects(store.delete(NAME), /503/);
      bucket.answer = (_req, res) => void res.writeHead(200).write("a part");
      await assert.rejects(store.get(NAME, unending), /no length/);
      let asked = 0;
      bucket.answer = () => asked++;
      const stop = new AbortController();
      const got = assert.rejects(store.get(NAME, stop.signal), /abort/i);
      await eventually(() => asked === 1, { what: "the request" });
      stop.abort();
      await got;
    } finally {
      bucket.answer = undefined;
    }
  });
});
