import { createHash } from "node:crypto";
import { createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";

/** A file on the Internet, and the digest without which it is not used. */
export interface PinnedFile {
  url: string;
  /** In hex. */
  sha256: string;
}

/**
 * Downloads a file and keeps it only when its digest is the expected one.
 * @throws {Error} otherwise; the file does not exist then
 */
export async function downloadPinned({ url, sha256 }: PinnedFile, file: string): Promise<void> {
  try {
    const response = await fetch(url);
    if (!response.ok || response.body === null) throw new Error(`${url} answered with ${response.status}`);
    const hash = createHash("sha256");
    const hashed = new Transform({
      transform(chunk: Buffer, _encoding, done) {
        hash.update(chunk);
        done(null, chunk);
      },
    });
    await pipeline(Readable.fromWeb(response.body), hashed, createWriteStream(file));
    const digest = hash.digest("hex");
    if (digest !== sha256) throw new Error(`${url} has the SHA-256 digest ${digest} instead of ${sha256}`);
  } catch (error) {
    await rm(file, { force: true });
    throw error;
  }
}
