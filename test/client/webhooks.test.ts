import assert from "node:assert/strict";
import { examplePayload } from "../../api/openapi/event-examples.ts";
import { Mailkeel, verifyWebhook, WebhookSignatureError } from "../../client/index.ts";
import { EVENT_NAMES } from "../../domain/webhooks/catalogue.ts";
import { signatureHeader, signerOf } from "../../domain/webhooks/request.ts";
import { newSecret } from "../../domain/webhooks/secrets.ts";
import { NOW, SECRET, SIGNATURE_CASES } from "../support/signature-cases.ts";

describe("The client's check of webhooks", () => {
  for (const { what, expected, header: signature, body } of SIGNATURE_CASES) {
    it(`${expected ? "accepts" : "refuses"} ${what}`, async () => {
      for (const form of [body, Buffer.from(body)]) {
        const verifying = verifyWebhook({ body: form, signature, secret: SECRET, now: NOW });
        if (expected) await verifying;
        else await assert.rejects(verifying, WebhookSignatureError);
      }
    });
  }

  it("accepts a delivery that is signed with one of several secrets", async () => {
    const signature = signatureHeader([signerOf(SECRET)], NOW, "{}");
    await verifyWebhook({ body: "{}", signature, secret: [newSecret(), SECRET], now: NOW });
    await assert.rejects(
      verifyWebhook({ body: "{}", signature, secret: [newSecret(), newSecret()], now: NOW }),
      WebhookSignatureError,
    );
  });

  it("refuses a delivery without the header or with several, and any with an empty secret", async () => {
    const signature = signatureHeader([signerOf(SECRET)], NOW, "{}");
    const crowded = signature + signature.replace(/^t=\d+/, "").repeat(8);
    for (const other of [null, undefined, "", [], [signature], crowded]) {
      const verifying = verifyWebhook({ body: "{}", signature: other, secret: SECRET, now: NOW });
      await assert.rejects(verifying, WebhookSignatureError);
    }
    for (const secret of ["", [SECRET, ""]])
      await assert.rejects(verifyWebhook({ body: "{}", signature, secret, now: NOW }), {
        name: "MailkeelError",
        message: /secret .* is empty/,
      });
  });

  it("gives the event of a delivery, whose type names its record", async () => {
    for (const name of EVENT_NAMES) {
      const body = JSON.stringify(examplePayload(name));
      const signature = signatureHeader([signerOf(SECRET)], Math.floor(Date.now() / 1_000), body);
      const event = await Mailkeel.unwrapWebhook({ body: Buffer.from(body), signature, secret: SECRET });
      assert.deepEqual(event, examplePayload(name));
      // Compiles only where the type is known to name the record.
      if (event.type === "newsletter.completed") assert.equal(event.data.object.status, "SENT");
      if (event.type === "email.rejected") assert.equal(event.data.object.attempts, 1);
    }
    await assert.rejects(
      Mailkeel.unwrapWebhook({ body: "{}", signature: "t=1,v1=00", secret: SECRET }),
      WebhookSignatureError,
    );
  });
});
