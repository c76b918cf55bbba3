import assert from "node:assert/strict";
import { Admission } from "../../activities/smtp/admission.ts";
import type { AccountFailure } from "../../domain/mail/outcome.ts";

const REFUSED: AccountFailure = { outcome: "account_failure", reason: "login_refused", temporary: false };

describe("When another connection may be opened", () => {
  it("is one at first, then as many at once as are logged in", () => {
    const admission = new Admission();
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
      assert.equal(admission.openable(0, loggedIn, opening), openable, `${loggedIn} and ${opening}`);
    }
  });

  it("is never during the pause after a refusal, however many are logged in, and one at a time after it", () => {
    const admission = new Admission();
    assert.equal(admission.refuse(REFUSED, 0), true);
    for (const loggedIn of [0, 1, 50]) assert.equal(admission.openable(999, loggedIn, 0), 0);
    assert.equal(admission.refusalAt(999), REFUSED);
    assert.equal(admission.refusalAt(1_000), undefined);
    assert.deepEqual([admission.openable(1_000, 50, 0), admission.openable(1_000, 50, 1)], [1, 0]);
  });

  it("comes later with each refusal in a row, up to a minute, and at once after a login", () => {
    const admission = new Admission();
    let now = 0;
    const pauses = Array.from({ length: 9 }, () => {
      const since = now;
      admission.refuse(REFUSED, now);
      while (admission.refusalAt(now)) now += 500;
      return now - since;
    });
    assert.deepEqual(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    admission.refuse(REFUSED, now);
    admission.admit();
    assert.equal(admission.openable(now, 3, 0), 3);
    admission.refuse(REFUSED, now);
    assert.equal(admission.openable(now + 1_000, 0, 0), 1);
  });

  it("does not move with refusals of connections that were opened before the first one", () => {
    const admission = new Admission();
    admission.refuse(REFUSED, 0);
    assert.equal(admission.refuse(REFUSED, 600), false);
    assert.equal(admission.openable(1_000, 0, 0), 1);
  });

  it("is now when the pause is ended, and still one at a time", () => {
    const admission = new Admission();
    admission.refuse(REFUSED, 0);
    admission.endPause();
    assert.equal(admission.refusalAt(1), undefined);
    assert.deepEqual([admission.openable(1, 9, 0), admission.openable(1, 9, 1)], [1, 0]);
  });
});
