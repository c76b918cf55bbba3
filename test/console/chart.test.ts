import assert from "node:assert/strict";
import { rangeOf, tickText } from "../../console/parts/chart-time.ts";

const START = Date.parse("2026-11-29T03:00:00Z") / 1_000;
const hours = (count: number) => Array.from({ length: count }, (_, hour) => START + hour * 3_600);

describe("The axis of a chart", () => {
  it("begins with the hour of the send and ends with the last hour, or now", () => {
    for (const count of [2, 20, 48]) {
      const end = START + count * 3_600;
      assert.deepEqual(rangeOf(hours(count), "hour", end + 60), [START, end]);
      assert.deepEqual(rangeOf(hours(count), "hour", end - 1_800), [START, end - 1_800]);
    }
  });

  it("shows two days around a single one, until now", () => {
    const two = 2 * 86_400;
    assert.deepEqual(rangeOf([START], "day", START + 9 * 86_400), [START, START + two]);
    assert.deepEqual(rangeOf([START], "day", START + 3_600), [START + 3_600 - two, START + 3_600]);
    assert.deepEqual(rangeOf([START, START + 86_400, START + two], "day", START + two), [START, START + two]);
  });

  it("has clock times over hours, and a date at midnight", () => {
    const midnight = new Date(2026, 10, 29).getTime() / 1_000;
    assert.equal(tickText(midnight + 4 * 3_600, "hour"), "04:00");
    assert.equal(tickText(midnight, "hour"), "Nov 29");
    assert.equal(tickText(START, "day"), "Nov 29");
  });
});
