import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";
import { Mailkeel, WebhookSignatureError } from "../client/index.ts";

/** A receiver of webhooks as a client would write one: it refuses deliveries without a valid signature. */
export interface DemoReceiver {
  url: string;
  /** Accepts deliveries of this endpoint from now on. */
  expect(endpoint: { id: string; secret: string }): void;
  /** Events that came, each once however often it was delivered, by type. */
  received(): Map<string, number>;
  /** Deliveries with a wrong signature. */
  readonly refused: number;
  close(): Promise<void>;
}

/** @param origin the address of this machine that the stack lets webhooks reach */
export async function openReceiver(origin: string): Promise<DemoReceiver> {
  let endpoint: { id: string; secret: string } | undefined;
  /** Type by event id: an event may be delivered more than once. */
  const events = new Map<string, string>();
  let refused = 0;

  async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const header = (name: string) => request.headers[`x-service-${name}`]?.toString() ?? "";
    const body = await buffer(request);
    // A delivery to the endpoint of an earlier demo.
    if (header("webhook-id") !== endpoint?.id) return void response.writeHead(410).end();
    try {
      const event = Mailkeel.unwrapWebhook({ body, signature: header("signature"), secret: endpoint.secret });
      events.set(event.id, event.type);
    } catch (error) {
      if (!(error instanceof WebhookSignatureError)) throw error;
      refused++;
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
  return {
    url: `${origin}/webhooks`,
    expect: (expected) => {
      endpoint = expected;
    },
    received: () => new Map([...Map.groupBy(events.values(), (type) => type)].map(([type, all]) => [type, all.length])),
    get refused() {
      return refused;
    },
    close: async () => {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
