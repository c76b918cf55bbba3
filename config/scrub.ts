/** A mask of words begins at the start of a word only, by looking behind: else a long word would be read once per character. */
const MASKS: readonly (readonly [RegExp, string])[] = [
  // In a driver's message, text in quotes is the value of a parameter.
  [/'(?:[^']|'')*'/g, "'…'"],
  [/\bmk_(live|test)_([0-9A-Za-z]{12})_[0-9A-Za-z]+/g, "mk_$1_$2_…"],
  [/\bmk_(?:live|test)_(?![0-9A-Za-z]{12}_…)\S+/g, "[key]"],
  [/\bwhsec_\S+/g, "[secret]"],
  [/\bbearer\s+\S+/gi, "Bearer [token]"],
  [/(?<![^\s@<>"'(),;:=/?&[\]{}])[^\s@<>"'(),;:=/?&[\]{}]+(?:@|%40)[^\s@<>"'(),;:=/?&[\]{}]+/gi, "[address]"],
  [/(?<![\w-])[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}\b/g, "[token]"],
  // Longer than any id: signatures, tokens, hashes.
  [/\b[\w-]{43,}\b/g, "[token]"],
];

export const scrub = (text: string): string =>
  MASKS.reduce((rest, [pattern, mask]) => rest.replace(pattern, mask), text);

export interface ScrubbedError {
  type: string;
  message: string;
  code?: string;
  stack?: string;
  cause?: ScrubbedError;
}

const MAX_CAUSES = 5;

export function scrubError(error: unknown, depth = 0): ScrubbedError {
  if (!(error instanceof Error)) return { type: typeof error, message: scrub(String(error)) };
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
  return {
    type: error.name,
    message: scrub(error.message),
    ...(code === undefined ? {} : { code }),
    ...(error.stack === undefined ? {} : { stack: scrub(error.stack) }),
    ...(error.cause === undefined || depth >= MAX_CAUSES ? {} : { cause: scrubError(error.cause, depth + 1) }),
  };
}
