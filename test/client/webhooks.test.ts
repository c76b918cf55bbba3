import assert from "node:assert/strict";
import { examplePayload } from "../../api/openapi/event-examples.ts";
import { Mailkeel, MailkeelError, verifyWebhook, WebhookSignatureError } from "../../client/index.ts";
import { EVENT_NAMES } from "../../domain/webhooks/catalogue.ts";
import { signatureHeader, signerOf } from "../../domain/webhooks/request.ts";
import { newSecret } from "../../domain/webhooks/secrets.ts";
import { NOW, SECRET, SIGNATURE_CASES } from "../support/signature-cases.ts";

describe("The client's check of webhooks", () => {
  for (const { what, expected, header: signature, body } of SIGNATURE_CASES) {
    it(`${expected ? "accepts" : "refuses"} ${what}`, () => {
      for (const form of [body, Buffer.from(body)]) {
        const verify = () => verifyWebhook({ body: form, signature, secret: SECRET, now: NOW });
        if (expected) assert.doesNotThrow(verify);
        else assert.throws(verify, WebhookSignatureError);
      }
    });
  }

  it("accepts a delivery that is signed with one of several secrets", () => {
    const signature = signatureHeader([signerOf(SECRET)], NOW, "{}");
    verifyWebhook({ body: "{}", signature, secret: [newSecret(), SECRET], now: NOW });
    assert.throws(
      () => verifyWebhook({ body: "{}", signature, secret: [newSecret(), newSecret()], now: NOW }),
      WebhookSignatureError,
    );
  });

  it("refuses a delivery without the header, and any with an empty secret", () => {
    for (const signature of [null, undefined, ""]) {
      assert.throws(() => verifyWebhook({ body: "{}", signature, secret: SECRET }), WebhookSignatureError);
    }
    const signature = signatureHeader([signerOf(SECRET)], NOW, "{}");
    assert.throws(() => verifyWebhook({ body: "{}", signature, secret: "", now: NOW }), MailkeelError);
  });

  it("gives the event of a delivery, whose type names its record", () => {
    for (const name of EVENT_NAMES) {
      const body = JSON.stringify(examplePayload(name));
      const signature = signatureHeader([signerOf(SECRET)], Math.floor(Date.now() / 1_000), body);
      const event = Mailkeel.unwrapWebhook({ body: Buffer.from(body), signature, secret: SECRET });
      assert.deepEqual(event, examplePayload(name));
      // Compiles only where the type is known to name the record.
      if (event.type === "newsletter.completed") assert.equal(event.data.object.status, "SENT");
      if (event.type === "email.rejected") assert.equal(event.data.object.attempts, 1);
    }
    assert.throws(
      () => Mailkeel.unwrapWebhook({ body: "{}", signature: "t=1,v1=00", secret: SECRET }),
      WebhookSignatureError,
    );
  });
});
