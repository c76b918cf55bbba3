import assert from "node:assert/strict";
import fc from "fast-check";
import { DateTime } from "luxon";
import { ApiError } from "../../domain/errors.ts";
import { firstInstantOf, nextSendAt, readTime, startOf } from "../../domain/sends/plan/send-time.ts";

const BERLIN = "Europe/Berlin";
const isRefusalOf = (param: string) => (error: unknown) =>
  error instanceof ApiError && error.code === "validation_failed" && error.param === param;
const instantOf = (written: string, zone: string) => {
  const [date = "", time = ""] = written.split(" ");
  return firstInstantOf({ date, time, zone }).toISOString();
};

describe("The time of a send", () => {
  for (const [title, written, zone, instant] of [
    ["of a winter's day", "2026-11-29 09:00", BERLIN, "2026-11-29T08:00:00.000Z"],
    ["of a summer's day", "2027-06-01 09:00", BERLIN, "2027-06-01T07:00:00.000Z"],
    ["that the clocks leave out: the end of the gap", "2027-03-28 02:30", BERLIN, "2027-03-28T01:00:00.000Z"],
    ["right behind the gap", "2027-03-28 03:00", BERLIN, "2027-03-28T01:00:00.000Z"],
    ["that the clocks show twice: the earlier", "2026-10-25 02:30", BERLIN, "2026-10-25T00:30:00.000Z"],
    ["twice, west of Greenwich", "2026-11-01 01:30", "America/New_York", "2026-11-01T05:30:00.000Z"],
    ["in a gap of half an hour", "2026-10-04 02:15", "Australia/Lord_Howe", "2026-10-03T15:30:00.000Z"],
    ["on a day without a midnight", "2024-09-08 00:00", "America/Santiago", "2024-09-08T04:00:00.000Z"],
    ["on a day that a zone left out", "2011-12-30 09:00", "Pacific/Apia", "2011-12-30T10:00:00.000Z"],
    ["east of the date line", "2026-11-29 09:00", "Pacific/Kiritimati", "2026-11-28T19:00:00.000Z"],
  ] as const) {
    it(`is that ${title}`, () => assert.equal(instantOf(written, zone), instant));
  }

  it("is what the clocks show, wherever they show it", () => {
    const at = fc.date({ min: new Date("2020-01-01"), max: new Date("2035-01-01"), noInvalidDate: true });
    const zones = fc.constantFrom(BERLIN, "America/Santiago", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC");
    fc.assert(
      fc.property(at, zones, (instant, zone) => {
        const local = DateTime.fromJSDate(instant, { zone }).startOf("minute");
        const [date, time] = [local.toFormat("yyyy-MM-dd"), local.toFormat("HH:mm")];
        const first = DateTime.fromJSDate(firstInstantOf({ date, time, zone }), { zone });
        assert.equal(first.toFormat("yyyy-MM-dd HH:mm"), `${date} ${time}`);
        assert.ok(first <= local, "the earlier of two");
      }),
    );
  });

  it("is refused when it has passed, lies more than a year ahead, or has no such zone", () => {
    const inDays = (days: number) => DateTime.utc().plus({ days }).toFormat("yyyy-MM-dd");
    const written = (days: number, zone = "UTC") => ({ date: inDays(days), time: "09:00", zone });
    for (const days of [-1, 367]) {
      assert.throws(() => readTime(written(days)), isRefusalOf("date"));
    }
    for (const zone of ["Berlin", "IST"]) {
      assert.throws(() => readTime(written(2, zone)), isRefusalOf("zone"));
    }
    assert.equal(readTime(written(2)).toISOString(), `${inDays(2)}T09:00:00.000Z`);
  });

  it("waits for an allowed day in the team's zone, at the same time there, also when the clocks change between", () => {
    const saturday = new Date("2027-03-27T08:00:00Z");
    assert.equal(nextSendAt(saturday, [1], BERLIN).toISOString(), "2027-03-29T07:00:00.000Z");
    assert.equal(nextSendAt(saturday, [6], BERLIN), saturday);
  });

  it("counts from the confirm on: one that has passed meanwhile starts at once, and none on the next allowed day", () => {
    const now = new Date("2026-11-28T22:00:00Z");
    const draft = { sendAt: "2026-11-29T08:00:00.000Z", sendDays: [], timeZone: BERLIN };
    assert.equal(startOf(now, draft).toISOString(), draft.sendAt);
    assert.deepEqual(startOf(now, { ...draft, sendAt: "2026-11-28T21:59:59.000Z" }), now);
    const monday = { ...draft, sendDays: [1] };
    assert.equal(startOf(now, monday).toISOString(), "2026-11-30T08:00:00.000Z");
    assert.equal(startOf(now, { ...monday, sendAt: null }).toISOString(), "2026-11-29T23:00:00.000Z");
  });
});
