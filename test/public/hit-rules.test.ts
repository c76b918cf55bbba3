import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type HitMail, labelHits, type WaitingHit } from "../../domain/tracking/label.ts";
import { readNetworks } from "../../domain/tracking/networks.ts";
import { sourceOf } from "../../domain/tracking/record.ts";
import { findingOf } from "../../domain/tracking/rules.ts";
import { measuresOf, measureTraces } from "./hit-traces.ts";

const MINUTE = 60;
const HOUR = 60 * MINUTE;

/** @param after seconds after its server had accepted the mail */
const open = (after: number, changes: Partial<WaitingHit> = {}): WaitingHit => ({
  ...{ kind: "opened", at: after * 1_000, url: null, rule: null, early: false, source: "reader" },
  ...changes,
});
const click = (after: number, link: number, changes: Partial<WaitingHit> = {}): WaitingHit =>
  open(after, { kind: "clicked", url: `https://shop.example/${link}`, ...changes });
const labels = (hits: readonly WaitingHit[], mail: Partial<HitMail> = {}) =>
  labelHits({ acceptedAt: 0, isOpened: false, ...mail }, hits).map((label) => label && (label.rule ?? label.by));

describe("The rules that tell people and machines apart", () => {
  it("call all of a burst a machine's, also its first link and the pixel beside it", () => {
    for (const gapMs of [0, 110, 150, 1_900]) {
      const links = [1, 2, 3, 4, 5, 6, 7, 8].map((link, i) => click(HOUR + (i * gapMs) / 1_000, link));
      assert.deepEqual(labels([open(HOUR), ...links]), Array(9).fill("burst"), `${gapMs} ms apart`);
    }
  });

  it("call no tabs of a person a burst, no second click on one link, and no links of two sources", () => {
    const tabs = [click(HOUR + 5, 1), click(HOUR + 8, 2), click(HOUR + 11, 3)];
    assert.deepEqual(labels([open(HOUR), ...tabs]), ["human", "human", "human", "human"]);
    assert.deepEqual(labels([click(HOUR, 1), click(HOUR, 1)]), ["human", "human"]);
    assert.deepEqual(labels([click(HOUR, 1), click(HOUR, 2, { source: "other" })]), ["human", "human"]);
  });

  it("call what a program's source does beside its request a burst", () => {
    const head = click(HOUR, 1, { rule: "head" });
    assert.deepEqual(labels([head, click(HOUR + 0.4, 1), click(HOUR + 30, 1)]), ["head", "burst", "human"]);
  });

  it("do not know who followed a lone link in the first minutes, unless an open came before", () => {
    assert.deepEqual(labels([click(4, 1)]), ["first_minutes"]);
    assert.deepEqual(labels([click(4 * MINUTE, 1)]), ["first_minutes"]);
    assert.deepEqual(labels([click(6 * MINUTE, 1)]), ["human"]);
    assert.deepEqual(labels([open(4), click(9, 1)]), ["human", "human"]);
    assert.deepEqual(labels([click(9, 1)], { isOpened: true }), ["human"]);
    assert.deepEqual(labels([open(4, { rule: "privacy_proxy" }), click(9, 1)]), ["privacy_proxy", "first_minutes"]);
  });

  it("call a click too soon before, or within a second after, the mail was accepted, but no open", () => {
    assert.deepEqual(labels([open(0.5), click(0.9, 1), click(1.5, 1)]), ["human", "too_soon", "human"]);
    assert.deepEqual(labels([click(HOUR, 1)], { acceptedAt: undefined }), ["too_soon"]);
  });

  it("let some signs decide in the first minutes alone", () => {
    const early = { rule: "webkit", early: true } as const;
    assert.deepEqual(labels([open(20, early), open(HOUR, early)]), ["webkit", "human"]);
  });

  it("take the word of a provider about a hit of that kind and time", () => {
    const word = (after: number) => open(after, { rule: "provider", source: null });
    assert.deepEqual(labels([open(HOUR), word(HOUR + 2)]), ["provider", undefined]);
    assert.deepEqual(labels([click(HOUR, 1), word(HOUR + 2)]), ["human", undefined]);
    assert.deepEqual(labels([open(HOUR), word(HOUR + 30)]), ["human", undefined]);
  });

  it("call more hits than a person makes in a minute a machine's, without comparing them", () => {
    const crowd = Array.from({ length: 50_000 }, (_, n) => click(HOUR + n / 1_000, n));
    assert.deepEqual([...new Set(labels(crowd))], ["burst"]);
  });

  it("know sources by the mail and the client's network", () => {
    const source = sourceOf("mail", "203.0.113.7");
    assert.match(source, /^[\w-]{11}$/);
    assert.equal(sourceOf("mail", "203.0.113.250"), source);
    assert.equal(sourceOf("mail", "8193:3512:7:1"), sourceOf("mail", "8193:3512:7:9"));
    const others = [sourceOf("mail", "203.0.112.7"), sourceOf("other", "203.0.113.7"), sourceOf("mail", null)];
    assert.equal(new Set([source, ...others]).size, 4);
  });

  describe("networks", () => {
    const request = (clientAddress: string | null) => ({
      method: "GET",
      headers: { "user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0" },
      clientAddress,
    });

    it("of scanners decide, those with readers about clicks alone, and those with people in the first minutes", () => {
      const networks = readNetworks();
      const found = (kind: "opened" | "clicked", address: string | null) => findingOf(kind, request(address), networks);
      const certain = { rule: "network", early: false };
      // 2a01:111:f400::, in the form of a client's network.
      for (const address of ["40.92.0.1", "40.93.255.255", "104.47.127.255", "10753:273:62464:0"]) {
        assert.deepEqual([found("opened", address), found("clicked", address)], [certain, certain], address);
      }
      assert.deepEqual([found("opened", "66.249.66.1"), found("clicked", "66.249.66.1")], [undefined, certain]);
      const early = { rule: "network", early: true };
      assert.deepEqual([found("opened", "66.249.84.70"), found("clicked", "66.249.84.70")], [undefined, early]);
      assert.deepEqual(found("clicked", "67.231.152.1"), early);
      for (const address of ["40.91.255.255", "40.94.0.0", "104.47.128.0", "10753:273:62465:0", null]) {
        assert.equal(found("clicked", address), undefined, String(address));
      }
    });

    it("are those of the operator's list, which says what is wrong with it", async () => {
      const folder = await mkdtemp(join(tmpdir(), "networks-"));
      const file = join(folder, "networks.json");
      const network = { name: "Ours", ranges: ["192.0.2.0/24"], scope: "all", certainty: "certain", source: "us" };
      try {
        writeFileSync(file, JSON.stringify([{ ...network, date: "2026-11" }]));
        const networks = readNetworks(file);
        assert.deepEqual([networks("opened", "192.0.2.9"), networks("opened", "40.92.0.1")], ["certain", undefined]);
        for (const [wrong, problem] of [
          [[{ ...network, date: "2026-11", ranges: ["2001:db8::/64"] }], /at most 48 bits/],
          [[network], /date/],
          [{}, /expected array/],
        ] as const) {
          writeFileSync(file, JSON.stringify(wrong));
          assert.throws(() => readNetworks(file), problem);
        }
        writeFileSync(file, "no JSON");
        assert.throws(() => readNetworks(file), /networks\.json cannot be read/);
      } finally {
        await rm(folder, { recursive: true });
      }
    });
  });

  it("label the requests of public reports as well as docs/figures.md says", () => {
    const { wrong } = measureTraces("tuned");
    assert.equal(wrong.length, 1, wrong.join("\n"));
    const heldOut = measureTraces("held-out").confusion;
    const measured = (["opened", "clicked"] as const).map((kind) => {
      const [human, machine] = [measuresOf(heldOut, kind, "human"), measuresOf(heldOut, kind, "machine")];
      return [kind, human.right, human.got, human.due, machine.right, machine.got, machine.due].join(" ");
    });
    assert.deepEqual(measured, ["opened 9 9 9 3 3 3", "clicked 8 9 11 26 29 31"]);
  });
});
