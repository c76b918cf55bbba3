/** Whether this is `npm run test:long`, which runs the long tests of a file without its others. */
export const isLong = (): boolean => process.env["TEST_LONG"] === "1";

const leaveOut = (): void => {};

/** Each leaves the tests of the other out. @param run Mocha's `it`, or that of `together` */
export function testsOf<It = Mocha.TestFunction>(run: It = it as It): { it: It; longIt: It } {
  const none = leaveOut as It;
  return isLong() ? { it: none, longIt: run } : { it: run, longIt: none };
}
