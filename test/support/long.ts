/** Whether this is `npm run test:long`, which runs the long tests of a file without its others. */
export const isLong = (): boolean => process.env["TEST_LONG"] === "1";

const leaveOut = (): void => {};

/** `it` for the tests of `npm test`, and `longIt` for those of `npm run test:long`; each leaves the tests of the other out. */
export function testsOf(): { it: Mocha.TestFunction; longIt: Mocha.TestFunction } {
  const none = leaveOut as unknown as Mocha.TestFunction;
  return isLong() ? { it: none, longIt: it } : { it, longIt: none };
}
