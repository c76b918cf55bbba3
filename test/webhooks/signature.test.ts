import assert from "node:assert/strict";
import fc from "fast-check";
import Stripe from "stripe";
import { signatureHeader, signerOf } from "../../domain/webhooks/request.ts";
import { newSecret } from "../../domain/webhooks/secrets.ts";

const TOLERANCE_SECONDS = 300;

// Somebody else's implementation of the same scheme, the one most receivers will use.
const { signature } = Stripe.webhooks;
assert.ok(signature);
const verify = (body: string | Buffer, header: string, secret: string): boolean => {
  try {
    return signature.verifyHeader(body, header, secret, TOLERANCE_SECONDS);
  } catch {
    return false;
  }
};

const now = (): number => Math.floor(Date.now() / 1_000);
const bodies = fc.string({ unit: "grapheme", minLength: 1, maxLength: 500 });
const secrets = fc.stringMatching(/^[\w-]{1,60}$/);

describe("The signature of a delivery", () => {
  it("is t, then one v1 in lower-case hex per secret", () => {
    assert.match(signatureHeader([signerOf("a")], 1_790_000_000, "{}"), /^t=1790000000,v1=[0-9a-f]{64}$/);
    assert.match(signatureHeader([signerOf("a"), signerOf("b")], 1, "{}"), /^t=1,v1=[0-9a-f]{64},v1=[0-9a-f]{64}$/);
  });

  it("is the HMAC-SHA256 of `<t>.<body>` under the whole secret", () => {
    // printf '1790000000.{"a":1}' | openssl dgst -sha256 -hmac whsec_test
    const expected = "f08690bbaaecbd1607eb9af71f092a9f7054e2b83f8b9d6a0690744d24fc6059";
    assert.ok(signatureHeader([signerOf("whsec_test")], 1_790_000_000, '{"a":1}').endsWith(`,v1=${expected}`));
  });

  it("is accepted by a receiver's own verifier for any body, as text or bytes", () => {
    fc.assert(
      fc.property(bodies, (body) => {
        const secret = newSecret();
        const header = signatureHeader([signerOf(secret)], now(), body);
        assert.ok(verify(body, header, secret));
        assert.ok(verify(Buffer.from(body), header, secret));
        assert.equal(
          signatureHeader([signerOf(secret)], 7, Buffer.from(body)),
          signatureHeader([signerOf(secret)], 7, body),
        );
      }),
    );
  });

  it("is accepted for long bodies, as text or bytes, and under a secret longer than a block of the hash", () => {
    for (const body of ["ä".repeat(700), "€".repeat(20_000), "x".repeat(2_048)]) {
      for (const secret of [newSecret(), "s".repeat(65), "s".repeat(64)]) {
        const header = signatureHeader([signerOf(secret)], now(), body);
        assert.ok(verify(body, header, secret));
        assert.ok(verify(body, signatureHeader([signerOf(secret)], now(), Buffer.from(body)), secret));
      }
    }
  });

  it("verifies with either secret while two sign, and with no third", () => {
    fc.assert(
      fc.property(bodies, fc.uniqueArray(secrets, { minLength: 3, maxLength: 3 }), (body, [a = "", b = "", c = ""]) => {
        const header = signatureHeader([signerOf(a), signerOf(b)], now(), body);
        assert.ok(verify(body, header, a));
        assert.ok(verify(body, header, b));
        assert.ok(!verify(body, header, c));
      }),
    );
  });
});
