import assert from "node:assert/strict";
import { headerProblems, RESERVED_HEADERS } from "../../domain/webhooks/headers.ts";

const problems = (headers: Record<string, string>): string[] =>
  headerProblems(headers).map(({ name = "", message }) => `${name}: ${message}`);

describe("Custom headers", () => {
  it("may be anything a receiver could ask for", () => {
    assert.deepEqual(
      problems({
        Authorization: "Bearer abc.def==",
        "X-Api-Key": "k",
        "x-tenant": "a b\\c\"d'",
        "!#$%&'*+-.^_`|~9": "~",
        constructor: "c",
        toString: "t",
        hasOwnProperty: "h",
      }),
      [],
    );
  });

  it("may not be reserved, in any case", () => {
    const given = (reserved: string) => reserved.replace("*", "anything");
    for (const reserved of RESERVED_HEADERS) {
      for (const name of [given(reserved), given(reserved).toUpperCase()]) {
        assert.deepEqual(problems({ [name]: "x" }), [`${name}: is reserved and cannot be set`]);
      }
    }
    assert.deepEqual(problems({ "X-Servicing": "x", "Content-Language": "en", "x-forward": "x" }), []);
  });

  for (const name of ["", "a b", "a:b", "a\r\nb", "ü", "a,b", "(a)", "a\0"]) {
    it(`may not be called ${JSON.stringify(name)}`, () => {
      assert.deepEqual(problems({ [name]: "x" }), [`${name}: is not the name of a header`]);
    });
  }

  for (const value of ["a\r\nX-Injected: b", "a\nb", "a\rb", "a\0", "a\x7f", "a\tb", "é", "€", " a", "a ", " "]) {
    it(`may not hold ${JSON.stringify(value)}`, () => {
      assert.match(problems({ a: value })[0] ?? "", /^a: must be printable ASCII/);
    });
  }

  it("hold something, have different names in any case, and are 20 of 1,000 characters at most, 8 KiB in all", () => {
    // An empty value is most often a variable that was not set.
    assert.deepEqual(problems({ a: "" }), ["a: must not be empty"]);
    assert.deepEqual(problems({ "X-A": "1", "x-a": "2" }), ["x-a: is given twice"]);
    const many = (count: number, length: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`x-${i}`, "v".repeat(length)]));
    assert.deepEqual(problems(many(20, 1)), []);
    assert.deepEqual(problems(many(21, 1)), [": must be at most 20 headers"]);
    assert.deepEqual(problems(many(1, 1_000)), []);
    assert.deepEqual(problems(many(1, 1_001)), ["x-0: must be at most 1000 characters"]);
    assert.deepEqual(problems(many(8, 1_000)), []);
    assert.deepEqual(problems(many(9, 1_000)), [": must be at most 8192 bytes in all"]);
    assert.deepEqual(problems({ ["n".repeat(128)]: "v" }), []);
    assert.match(problems({ ["n".repeat(129)]: "v" })[0] ?? "", /has a name of more than 128 characters/);
  });
});
