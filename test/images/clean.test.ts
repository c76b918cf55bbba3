import assert from "node:assert/strict";
import { deflateSync } from "node:zlib";
import { ApiError } from "../../domain/errors.ts";
import { cleanImage, MAX_IMAGE_SIDE } from "../../domain/images/clean.ts";
import {
  exif,
  insert,
  jpegSegment,
  pngChunk,
  pngOf,
  replaced,
  SAMPLES,
  SECRET,
  webpChunk,
  webpWith,
} from "../support/pictures.ts";

const HTML = Buffer.from("<html><script>alert(1)</script>");
const { jpg, png, gif, webp, animated, lossless } = SAMPLES;
const factsOf = (bytes: Buffer) => {
  const { bytes: _bytes, ...facts } = cleanImage(bytes);
  return facts;
};
/** Behind the signature and the first chunk; the first segment; the screen and its colours; the frame. */
const PNG_AT = 33;
const JPEG_AT = 2;
const GIF_AT = 19;

const refuses = (bytes: Buffer, message: RegExp) =>
  assert.throws(
    () => cleanImage(bytes),
    (error) => error instanceof ApiError && error.code === "validation_failed" && message.test(error.message),
  );

describe("An uploaded image", () => {
  it("keeps every byte that shows it, its profile of colours and its animation", () => {
    for (const [name, bytes] of Object.entries(SAMPLES)) {
      const { bytes: cleaned } = cleanImage(bytes);
      // Chromium cuts one picture of a PNG into several chunks.
      assert.deepEqual(cleaned, bytes, name);
    }
    assert.ok(jpg.includes("ICC_PROFILE") && webp.includes("ICCP") && gif.includes("NETSCAPE2.0"));
    const ofPng = { ending: "png", width: 8, height: 4 };
    assert.deepEqual([png, jpg, webp].map(factsOf), [ofPng, { ...ofPng, ending: "jpg" }, { ...ofPng, ending: "webp" }]);
    assert.deepEqual(factsOf(gif), { ending: "gif", width: 1, height: 1 });
    assert.deepEqual([animated, lossless].map(factsOf), Array(2).fill({ ending: "webp", width: 1, height: 1 }));
  });

  it("loses places, names, comments, thumbnails and all that follows its end", () => {
    const thumbnail = Buffer.concat([
      Buffer.from("JFIF\0\x01\x01\0\0\x01\0\x01\x01\x01"),
      Buffer.from("rgb"),
      Buffer.from(SECRET),
    ]);
    const xmp = `http://ns.adobe.com/xap/1.0/\0<x:xmpmeta>${SECRET}</x:xmpmeta>`;
    const hidden: [string, Buffer, Buffer][] = [
      [
        "PNG",
        png,
        insert(png, PNG_AT, pngChunk("tEXt", `Author\0${SECRET}`), pngChunk("eXIf", exif()), pngChunk("prVt", SECRET)),
      ],
      [
        "PNG's compressed text",
        png,
        insert(png, PNG_AT, pngChunk("zTXt", Buffer.concat([Buffer.from("a\0\0"), deflateSync(SECRET)]))),
      ],
      ["EXIF", jpg, insert(jpg, JPEG_AT, jpegSegment(0xe1, Buffer.concat([Buffer.from("Exif\0\0"), exif()])))],
      ["XMP", jpg, insert(jpg, JPEG_AT, jpegSegment(0xe1, xmp), jpegSegment(0xe1, `${xmp.replace("/\0", "/ext\0")}`))],
      [
        "IPTC, a comment",
        jpg,
        insert(jpg, JPEG_AT, jpegSegment(0xed, `Photoshop 3.0\0${SECRET}`), jpegSegment(0xfe, SECRET)),
      ],
      [
        "further pictures",
        jpg,
        insert(jpg, JPEG_AT, jpegSegment(0xe2, `MPF\0${SECRET}`), jpegSegment(0xe0, `JFXX\0${SECRET}`)),
      ],
      ["a thumbnail", jpg, insert(jpg, JPEG_AT, jpegSegment(0xe0, thumbnail))],
      [
        "GIF",
        gif,
        insert(gif, GIF_AT, Buffer.from(`!\xfe\x1e${SECRET}\0!\xff\x0bXMP DataXMP\x1e${SECRET}\0`, "latin1")),
      ],
      [
        "WebP",
        webp,
        webpWith(
          replaced(webp, 20, 0x2c),
          webpChunk("EXIF", exif()),
          webpChunk("XMP ", xmp),
          webpChunk("ABCD", SECRET),
        ),
      ],
      ["a plain WebP", lossless, webpWith(lossless, webpChunk("XMP ", xmp), webpChunk("EXIF", exif(6)))],
    ];
    for (const [name, clean, bytes] of hidden) {
      const cleaned = cleanImage(Buffer.concat([bytes, HTML])).bytes;
      assert.deepEqual(cleaned, clean, name);
      assert.ok(!cleaned.includes(SECRET.slice(0, 10)) && !cleaned.includes("<html"), name);
    }
  });

  it("keeps its orientation where browsers heed it, which says how its sides are shown", () => {
    for (const isLittle of [true, false]) {
      const block = exif(6, isLittle);
      const named = Buffer.concat([Buffer.from("Exif\0\0"), block]);
      for (const [bytes, sides] of [
        [insert(jpg, JPEG_AT, jpegSegment(0xe1, named)), [4, 8]],
        [insert(png, PNG_AT, pngChunk("eXIf", block)), [4, 8]],
        [webpWith(replaced(webp, 20, 0x28), webpChunk("EXIF", block)), [8, 4]],
        [webpWith(replaced(webp, 20, 0x28), webpChunk("EXIF", named)), [8, 4]],
        [insert(jpg, JPEG_AT, jpegSegment(0xe1, Buffer.concat([Buffer.from("Exif\0\0"), exif(3, isLittle)]))), [8, 4]],
        [insert(jpg, JPEG_AT, jpegSegment(0xe1, Buffer.concat([Buffer.from("Exif\0\0"), exif(77, isLittle)]))), [8, 4]],
      ] as const) {
        const { width, height, bytes: cleaned } = cleanImage(bytes);
        assert.deepEqual([width, height], sides);
        assert.ok(!cleaned.includes(SECRET));
        const again = cleanImage(cleaned);
        assert.deepEqual(
          [again.width, again.height, again.bytes],
          [width, height, cleaned],
          "a second pass changes nothing",
        );
      }
    }
  });

  it("is read upright where its EXIF is damaged, and no directory leads out of it", () => {
    const block = exif(6);
    const damaged = [
      Buffer.alloc(0),
      block.subarray(0, 7),
      block.subarray(0, 20),
      replaced(block, 4, 0xff, 0xff, 0xff, 0xff),
    ];
    for (const each of [...damaged, replaced(block, 8, 0xff, 0xff), replaced(exif(), 8, 0xff, 0xff)]) {
      const { width } = cleanImage(insert(png, PNG_AT, pngChunk("eXIf", each)));
      assert.ok(width === 8 || width === 4);
    }
  });

  it("is refused by its content, under any name", () => {
    for (const other of [
      "",
      "GIF",
      "<svg xmlns='http://www.w3.org/2000/svg'/>",
      "%PDF-1.7",
      "BM\0\0",
      "\0\0\0\x1cftypavif",
      HTML.toString(),
    ]) {
      refuses(Buffer.from(other, "latin1"), /^The file is no PNG, JPEG, GIF or WebP\.$/);
    }
  });

  it("is refused where it is cut off, anywhere", () => {
    for (const [name, bytes] of Object.entries(SAMPLES)) {
      for (let length = 8; length < bytes.length; length++) {
        assert.throws(() => cleanImage(bytes.subarray(0, length)), ApiError, `${name} of ${length} bytes`);
      }
    }
  });

  it("is refused where its structure is wrong", () => {
    const header = png.subarray(8, PNG_AT);
    const jpegData = jpg.indexOf(Buffer.from([0xff, 0xda]));
    const jpegFrame = jpg.indexOf(Buffer.from([0xff, 0xc0]));
    for (const [name, bytes] of Object.entries({
      "a wrong checksum": replaced(png, 29, 1),
      "two headers": insert(png, PNG_AT, header),
      "a header of another length": Buffer.concat([
        png.subarray(0, 8),
        pngChunk("IHDR", png.subarray(16, 28)),
        png.subarray(PNG_AT),
      ]),
      "no header": Buffer.concat([png.subarray(0, 8), png.subarray(PNG_AT)]),
      "another type of colour": Buffer.concat([
        png.subarray(0, 8),
        pngChunk("IHDR", replaced(png.subarray(16, 29), 9, 5)),
        png.subarray(PNG_AT),
      ]),
      "a chunk that no reader knows and all need": insert(png, PNG_AT, pngChunk("NEWD", "x")),
      "a name that is none": insert(png, PNG_AT, pngChunk("a<b>", "x")),
      "no picture in a PNG": Buffer.concat([png.subarray(0, PNG_AT), pngChunk("IEND")]),
      "a length beyond the end": replaced(png, 8, 0xff, 0xff, 0xff, 0xff),
      "an arithmetic frame": replaced(jpg, jpegFrame + 1, 0xc9),
      "a lossless frame": replaced(jpg, jpegFrame + 1, 0xc3),
      "two frames": insert(jpg, jpegFrame, jpg.subarray(jpegFrame, jpegFrame + 19)),
      "a height that comes later": replaced(jpg, jpegFrame + 5, 0, 0),
      "a segment shorter than its length": replaced(jpg, JPEG_AT + 2, 0, 0),
      "no frame": jpg.subarray(0, jpegFrame).length
        ? Buffer.concat([jpg.subarray(0, jpegFrame), jpg.subarray(jpegData)])
        : jpg,
      "no scan": Buffer.concat([jpg.subarray(0, jpegData), Buffer.from([0xff, 0xd9])]),
      "HTML among its segments": insert(jpg, JPEG_AT + 18, HTML),
      "a second start": insert(jpg, JPEG_AT, Buffer.from([0xff, 0xd8])),
      "no frame in a GIF": Buffer.concat([gif.subarray(0, GIF_AT), Buffer.from(";")]),
      "HTML among its blocks": insert(gif, GIF_AT, HTML),
      "another start of a GIF": replaced(gif, 6, 0, 0),
      "a picture larger than its canvas": replaced(webp, 24, 6),
      "a frame larger than its canvas": replaced(animated, 58, 1),
      "an animation without a frame": webpWith(animated.subarray(0, 44)),
      "a picture without its start": replaced(webp, webp.indexOf("VP8 ") + 11, 0),
      "another RIFF": Buffer.concat([lossless.subarray(0, 8), Buffer.from("WAVE"), lossless.subarray(12)]),
      "a size beyond the end": replaced(lossless, 4, 0xff),
      "a size below none": replaced(lossless, 4, 0),
    })) {
      try {
        cleanImage(bytes);
        assert.fail(name);
      } catch (error) {
        assert.ok(error instanceof ApiError && /damaged or incomplete/.test(error.message), `${name}: ${error}`);
      }
    }
  });

  it("has sides of so many pixels at most, by what each of its parts states", () => {
    assert.equal(cleanImage(pngOf(MAX_IMAGE_SIDE, 1)).width, MAX_IMAGE_SIDE);
    const jpegFrame = jpg.indexOf(Buffer.from([0xff, 0xc0]));
    const animatedFrame = gif.indexOf(",");
    for (const bytes of [
      pngOf(MAX_IMAGE_SIDE + 1, 1),
      pngOf(1, 0x7fffffff),
      replaced(jpg, jpegFrame + 5, 0xff, 0xff),
      replaced(gif, 6, 0xff, 0xff),
      replaced(gif, animatedFrame + 5, 0xff, 0xff),
      replaced(webp, 24, 0xff, 0xff),
    ]) {
      refuses(bytes, /× [\d]+ pixels; each side may have 8,000\.$/);
    }
  });

  it("is refused where it has more parts than any program writes, which would take a second to read", () => {
    const many = (part: Buffer, count: number) => Buffer.alloc(count * part.length, part);
    const scan = jpg.indexOf(Buffer.from([0xff, 0xda]));
    for (const withParts of [
      (count: number) => insert(png, PNG_AT, many(pngChunk("aBCd"), count)),
      (count: number) => insert(jpg, JPEG_AT, many(jpegSegment(0xfe, ""), count)),
      (count: number) => insert(gif, GIF_AT, many(Buffer.from("!\xfe\0", "latin1"), count)),
      (count: number) => webpWith(webp, many(webpChunk("ABCD", ""), count)),
    ]) {
      assert.ok(cleanImage(withParts(19_000)).bytes.length < 1_000);
      refuses(withParts(20_001), /damaged/);
    }
    refuses(Buffer.concat([jpg.subarray(0, scan + 14), Buffer.alloc(5 * 1024 * 1024, 0xff)]), /damaged/);
  });

  it("is refused or cleaned, and is never an error, with any of its bytes changed", () => {
    for (const bytes of Object.values(SAMPLES)) {
      for (let at = 0; at < bytes.length; at++) {
        for (const value of [0, 1, 0x7f, 0x80, 0xff]) {
          try {
            cleanImage(replaced(bytes, at, value));
          } catch (error) {
            assert.ok(error instanceof ApiError, `${at}: ${error}`);
          }
        }
      }
    }
  });
});
