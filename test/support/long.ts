/**
 * Whether a file of tests is loaded for its long part. `NAME.long.test.ts`, which `npm run test:long` runs, loads
 * `NAME.test.ts` so: its long tests stand beside those of `npm test`, with the same helpers.
 */
export const isLong = ({ url }: ImportMeta): boolean => url.endsWith("?long");

const leaveOut = (): void => {};

/** `it` for the tests of `npm test`, and `longIt` for those of `npm run test:long`; each leaves the tests of the other out. */
export function testsOf(meta: ImportMeta): { it: Mocha.TestFunction; longIt: Mocha.TestFunction } {
  const none = leaveOut as unknown as Mocha.TestFunction;
  return isLong(meta) ? { it: none, longIt: it } : { it, longIt: none };
}
