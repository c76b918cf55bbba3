import assert from "node:assert/strict";
import { rangeOf, tickText } from "../../console/parts/chart-time.ts";

const START = Date.parse("2026-11-29T03:00:00Z") / 1_000;
const hours = (count: number) => Array.from({ length: count }, (_, hour) => START + hour * 3_600);

describe("The axis of a chart", () => {
  it("begins with the first value and ends with the last, or six hours later where that is too near", () => {
    const now = START + 9 * 86_400;
    assert.deepEqual(rangeOf(hours(1), "hour", now), [START, START + 6 * 3_600]);
    assert.deepEqual(rangeOf(hours(20), "hour", now), [START, START + 19 * 3_600]);
    assert.deepEqual(rangeOf(hours(48), "hour", now), [START, START + 47 * 3_600]);
    assert.deepEqual(rangeOf([START], "day", now), [START, START + 2 * 86_400]);
  });

  it("shows six hours until now, where the first value is not as long ago", () => {
    const now = START + 2.5 * 3_600;
    assert.deepEqual(rangeOf(hours(2), "hour", now), [now - 6 * 3_600, now]);
  });

  it("has clock times over hours, and a date at midnight", () => {
    const midnight = new Date(2026, 10, 29).getTime() / 1_000;
    assert.equal(tickText(midnight + 4 * 3_600, "hour"), "04:00");
    assert.equal(tickText(midnight, "hour"), "Nov 29");
    assert.equal(tickText(START, "day"), "Nov 29");
  });
});
