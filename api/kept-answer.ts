import { createHash } from "node:crypto";
import { promisify } from "node:util";
import { gunzip, gzip } from "node:zlib";
import type { Request, Response } from "express";
import { localsOf } from "./rest/http.ts";

const compress = promisify(gzip);
const decompress = promisify(gunzip);

/** An answer that is made once, when it is first asked for, and kept compressed. */
export interface KeptAnswer {
  headers: Record<string, string>;
  read: () => Promise<Buffer>;
}

/** Sends a kept answer: compressed where the client takes that, and nothing where the client has it already. */
export function serveKept({ headers, read }: KeptAnswer) {
  let made: Promise<{ etag: string; zipped: Buffer }> | undefined;
  const make = async () => {
    const bytes = await read();
    const digest = createHash("sha256").update(bytes).digest("base64url").slice(0, 22);
    // Weak: the two encodings differ in their bytes.
    return { etag: `W/"${digest}"`, zipped: await compress(bytes) };
  };
  return async (req: Request, res: Response): Promise<void> => {
    localsOf(res).route = req.path;
    made ??= make().catch((error) => {
      made = undefined;
      throw error;
    });
    const { etag, zipped } = await made;
    res.set({ ...headers, ETag: etag, Vary: "Accept-Encoding" });
    if (req.fresh) return void res.status(304).end();
    // Nearly every client takes gzip; for the others the text is not kept a second time.
    if (!req.acceptsEncodings("gzip")) return void res.send(await decompress(zipped));
    res.set("Content-Encoding", "gzip").send(zipped);
  };
}
