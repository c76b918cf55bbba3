import assert from "node:assert/strict";
import { OpeningPace } from "../../activities/smtp/opening-pace.ts";
import type { AccountFailure } from "../../domain/mail/outcome.ts";

const REFUSED: AccountFailure = { outcome: "account_failure", reason: "login_refused", temporary: false, code: 535 };
const LOST: AccountFailure = { outcome: "account_failure", reason: "connection_lost", temporary: true };

describe("The pace at which connections are opened", () => {
  let pace: OpeningPace;
  beforeEach(() => {
    pace = new OpeningPace();
  });

  it("allows one at first, then as many at once as are logged in", () => {
    const table: [loggedIn: number, opening: number, openable: number][] = [
      [0, 0, 1],
      [0, 1, 0],
      [1, 0, 1],
      [1, 1, 0],
      [4, 0, 4],
      [4, 3, 1],
      [4, 9, 0],
    ];
    for (const [loggedIn, opening, openable] of table) {
      assert.equal(pace.openable(0, loggedIn, opening), openable, `${loggedIn} and ${opening}`);
    }
  });

  it("allows none during the pause after a refusal, however many are logged in, and one at a time after it", () => {
    assert.equal(pace.recordRefusal(REFUSED, 0, 0), true);
    for (const loggedIn of [0, 1, 50]) assert.equal(pace.openable(999, loggedIn, 0), 0);
    assert.equal(pace.refusalAt(999), REFUSED);
    assert.equal(pace.refusalAt(1_000), undefined);
    assert.deepEqual([pace.openable(1_000, 50, 0), pace.openable(1_000, 50, 1)], [1, 0]);
  });

  it("pauses longer with each refusal in a row, up to a minute, and ends the pause at a login", () => {
    let now = 0;
    const pauses = Array.from({ length: 9 }, () => {
      const since = now;
      pace.recordRefusal(REFUSED, now, 0);
      while (pace.refusalAt(now)) now += 500;
      return now - since;
    });
    assert.deepEqual(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    pace.recordRefusal(REFUSED, now, 0);
    pace.recordLogin(3);
    assert.equal(pace.openable(now, 3, 0), 3);
    pace.recordRefusal(REFUSED, now, 0);
    assert.equal(pace.openable(now + 1_000, 0, 0), 1);
  });

  it("does not pause longer for connections that were opened before the first refusal", () => {
    pace.recordRefusal(REFUSED, 0, 0);
    assert.equal(pace.recordRefusal(REFUSED, 600, 0), false);
    assert.equal(pace.openable(1_000, 0, 0), 1);
  });

  it("allows one at a time when the pause is ended early", () => {
    pace.recordRefusal(REFUSED, 0, 0);
    pace.endPause();
    assert.equal(pace.refusalAt(1), undefined);
    assert.deepEqual([pace.openable(1, 9, 0), pace.openable(1, 9, 1)], [1, 0]);
  });

  it("allows no more for a minute than worked beside a refusal, and replaces those that end", () => {
    pace.recordRefusal(REFUSED, 0, 5);
    assert.deepEqual([pace.openable(1_000, 5, 0), pace.openable(1_000, 4, 0)], [0, 1]);
    pace.recordLogin(5);
    assert.deepEqual([pace.openable(1_100, 5, 0), pace.openable(1_100, 3, 0)], [0, 2]);
    assert.deepEqual([pace.openable(59_999, 5, 0), pace.openable(60_000, 5, 0)], [0, 5]);
  });

  it("knows how many the server takes from a refusal and the logins after it", () => {
    assert.equal(pace.most, Number.POSITIVE_INFINITY);
    pace.recordRefusal(REFUSED, 0, 0);
    assert.equal(pace.most, Number.POSITIVE_INFINITY, "a refusal of the first one shows no number");
    pace.recordRefusal(REFUSED, 1_000, 2);
    pace.recordLogin(2);
    assert.equal(pace.most, 2);
    pace.recordLogin(3);
    assert.equal(pace.most, 3);
  });

  it("takes one that failed without a reply for chance, which limits it for a second", () => {
    pace.recordRefusal(LOST, 0, 5);
    pace.recordLogin(5);
    assert.deepEqual([pace.openable(999, 5, 0), pace.openable(1_000, 5, 0)], [0, 5]);
  });
});
