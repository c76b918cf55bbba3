import { ANY_MARKER } from "./marker.ts";

/** Most characters between two places where a line may break: a longer one may push what follows out of sight. */
const MAX_UNBROKEN_CHARS = 60;
/** Characters that a merge tag or a condition may print without a break. */
const PRINTED_CHARS = 40;
/** The same inside a branch of a condition: no word of it has two of them, as conditions inside each other would multiply. */
const PRINTED_CHARS_INSIDE = 30;
/** An image may stand between two characters without a break. */
const IMAGE_CHARS = 20;
/** Most elements inside each other: each may move its content to the right, if by a few pixels only. */
const MAX_DEPTH = 30;
/** Most signs above and below a letter. No script has more; piled up, they cover other lines. */
const MAX_MARKS = 4;

/**
 * A line may break here, and between two letters of scripts that write no spaces: not beside other characters, some of which
 * forbid it, nor before the signs that repeat a letter.
 */
const BREAK =
  /[ \t\n\r\f]|(?<=[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}])(?=(?![\u3005\u303b\u309d\u309e\u30fd\u30fe])[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}])/u;
/** Letters of these elements, or with such a size, are large. */
const LARGE = /^h[12]$/;
const LARGE_SIZE = /font-size\s*:\s*(?:2[1-9]|3|1[6-9](?:\.\d+)?pt|20(?:\.\d+)?pt|20\.)/i;
/** Most characters of large letters between two places where a line may break */
const MAX_LARGE_CHARS = 20;
const MARK = /\p{M}/u;
/** They change the order of letters. */
const DIRECTION = /[\u202a-\u202e\u2066-\u2069]/;
/** They begin and end lines. */
const BLOCKS = new Set(
  `html body div p center table tbody thead tfoot tr td th ul ol li dl dt dd h1 h2 h3 h4 h5 h6 blockquote br hr section
  article header footer main nav address head title meta style`.split(/\s+/),
);

/** @param printed characters that each marker in the word stands for */
const lengthOf = (word: string, printed: number): number =>
  word.length + (word.match(ANY_MARKER) ?? []).length * printed;

/** Whether a branch of a condition is as narrow as the text that stands for it. */
export const isNarrow = (branch: string): boolean =>
  !/<(?:table|tr|td|th|img)\b/i.test(branch) &&
  branch
    .replace(/<[^<>]*>/g, "")
    .split(BREAK)
    .every((word) => lengthOf(word, PRINTED_CHARS_INSIDE) <= PRINTED_CHARS);

/** Follows a document, and finds what may make it wider than a screen, or put one line over another. */
export class Flow {
  #isBounded = true;
  /** An image may be wider than a screen */
  #hasWideImage = false;
  /** Some elements are as wide as what they hold */
  #hasWideBox = false;
  #hasLargeLetters = false;
  #hasLongWord = false;
  #unbroken = 0;
  /** The same of the author's own text only, as names are rarely long. */
  #written = 0;
  #marks = 0;
  /** Cells of each row that is open */
  readonly #cells: number[] = [];

  /** Nothing of this kind was found so far. */
  get isBounded(): boolean {
    return (
      this.#isBounded && !(this.#hasWideImage && this.#hasWideBox) && !(this.#hasLargeLetters && this.#hasLongWord)
    );
  }

  open(name: string, { width, style = "" }: Record<string, string>, depth: number): void {
    if (BLOCKS.has(name)) this.#unbroken = this.#written = 0;
    if (name === "tr") this.#cells.push(0);
    this.#hasLargeLetters ||= LARGE.test(name) || LARGE_SIZE.test(style);
    if (name === "img") {
      this.#unbroken += IMAGE_CHARS;
      this.#hasWideImage ||= width === undefined || /width/i.test(style);
    }
    this.#hasWideBox ||= name === "table" || /inline-block/i.test(style);
    if (name === "td" || name === "th") {
      const cells = (this.#cells.pop() ?? 0) + 1;
      this.#cells.push(cells);
      // Side by side, they may be wider than a screen.
      if (cells > 1) this.#isBounded = false;
    }
    this.#check(depth);
  }

  text(text: string): void {
    const words = text.split(BREAK).map((word) => lengthOf(word, PRINTED_CHARS));
    const [first = 0, ...rest] = words;
    this.#unbroken += first;
    this.#check(0);
    const [begun = 0, ...others] = text.split(BREAK).map((word) => lengthOf(word, 0));
    this.#written += begun;
    this.#hasLongWord ||= [this.#written, ...others].some((chars) => chars > MAX_LARGE_CHARS);
    this.#written = others.at(-1) ?? this.#written;
    if (rest.some((chars) => chars > MAX_UNBROKEN_CHARS) || DIRECTION.test(text)) this.#isBounded = false;
    this.#unbroken = rest.at(-1) ?? this.#unbroken;
    // An entity is a text of its own, so marks are counted over several.
    for (const char of text) {
      this.#marks = MARK.test(char) ? this.#marks + 1 : 0;
      if (this.#marks > MAX_MARKS) this.#isBounded = false;
    }
  }

  close(name: string): void {
    if (BLOCKS.has(name)) this.#unbroken = this.#written = 0;
    if (name === "tr") this.#cells.pop();
  }

  #check(depth: number): void {
    if (this.#unbroken > MAX_UNBROKEN_CHARS || depth > MAX_DEPTH) this.#isBounded = false;
  }
}
