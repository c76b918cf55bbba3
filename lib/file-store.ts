import { mkdir, open, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import { AwsClient } from "aws4fetch";
import type { Env } from "../config/env.ts";

export interface StoredFile {
  bytes: number;
  content: Readable;
}

/** Files that are written once, each under a name of its own: letters, digits, points and slashes. */
export interface FileStore {
  /** The file outlives a loss of power from then on. */
  put(name: string, type: string, bytes: Buffer): Promise<void>;
  /** Undefined where there is none. @param signal ends the wait for the file, and its content */
  get(name: string, signal: AbortSignal): Promise<StoredFile | undefined>;
  /** Also what an interrupted `put` has left; does nothing where there is none. */
  delete(name: string): Promise<void>;
}

const WRITE_MS = 20_000;

async function syncFolder(path: string): Promise<void> {
  const handle = await open(path);
  await handle.sync().finally(() => handle.close());
}

function folderStore(root: string): FileStore {
  const partOf = (path: string) => `${path}.part`;
  return {
    async put(name, _type, bytes) {
      const path = join(root, name);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(partOf(path), bytes, { flush: true });
      await rename(partOf(path), path);
      for (const folder of [dirname(path), root]) await syncFolder(folder);
    },
    async get(name, signal) {
      const handle = await open(join(root, name)).catch((error) => {
        if (error.code === "ENOENT") return undefined;
        throw error;
      });
      try {
        const { size = 0 } = (await handle?.stat()) ?? {};
        signal.throwIfAborted();
        return handle && { bytes: size, content: handle.createReadStream({ signal }) };
      } catch (error) {
        await handle?.close();
        throw error;
      }
    },
    async delete(name) {
      const path = join(root, name);
      for (const each of [partOf(path), path]) await rm(each, { force: true });
    },
  };
}

function bucketStore(url: string, region: string, accessKeyId: string, secretAccessKey: string): FileStore {
  const client = new AwsClient({ accessKeyId, secretAccessKey, region, service: "s3", retries: 0 });
  /** @returns undefined for 404 */
  const request = async (method: string, name: string, init: RequestInit): Promise<Response | undefined> => {
    const answer = await client.fetch(`${url}/${name}`, { method, redirect: "error", ...init });
    if (answer.ok) return answer;
    await answer.body?.cancel();
    if (answer.status === 404) return undefined;
    throw new Error(`The bucket answered ${method} with ${answer.status}`);
  };
  const soon = () => AbortSignal.timeout(WRITE_MS);
  return {
    async put(name, type, bytes) {
      const put = await request("PUT", name, {
        body: bytes as Uint8Array<ArrayBuffer>,
        headers: { "Content-Type": type },
        signal: soon(),
      });
      await put?.body?.cancel();
      if (!put) throw new Error("IMAGES_S3_URL: there is no such bucket");
    },
    async get(name, signal) {
      const answer = await request("GET", name, { headers: { "Accept-Encoding": "identity" }, signal });
      if (!answer?.body) return undefined;
      const bytes = Number(answer.headers.get("Content-Length") ?? Number.NaN);
      if (Number.isNaN(bytes)) throw new Error("The bucket gave no length");
      return { bytes, content: Readable.fromWeb(answer.body as ReadableStream) };
    },
    delete: async (name) => void (await request("DELETE", name, { signal: soon() }))?.body?.cancel(),
  };
}

type StoreSettings = Pick<
  Env,
  "IMAGES_DIRECTORY" | "IMAGES_S3_URL" | "IMAGES_S3_REGION" | "IMAGES_S3_KEY_ID" | "IMAGES_S3_SECRET_KEY"
>;

/** Undefined where the settings name none. */
export function openImageStore(settings: StoreSettings): FileStore | undefined {
  const { IMAGES_DIRECTORY: folder, IMAGES_S3_URL: url, IMAGES_S3_REGION: region = "" } = settings;
  const { IMAGES_S3_KEY_ID: keyId = "", IMAGES_S3_SECRET_KEY: secretKey = "" } = settings;
  if (url !== undefined) return bucketStore(url, region, keyId, secretKey);
  return folder === undefined ? undefined : folderStore(folder);
}
