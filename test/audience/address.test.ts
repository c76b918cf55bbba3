import assert from "node:assert/strict";
import fc from "fast-check";
import { addressDomain, lookupAddress, normaliseAddress, normaliseDomain, spellingOf } from "../../domain/address.ts";

describe("Addresses", () => {
  it("trims and lower-cases", () => {
    assert.equal(normaliseAddress("  Anna.Smith@Example.COM\n"), "anna.smith@example.com");
  });

  it("strips invisible characters from its ends", () => {
    assert.equal(normaliseAddress("\u200B\u2060a@example.com\u00AD\uFEFF\u00A0"), "a@example.com");
    assert.equal(spellingOf("\u200BA@example.com"), "a@example.com");
  });

  it("gives a domain in Unicode and in punycode the same spelling", () => {
    for (const spelling of ["a@münchen.de", "a@MÜNCHEN.de", "a@xn--mnchen-3ya.de", "a@mu\u0308nchen.de"]) {
      assert.equal(normaliseAddress(spelling), "a@münchen.de");
    }
    assert.equal(normaliseDomain(" XN--MNCHEN-3YA.de "), "münchen.de");
    assert.equal(addressDomain("a@münchen.de"), "münchen.de");
  });

  it("gives a local part in one Unicode form", () => {
    assert.equal(normaliseAddress("ju\u0308rgen@example.com"), normaliseAddress("jürgen@example.com"));
  });

  for (const [what, text] of [
    ["no @", "example.com"],
    ["nothing before the @", "@example.com"],
    ["nothing after it", "a@"],
    ["two of them", "a@b@example.com"],
    ["a host without a dot", "a@localhost"],
    ["an address literal", "a@[127.0.0.1]"],
    ["a number for a domain", "a@1.2"],
    ["a dot at the end", "a@example.com."],
    ["a quoted local part", '"a b"@example.com'],
    ["a line break", "a@example.com\r\nbcc: b@example.com"],
    ["an invisible character", "a\u200bb@example.com"],
    ["an invisible character in the domain", "a@exam\u00adple.com"],
    ...["\u3164", "\u2800", "\u034F", "\uFE0F", "\u115F", "\u17B4", "\u200D"].map(
      (blank) => [`a blank of another kind, ${blank.codePointAt(0)?.toString(16)}`, `a${blank}b@example.com`] as const,
    ),
    ["a blank letter in the domain", "a@exam\u3164ple.com"],
    ["a name around it", "Anna <a@example.com>"],
    ["a NUL", "a\0@example.com"],
    ["a local part of 65 characters", `${"a".repeat(65)}@example.com`],
    ["a local part of 33 characters of two bytes", `${"ä".repeat(33)}@example.com`],
    ["more than 320 characters", `a@${"b.".repeat(160)}com`],
  ] as const) {
    it(`refuses ${what}`, () => assert.equal(normaliseAddress(text), undefined));
  }

  it("takes the longest address DNS can carry", () => {
    const label = "b".repeat(63);
    const domain = `${label}.${label}.${label}.${"c".repeat(57)}.com`;
    assert.equal(normaliseAddress(`${"a".repeat(64)}@${domain}`), `${"a".repeat(64)}@${domain}`);
  });

  it("looks up a text that is no address as it is written", () => {
    assert.equal(lookupAddress(" No Address "), "no address");
  });

  it("leaves an address that is normalised already as it is", () => {
    const label = fc.stringMatching(/^[a-zäöüßéñ日本0-9]{1,20}$/u);
    fc.assert(
      fc.property(
        fc.oneof(
          fc.emailAddress(),
          fc.tuple(label, label).map(([a, b]) => `${a}@${b}.com`),
        ),
        (text) => {
          const once = normaliseAddress(text);
          if (once !== undefined) assert.equal(normaliseAddress(once), once);
        },
      ),
      { numRuns: 300 },
    );
  });
});
