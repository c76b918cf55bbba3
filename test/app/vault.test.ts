import assert from "node:assert/strict";
import { createHmac, hkdfSync } from "node:crypto";
import { openVault } from "../../domain/secrets/crypto.ts";
import { openHeaders, openSecret, sealHeaders } from "../../domain/webhooks/secrets.ts";
import { newKey } from "../support/own-database.ts";

describe("Signatures and hashes of the vault", () => {
  const [id, secret] = newKey("k1");
  const vault = openVault({ SIGNING_SECRET: [[id, secret]], ENCRYPTION_KEYS: [] });
  vault.setHashKey(secret);

  /** The same by Node's HMAC: every link that was mailed and every stored hash of a key must stay valid. */
  const expected = (purpose: string, text: string) => {
    const key = Buffer.from(hkdfSync("sha256", Buffer.from(secret, "base64"), "", `mailkeel/${purpose}`, 32));
    return createHmac("sha256", key).update(text).digest("base64url");
  };

  it("are HMAC-SHA256 of the parts, each behind its length, under a key for each purpose", () => {
    const long = ["x".repeat(55), "x".repeat(64), "€".repeat(500), "€".repeat(505), "é".repeat(100_000)];
    for (const text of ["", "a", "4:mail;", "ÄÖ€😀", "\ud800", ...long]) {
      const framed = `${text.length}:${text};2:17;`;
      assert.equal(vault.sign("cursor", text, 17), expected("cursor", framed));
      assert.equal(vault.sign("tracking", text, 17), expected("tracking", framed).slice(0, 22));
      assert.equal(vault.hash("api-key", text, 17), expected("api-key", framed));
      assert.ok(vault.verify(expected("cursor", framed), "cursor", text, 17));
    }
    assert.notEqual(vault.sign("cursor", "ab", "c"), vault.sign("cursor", "a", "bc"));
    assert.ok(!vault.verify(vault.sign("cursor", "a"), "link", "a"));
  });
});

describe("A sealed text", () => {
  const vault = openVault({ SIGNING_SECRET: [newKey("k1")], ENCRYPTION_KEYS: [newKey("e1")] });

  it("opens in its own column and row alone", () => {
    const sealed = sealHeaders(vault, "wh_a", { "x-a": "b" }) ?? assert.fail();
    assert.deepEqual(openHeaders(vault, "wh_a", sealed), { "x-a": "b" });
    assert.throws(() => openHeaders(vault, "wh_b", sealed));
    assert.throws(() => openSecret(vault, "wh_a", sealed));
  });
});
