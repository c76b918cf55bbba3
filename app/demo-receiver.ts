import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";
import { Mailkeel, WebhookSignatureError } from "../client/index.ts";
import type { EventName } from "../domain/webhooks/catalogue.ts";

/**
 * A receiver of webhooks as a client would write one, with an endpoint of its own: it refuses deliveries without a valid
 * signature.
 * @param origin the address of this machine that the stack lets webhooks reach
 */
export async function openReceiver(mailkeel: Mailkeel, origin: string, events: EventName[]) {
  /** Type by event id: an event may be delivered more than once. */
  const received = new Map<string, string>();
  const counts = { refused: 0 };
  let endpoint: { id: string; secret: string } | undefined;

  async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const header = (name: string) => request.headers[`x-service-${name}`]?.toString() ?? "";
    const body = await buffer(request);
    // A delivery to the endpoint of an earlier demo.
    if (header("webhook-id") !== endpoint?.id) return void response.writeHead(410).end();
    try {
      const event = await Mailkeel.unwrapWebhook({ body, signature: header("signature"), secret: endpoint.secret });
      received.set(event.id, event.type);
    } catch (error) {
      if (!(error instanceof WebhookSignatureError)) throw error;
      counts.refused++;
      return void response.writeHead(401).end();
    }
    response.writeHead(204).end();
  }

  const server = createServer((request, response) => {
    receive(request, response).catch(() => response.destroy());
  });
  const { hostname, port } = new URL(origin);
  server.listen(Number(port), hostname);
  await once(server, "listening");
  const url = `${origin}/webhooks`;
  const close = async () => {
    // Also that of a demo that was interrupted.
    for await (const { id, url: other } of mailkeel.webhooks.list()) {
      if (other === url) await mailkeel.webhooks.delete(id);
    }
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  };
  try {
    const { data } = await mailkeel.webhooks.create({ name: "Demo", url, events });
    endpoint = data;
    return { endpointId: data.id, url, received, counts, close };
  } catch (error) {
    await close();
    throw error;
  }
}

export type DemoReceiver = Awaited<ReturnType<typeof openReceiver>>;
