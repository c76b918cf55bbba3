import assert from "node:assert/strict";
import { placesForLongWork, tryAgain } from "../../activities/long-work.ts";

describe("Long work of a process", () => {
  it("runs for three teams at once, one piece of each", async () => {
    const runInPlace = placesForLongWork();
    const full = () => "no place";
    const { promise: ended, resolve: end } = Promise.withResolvers<string>();
    const begun = ["a", "b", "c"].map((team) => runInPlace(team, () => ended, full));
    assert.equal(await runInPlace("a", async () => "of a team that has one", full), "no place");
    assert.equal(await runInPlace("d", async () => "of a fourth team", full), "no place");
    end("done");
    assert.deepEqual(await Promise.all(begun), ["done", "done", "done"]);
    assert.equal(await runInPlace("a", async () => "the next one", full), "the next one");
  });

  it("leaves its place when it fails", async () => {
    const runInPlace = placesForLongWork();
    await assert.rejects(runInPlace("a", () => Promise.reject(new Error("Postgres is away")), tryAgain));
    assert.equal(await runInPlace("a", async () => "again", tryAgain), "again");
  });
});
