import { crc32 } from "node:zlib";

/*
 * Pictures of 8 × 4 pixels as Chromium's canvas writes them, JPEG and WebP with a profile of colours, and what programs, cameras
 * and attackers put beside a picture.
 */

const JPEG = [
  "/9j/4AAQSkZJRgABAQAAAQABAAD/4gHYSUNDX1BST0ZJTEUAAQEAAAHIAAAAAAQwAABtbnRyUkdCIFhZWiAH4AABAAEAAAAAAABhY3NwAAAAAA",
  "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQAA9tYAAQAAAADTLQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
  "AAAAAAlkZXNjAAAA8AAAACRyWFlaAAABFAAAABRnWFlaAAABKAAAABRiWFlaAAABPAAAABR3dHB0AAABUAAAABRyVFJDAAABZAAAAChnVFJDAA",
  "ABZAAAAChiVFJDAAABZAAAAChjcHJ0AAABjAAAADxtbHVjAAAAAAAAAAEAAAAMZW5VUwAAAAgAAAAcAHMAUgBHAEJYWVogAAAAAAAAb6IAADj1",
  "AAADkFhZWiAAAAAAAABimQAAt4UAABjaWFlaIAAAAAAAACSgAAAPhAAAts9YWVogAAAAAAAA9tYAAQAAAADTLXBhcmEAAAAAAAQAAAACZmYAAP",
  "KnAAANWQAAE9AAAApbAAAAAAAAAABtbHVjAAAAAAAAAAEAAAAMZW5VUwAAACAAAAAcAEcAbwBvAGcAbABlACAASQBuAGMALgAgADIAMAAxADb/",
  "2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8ybqmx5moq6T/2wBDARweHigjKE4rK0",
  "6kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKT/wAARCAAEAAgDASIAAhEBAxEB/8QAFQABAQAA",
  "AAAAAAAAAAAAAAAAAAX/xAAXEAEAAwAAAAAAAAAAAAAAAAAABEKB/8QAFQEBAQAAAAAAAAAAAAAAAAAAAwX/xAAbEQABBAMAAAAAAAAAAAAAAA",
  "AAAgSBsQEzNP/aAAwDAQACEQMRAD8Akya6AsMOdM3kV7vVFH//2Q==",
].join("");
const WEBP = [
  "UklGRi4CAABXRUJQVlA4WAoAAAAgAAAABwAAAwAASUNDUMgBAAAAAAHIAAAAAAQwAABtbnRyUkdCIFhZWiAH4AABAAEAAAAAAABhY3NwAAAAAA",
  "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQAA9tYAAQAAAADTLQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
  "AAAAAAlkZXNjAAAA8AAAACRyWFlaAAABFAAAABRnWFlaAAABKAAAABRiWFlaAAABPAAAABR3dHB0AAABUAAAABRyVFJDAAABZAAAAChnVFJDAA",
  "ABZAAAAChiVFJDAAABZAAAAChjcHJ0AAABjAAAADxtbHVjAAAAAAAAAAEAAAAMZW5VUwAAAAgAAAAcAHMAUgBHAEJYWVogAAAAAAAAb6IAADj1",
  "AAADkFhZWiAAAAAAAABimQAAt4UAABjaWFlaIAAAAAAAACSgAAAPhAAAts9YWVogAAAAAAAA9tYAAQAAAADTLXBhcmEAAAAAAAQAAAACZmYAAP",
  "KnAAANWQAAE9AAAApbAAAAAAAAAABtbHVjAAAAAAAAAAEAAAAMZW5VUwAAACAAAAAcAEcAbwBvAGcAbABlACAASQBuAGMALgAgADIAMAAxADZW",
  "UDggQAAAAHACAJ0BKggABAAEAGglqAJ0cgD7AK//3AAHBgAA/u/qe6p+6/We+Zdxw///BJ8DqDY/00v3ZZd7y168su8mgAA=",
].join("");
const PNG = [
  "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAECAYAAACzzX7wAAAAIUlEQVR4AaSKsQkAAAyDJP//bNfSpUMEB8EIbk8aHvphAAAA//87ryGIAAAABk",
  "lEQVQDACxRD/lyAWkYAAAAAElFTkSuQmCC",
].join("");
/** One pixel, in two frames that are shown for ever. */
const GIF_FRAME = "21f90400640000002c0000000001000100000202440100";
const GIF_LOOP = "21ff0b4e45545343415045322e300301000000";
const GIF = `474946383961010001008000000000ff00ff00${GIF_LOOP}${GIF_FRAME}${GIF_FRAME}3b`;
/** One pixel, one frame. */
const ANIMATED =
  "UklGRlIAAABXRUJQVlA4WAoAAAASAAAAAAAAAAAAQU5JTQYAAAD/////AABBTk1GJgAAAAAAAAAAAAAAAAAAAGQAAABWUDhMDQAAAC8AAAAQBxAREYiI/gcA";
const LOSSLESS = "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==";

const decoded = (base64: string) => Buffer.from(base64, "base64");
export const SAMPLES = {
  jpg: decoded(JPEG),
  webp: decoded(WEBP),
  png: decoded(PNG),
  gif: Buffer.from(GIF, "hex"),
  animated: decoded(ANIMATED),
  lossless: decoded(LOSSLESS),
};

/** A private text that no cleaned image may hold. */
export const SECRET = "GPS 51.5007 N 0.1246 W, by Ada";

/** EXIF in either byte order, with a private text, and an orientation where one is given. */
export function exif(orientation?: number, isLittle = true): Buffer {
  const block = Buffer.alloc(8 + 2 + 24 + 4);
  const u16 = (value: number, at: number) =>
    isLittle ? block.writeUInt16LE(value, at) : block.writeUInt16BE(value, at);
  const u32 = (value: number, at: number) =>
    isLittle ? block.writeUInt32LE(value, at) : block.writeUInt32BE(value, at);
  block.write(isLittle ? "II" : "MM");
  u16(42, 2);
  u32(8, 4);
  u16(2, 8);
  // Artist: a text that stands behind the directory.
  for (const [n, value] of [0x013b, 2].entries()) u16(value, 10 + n * 2);
  u32(SECRET.length, 14);
  u32(block.length, 18);
  for (const [n, value] of [orientation === undefined ? 0x0100 : 0x0112, 3].entries()) u16(value, 22 + n * 2);
  u32(1, 26);
  u16(orientation ?? 8, 30);
  return Buffer.concat([block, Buffer.from(SECRET)]);
}

export function pngChunk(type: string, data: Buffer | string = ""): Buffer {
  const chunk = Buffer.concat([Buffer.alloc(4), Buffer.from(type), Buffer.from(data), Buffer.alloc(4)]);
  chunk.writeUInt32BE(Buffer.from(data).length);
  chunk.writeUInt32BE(crc32(chunk.subarray(4, -4)), chunk.length - 4);
  return chunk;
}

export function jpegSegment(marker: number, data: Buffer | string): Buffer {
  const body = Buffer.from(data);
  return Buffer.concat([Buffer.from([0xff, marker, (body.length + 2) >> 8, (body.length + 2) & 0xff]), body]);
}

export function webpChunk(type: string, data: Buffer | string): Buffer {
  const body = Buffer.from(data);
  const head = Buffer.from(`${type}\0\0\0\0`);
  head.writeUInt32LE(body.length, 4);
  return Buffer.concat([head, body, Buffer.alloc(body.length & 1)]);
}

/** With chunks at the end of the file. */
export function webpWith(webp: Buffer, ...chunks: Buffer[]): Buffer {
  const file = Buffer.concat([webp, ...chunks]);
  file.writeUInt32LE(file.length - 8, 4);
  return file;
}

export const insert = (bytes: Buffer, at: number, ...parts: Buffer[]): Buffer =>
  Buffer.concat([bytes.subarray(0, at), ...parts, bytes.subarray(at)]);

/** With bytes in the place of others. */
export function replaced(bytes: Buffer, at: number, ...values: number[]): Buffer {
  const copy = Buffer.from(bytes);
  copy.set(values, at);
  return copy;
}

/** A PNG of these sides: the header alone says so. */
export function pngOf(width: number, height: number): Buffer {
  const header = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 8, 6, 0, 0, 0]);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  return Buffer.concat([SAMPLES.png.subarray(0, 8), pngChunk("IHDR", header), SAMPLES.png.subarray(33)]);
}
