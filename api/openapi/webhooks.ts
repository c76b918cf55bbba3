import { CURRENT_API_VERSION } from "../../domain/api-version.ts";
import { exampleId } from "../../domain/ids.ts";
import { EVENT_NAMES, EVENTS } from "../../domain/webhooks/catalogue.ts";
import type { ObjectType } from "../../domain/webhooks/objects.ts";
import { examplePayload } from "./event-examples.ts";
import { EVENT_OBJECTS } from "./event-objects.ts";
import { type JsonSchema, pascal, refTo, type Schemas } from "./schemas.ts";

interface DeliveryHeader {
  description: string;
  example: string;
  optional?: true;
}

const HEADERS: Readonly<Record<string, DeliveryHeader>> = {
  "X-Service-Signature": {
    description:
      "`t=<unix seconds>,v1=<hex>`. The hex is the HMAC-SHA256 of `<timestamp>.<raw body>`, keyed with the endpoint's whole secret. During a rotation of the secret there are several `v1`; one that matches is enough. Compare in constant time, and refuse a timestamp that is more than 300 seconds from now.",
    example: "t=1795278000,v1=5f0c1c4a4d3f0c2a0e5d9b8a7c6f5e4d3c2b1a0f9e8d7c6b5a4f3e2d1c0b9a8f",
  },
  "X-Service-Timestamp": { description: "The time inside of the signature, in unix seconds.", example: "1795278000" },
  "X-Service-Event": { description: "The name of the event.", example: "unsubscribe.created" },
  "X-Service-Event-Id": {
    description: "The id of the event, the same in every retry and replay: deduplicate on it.",
    example: exampleId("event"),
  },
  "X-Service-Delivery-Id": {
    description: "The id of this attempt, as in the delivery log.",
    example: exampleId("delivery"),
  },
  "X-Service-Webhook-Id": { description: "The endpoint.", example: exampleId("webhook") },
  "X-Service-Api-Version": { description: "The dated version that shapes the payload.", example: CURRENT_API_VERSION },
  "X-Service-Replay": { description: "`true` for a replay; absent otherwise.", example: "true", optional: true },
  "X-Service-Test": {
    description: "`true` for an example that was asked for; absent otherwise.",
    example: "true",
    optional: true,
  },
};

const URL_OF_ENDPOINT = "{$request.body#/url}";

/** The headers of a delivery, as parameters of its request. */
export const DELIVERY_HEADERS: Record<string, JsonSchema> = Object.fromEntries(
  Object.entries(HEADERS).map(([name, { description, example, optional = false }]) => [
    name,
    { name, in: "header", required: !optional, description, schema: { type: "string" }, example },
  ]),
);

/** The payload of the events of one kind of record: their names stand with the webhooks, and more may come. */
function payloadOf(schemas: Schemas, objectType: ObjectType): JsonSchema {
  const record = schemas.convert(EVENT_OBJECTS[objectType], "output");
  const name = String(record["$ref"]).replace(/^.*\/(\w+?)(?:OfEvent)?$/, "$1Payload");
  const events = EVENT_NAMES.filter((event) => EVENTS[event].objectType === objectType);
  return schemas.add(name, {
    type: "object",
    description: `The payload of ${events.map((event) => `\`${event}\``).join(", ")}.`,
    properties: {
      id: { type: "string", description: "The id of the event.", examples: [exampleId("event")] },
      object: { type: "string", const: "event" },
      type: { type: "string", description: "The name of the event.", examples: [events[0]] },
      api_version: { type: "string", const: CURRENT_API_VERSION },
      created_at: { type: "string", format: "date-time", examples: ["2026-11-21T17:00:00.000Z"] },
      data: { type: "object", properties: { object: record }, required: ["object"] },
    },
    required: ["id", "object", "type", "api_version", "created_at", "data"],
  });
}

/**
 * The events of the catalogue, each as the request that an endpoint gets: callbacks of its registration. Generators know
 * those; of the `webhooks` of OpenAPI 3.1 some make broken code.
 */
export function eventCallbacks(schemas: Schemas): Record<string, JsonSchema> {
  const parameters = Object.keys(DELIVERY_HEADERS).map((name) => refTo("parameters", name));
  return Object.fromEntries(
    EVENT_NAMES.map((event) => {
      const { description, objectType } = EVENTS[event];
      const schema = payloadOf(schemas, objectType);
      const post = {
        operationId: `on${pascal(event)}`,
        tags: ["Webhooks"],
        summary: description.replace(/\.$/, ""),
        description: `${description} The record is as it stood right after the change. Events arrive at least once and in no particular order.`,
        security: [],
        parameters,
        requestBody: {
          required: true,
          content: { "application/json": { schema, examples: { example: { value: examplePayload(event) } } } },
        },
        responses: {
          "2XX": { description: "Delivered." },
          "4XX": { description: "Refused for good, and not tried again; except 408 and 429, which are." },
          default: { description: "Tried again." },
        },
      };
      return [event, { [URL_OF_ENDPOINT]: { post } }];
    }),
  );
}
