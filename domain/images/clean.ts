import { crc32 } from "node:zlib";
import { ApiError } from "../errors.ts";

/*
 * Reads the structure of an image and copies the parts that show it. The parts that a camera, an editor or an attacker
 * has put beside them stay behind, and so does all that follows the end. No picture is
 * decoded: a small file of many pixels costs nothing here.
 */

/** By the ending of their names. */
export const IMAGE_TYPES = { png: "image/png", jpg: "image/jpeg", gif: "image/gif", webp: "image/webp" } as const;
export type ImageEnding = keyof typeof IMAGE_TYPES;

export const MAX_IMAGE_BYTES = 5 * 1024 * 1024;
/** Pixels of a side. */
export const MAX_IMAGE_SIDE = 8_000;
/** Far more than programs write; reading as many takes some 10 ms. */
const MAX_PARTS = 20_000;

interface Picture {
  parts: Buffer[];
  width: number;
  height: number;
  /** As EXIF has it: 1 is upright, and from 5 on the sides are exchanged. */
  orientation?: number;
}

class Malformed extends Error {}

function must(isRight: boolean | undefined): void {
  if (isRight !== true) throw new Malformed();
}

/** `subarray` would give less of a part that was cut off. */
function take(bytes: Buffer, at: number, length: number): Buffer {
  must(at + length <= bytes.length);
  return bytes.subarray(at, at + length);
}

const nameAt = (bytes: Buffer, at: number, length = 4): string => bytes.toString("latin1", at, at + length);

const refusal = (message: string) => new ApiError("validation_failed", message, { param: "image" });

function checkSides(width: number, height: number): void {
  must(width > 0 && height > 0);
  if (width <= MAX_IMAGE_SIDE && height <= MAX_IMAGE_SIDE) return;
  const most = MAX_IMAGE_SIDE.toLocaleString("en");
  throw refusal(`The image has ${width} × ${height} pixels; each side may have ${most}.`);
}

const ORIENTATION = 0x0112;
const SHORT = 3;

/** @param exif from its byte order on; readers show an image upright whose EXIF they cannot read */
function orientationOf(exif: Buffer): number {
  const isLittle = nameAt(exif, 0, 2) === "II";
  const u16 = (at: number) => (isLittle ? exif.readUInt16LE(at) : exif.readUInt16BE(at));
  try {
    const directory = isLittle ? exif.readUInt32LE(4) : exif.readUInt32BE(4);
    for (let entry = directory + 2, left = u16(directory); left > 0; left--, entry += 12) {
      if (u16(entry) !== ORIENTATION || u16(entry + 2) !== SHORT) continue;
      return u16(entry + 8) <= 8 ? u16(entry + 8) || 1 : 1;
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return 1;
}

/** EXIF with the orientation alone. */
const exifOf = (orientation: number): Buffer =>
  Buffer.from([0x4d, 0x4d, 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, SHORT, 0, 0, 0, 1, 0, orientation, 0, 0, 0, 0, 0, 0]);

/** Of the picture, its colours and its animation. */
const PNG_KEPT = "IHDR PLTE IDAT IEND tRNS gAMA cHRM sRGB iCCP cICP sBIT bKGD pHYs acTL fcTL fdAT".split(" ");
/** Bits of a sample, by the type of colour. */
const PNG_DEPTHS: Record<number, number[]> = {
  0: [1, 2, 4, 8, 16],
  2: [8, 16],
  3: [1, 2, 4, 8],
  4: [8, 16],
  6: [8, 16],
};

function pngExif(orientation: number): Buffer {
  const chunk = Buffer.concat([Buffer.from("\0\0\0\x1aeXIf", "latin1"), exifOf(orientation), Buffer.alloc(4)]);
  chunk.writeUInt32BE(crc32(chunk.subarray(4, -4)), chunk.length - 4);
  return chunk;
}

function readPng(bytes: Buffer): Picture {
  const [width, height] = [bytes.readUInt32BE(16), bytes.readUInt32BE(20)];
  const [depth = 0, colour = 0, compression, filter, interlace = 0] = take(bytes, 24, 5);
  must(PNG_DEPTHS[colour]?.includes(depth) && compression === 0 && filter === 0 && interlace <= 1);
  checkSides(width, height);
  const parts = [take(bytes, 0, 8)];
  let orientation = 1;
  let hasData = false;
  for (let at = 8, n = 0, type = ""; type !== "IEND"; n++) {
    must(n < MAX_PARTS);
    const chunk = take(bytes, at, bytes.readUInt32BE(at) + 12);
    type = nameAt(chunk, 4);
    must((type === "IHDR") === (n === 0) && (n > 0 || chunk.length === 25));
    must(crc32(chunk.subarray(4, -4)) === chunk.readUInt32BE(chunk.length - 4));
    if (type === "eXIf") orientation = orientationOf(chunk.subarray(8, -4));
    hasData ||= type === "IDAT";
    if (PNG_KEPT.includes(type)) parts.push(chunk);
    // A capital says that no reader can do without the chunk.
    else must(/^[a-z][A-Za-z]{3}$/.test(type));
    at += chunk.length;
  }
  must(hasData);
  if (orientation > 1) parts.splice(2, 0, pngExif(orientation));
  return { parts, width, height, orientation };
}

/** Baseline, extended and progressive: browsers show no other. */
const JPEG_FRAMES = [0xc0, 0xc1, 0xc2];
const JPEG_SCAN = 0xda;
/** Frames, tables, restarts and scans. */
const JPEG_KEPT = [...JPEG_FRAMES, 0xc4, 0xdb, 0xdd, JPEG_SCAN];
/** Segments that change the colours, by their marker and the start of their data; JFIF without its thumbnail. */
const JPEG_COLOURS = /^(\xe0JFIF\0.{7}\0\0$|\xeeAdobe.{7}$|\xe2ICC_PROFILE\0)/s;

/** @returns the place of the marker behind the data of a scan */
function endOfScan(bytes: Buffer, at: number): number {
  for (;;) {
    while (bytes[at] !== 0xff && at < bytes.length) at++;
    const next = bytes.readUInt8(at + 1);
    if (next !== 0 && next !== 0xff && (next < 0xd0 || next > 0xd7)) return at;
    at += next === 0xff ? 1 : 2;
  }
}

function readJpeg(bytes: Buffer): Picture {
  const parts = [bytes.subarray(0, 2)];
  let [width, height, orientation, scans] = [0, 0, 1, 0];
  for (let at = 2, n = 0; ; n++) {
    must(n < MAX_PARTS && bytes[at] === 0xff);
    while (bytes[at + 1] === 0xff) at++;
    const marker = bytes.readUInt8(at + 1);
    if (marker === 0xd9) break;
    const segment = take(bytes, at, bytes.readUInt16BE(at + 2) + 2);
    const data = segment.subarray(4);
    at += segment.length;
    if (JPEG_FRAMES.includes(marker)) {
      must(width === 0 && data.length === 6 + 3 * data.readUInt8(5));
      [height, width] = [data.readUInt16BE(1), data.readUInt16BE(3)];
      checkSides(width, height);
    }
    if (marker === 0xe1 && nameAt(data, 0, 6) === "Exif\0\0") orientation = orientationOf(data.subarray(6));
    const isKept = JPEG_KEPT.includes(marker) || JPEG_COLOURS.test(nameAt(segment, 1, 1) + nameAt(data, 0, 20));
    if (isKept) parts.push(segment);
    // Notes of programs. Others are frames of other kinds, or have no length.
    else must(marker >= 0xe0);
    if (marker !== JPEG_SCAN) continue;
    must(width > 0);
    scans++;
    const end = endOfScan(bytes, at);
    parts.push(bytes.subarray(at, end));
    at = end;
  }
  must(scans > 0);
  parts.push(Buffer.from([0xff, 0xd9]));
  const exif = Buffer.concat([Buffer.from("\xff\xe1\0\x22Exif\0\0", "latin1"), exifOf(orientation)]);
  if (orientation > 1) parts.splice(1, 0, exif);
  return { parts, width, height, orientation };
}

const GIF_LOOPS = ["NETSCAPE2.0", "ANIMEXTS1.0"];

/** An extension with the time of a frame, or one that says how often all are shown. */
const isOfAnimation = (block: Buffer): boolean =>
  (block[1] === 0xf9 && block.length === 8) ||
  (block[1] === 0xff && block.length === 19 && GIF_LOOPS.includes(nameAt(block, 3, 11)));

function readGif(bytes: Buffer): Picture {
  const [width, height] = [bytes.readUInt16LE(6), bytes.readUInt16LE(8)];
  checkSides(width, height);
  const coloursOf = (flags: number) => (flags & 0x80 ? 3 << ((flags & 7) + 1) : 0);
  const endOfBlocks = (at: number): number => {
    for (let length = bytes.readUInt8(at); length > 0; length = bytes.readUInt8(at)) at += length + 1;
    return at + 1;
  };
  let at = 13 + coloursOf(bytes.readUInt8(10));
  const parts = [take(bytes, 0, at)];
  let [frames, blocks] = [0, 0];
  for (let kind = nameAt(bytes, at, 1); kind !== ";"; kind = nameAt(bytes, at, 1)) {
    const start = at;
    must(++blocks < MAX_PARTS && (kind === "," || kind === "!"));
    if (kind === ",") {
      checkSides(bytes.readUInt16LE(at + 5), bytes.readUInt16LE(at + 7));
      frames++;
    }
    at = endOfBlocks(kind === "," ? at + 11 + coloursOf(bytes.readUInt8(at + 9)) : at + 2);
    const block = bytes.subarray(start, at);
    if (kind === "," || isOfAnimation(block)) parts.push(block);
  }
  must(frames > 0);
  parts.push(Buffer.from(";"));
  return { parts, width, height };
}

function webpChunk(type: string, ...data: Buffer[]): Buffer {
  const length = data.reduce((sum, part) => sum + part.length, 0);
  const head = Buffer.from(`${type}\0\0\0\0`, "latin1");
  head.writeUInt32LE(length, 4);
  return Buffer.concat([head, ...data, Buffer.alloc(length & 1)]);
}

/** The sides that a chunk states: of the file, of a frame, or of a picture; none of any other chunk. */
function webpSides(type: string, data: Buffer): number[] {
  const longAt = (at: number) => [data.readUIntLE(at, 3) + 1, data.readUIntLE(at + 3, 3) + 1];
  if (type === "VP8X") return longAt(4);
  if (type === "ANMF") return longAt(6);
  if (type === "VP8 ") {
    must((data.readUInt8(0) & 1) === 0 && data.readUIntLE(3, 3) === 0x2a019d);
    return [data.readUInt16LE(6) & 0x3fff, data.readUInt16LE(8) & 0x3fff];
  }
  if (type !== "VP8L") return [];
  must(data.readUInt8(0) === 0x2f && data.readUInt8(4) >>> 5 === 0);
  const bits = data.readUInt32LE(1);
  return [(bits & 0x3fff) + 1, ((bits >>> 14) & 0x3fff) + 1];
}

/** Those beside the head: a profile, an animation and its frames, transparency, and the picture of a file without frames. */
const WEBP_KEPT = ["ICCP", "ANIM", "ANMF", "ALPH", "VP8 ", "VP8L"];
/** Of the head: EXIF and XMP follow. No browser heeds the orientation in them. */
const WEBP_METADATA = 0x08 | 0x04;

function readWebp(bytes: Buffer): Picture {
  must(nameAt(bytes, 8) === "WEBP");
  const chunks = take(bytes, 12, bytes.readUInt32LE(4) - 4);
  const isExtended = nameAt(chunks, 0) === "VP8X";
  const parts: Buffer[] = [];
  let [width, height, pictures] = [0, 0, 0];
  for (let at = 0, n = 0, data: Buffer; at < chunks.length; at += 8 + data.length + (data.length & 1), n++) {
    const type = nameAt(chunks, at);
    data = take(chunks, at + 8, chunks.readUInt32LE(at + 4));
    const sides = webpSides(type, data);
    const [ownWidth = width, ownHeight = height] = sides;
    if (n === 0) {
      [width, height] = [ownWidth, ownHeight];
      checkSides(width, height);
    }
    must(n < MAX_PARTS && ownWidth <= width && ownHeight <= height);
    if (sides.length > 0 && type !== "VP8X") pictures++;
    if (n === 0 || (isExtended && WEBP_KEPT.includes(type))) parts.push(webpChunk(type, data));
  }
  must(pictures > 0);
  const [head] = parts;
  if (isExtended) head?.writeUInt8(head.readUInt8(8) & ~WEBP_METADATA, 8);
  return { parts: [webpChunk("RIFF", Buffer.from("WEBP"), ...parts)], width, height };
}

const READERS: Record<ImageEnding, { starts: string; read: (bytes: Buffer) => Picture }> = {
  png: { starts: "\x89PNG\r\n\x1a\n", read: readPng },
  jpg: { starts: "\xff\xd8\xff", read: readJpeg },
  gif: { starts: "GIF8", read: readGif },
  webp: { starts: "RIFF", read: readWebp },
};

export interface CleanImage {
  ending: ImageEnding;
  bytes: Buffer;
  /** In pixels, as the image is shown. */
  width: number;
  height: number;
}

/**
 * The image without its metadata; its profile of colours and its orientation stay. The content alone says of which type it is.
 * @throws {ApiError} `validation_failed` for another type, a side that is too long, and an image that is cut off or damaged
 */
export function cleanImage(bytes: Buffer): CleanImage {
  const ending = (Object.keys(READERS) as ImageEnding[]).find((each) =>
    nameAt(bytes, 0, 8).startsWith(READERS[each].starts),
  );
  if (ending === undefined) throw refusal("The file is no PNG, JPEG, GIF or WebP.");
  try {
    const { parts, width, height, orientation = 1 } = READERS[ending].read(bytes);
    const [shownWidth, shownHeight] = orientation >= 5 ? [height, width] : [width, height];
    return { ending, bytes: Buffer.concat(parts), width: shownWidth, height: shownHeight };
  } catch (error) {
    if (!(error instanceof Malformed || error instanceof RangeError)) throw error;
    throw refusal("The image is damaged or incomplete; save it once more in the program that made it.");
  }
}
