import { crc32 } from "node:zlib";
import { type Cookies, consoleFetch } from "./console.ts";
import { insert, pngChunk, SAMPLES } from "./pictures.ts";

export interface UploadedImage {
  id: string;
  name: string;
  bytes: number;
  width: number;
  height: number;
  created_at: string;
  url: string;
}

interface UploadOptions {
  environment?: "LIVE" | "TEST";
  name?: string;
  /** Where the API listens; the stack's unless given. */
  at?: string;
}

export const tryUpload = (
  cookies: Cookies,
  teamId: string,
  content: Buffer,
  { environment = "LIVE", name = "a.png", at }: UploadOptions = {},
): Promise<Response> =>
  consoleFetch(
    { ...cookies },
    "POST",
    `/images?name=${encodeURIComponent(name)}`,
    content,
    { "mailkeel-team": teamId, "mailkeel-environment": environment, "content-type": "application/octet-stream" },
    at,
  );

/** Uploads an image as the console does. */
export async function uploadImage(...given: Parameters<typeof tryUpload>): Promise<UploadedImage> {
  const answer = await tryUpload(...given);
  if (answer.status !== 200) throw new Error(`the image was answered ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as UploadedImage;
}

/** A picture like no other, of about so many bytes. */
export function uniquePng(bytes = 8): Buffer {
  const profile = Buffer.alloc(bytes);
  profile.writeUInt32BE(crc32(Buffer.from(`${Math.random()}`)), profile.length - 4);
  return insert(SAMPLES.png, 33, pngChunk("iCCP", profile));
}
