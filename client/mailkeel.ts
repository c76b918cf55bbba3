import { Resources, SERVICE_VERSION, type WebhookEvent } from "./generated.ts";
import { type ClientOptions, Transport } from "./transport.ts";
import { type Delivery, verifyWebhook } from "./webhooks.ts";

/**
 * The API of one team:
 *
 *     const mailkeel = new Mailkeel({ apiKey, baseUrl: "https://mail.example.com/api/v2" });
 *     const { data: list } = await mailkeel.lists.create({ name: "Readers" });
 */
export class Mailkeel extends Resources {
  /** @throws {MailkeelError} for options that no request can be made with */
  constructor(options: ClientOptions) {
    super(new Transport({ ...options, serviceVersion: options.serviceVersion ?? SERVICE_VERSION }));
  }

  /** The event of a delivery. Rejects as `verifyWebhook` does. */
  static async unwrapWebhook(delivery: Delivery): Promise<WebhookEvent> {
    await verifyWebhook(delivery);
    const { body } = delivery;
    // Signed by the service: its shape is the document's.
    return JSON.parse(typeof body === "string" ? body : new TextDecoder().decode(body));
  }
}
