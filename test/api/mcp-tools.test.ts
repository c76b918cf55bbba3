import assert from "node:assert/strict";
import type { Tool } from "@modelcontextprotocol/server";
import { READ_GUIDE } from "../../api/mcp/guides.ts";
import { INSTRUCTIONS, toolsOf, visibleTools } from "../../api/mcp/tools.ts";
import { endpointsOf } from "../../api/rest/endpoints.ts";
import { appRouter } from "../../api/router.ts";
import { SCOPES } from "../../domain/access/scopes.ts";
import { isObject, type JsonObject } from "../../lib/json-object.ts";

const TOOLS: Tool[] = [...visibleTools(toolsOf(appRouter), { scopes: [...SCOPES] }), READ_GUIDE];
const OPERATIONS = new Map(endpointsOf(appRouter).map(({ meta }) => [meta.operationId, meta]));

/** Keywords that OpenAI, Anthropic and Google take in the schema of a tool. */
const KEYWORDS = new Set([
  ...["type", "description", "enum", "properties", "required", "items"],
  ...["minimum", "maximum", "minItems", "maxItems", "maxLength"],
]);

/** The parts of a schema that some provider refuses, each with its place. */
function* problemsOf(schema: unknown, place: string): Generator<string> {
  if (!isObject(schema)) return void (yield `${place} is no object`);
  const { type, enum: values, properties = {}, items, required = [] } = schema;
  for (const keyword of Object.keys(schema)) if (!KEYWORDS.has(keyword)) yield `${place} has ${keyword}`;
  if (typeof type !== "string") yield `${place} has the type ${JSON.stringify(type)}`;
  if (
    values !== undefined &&
    (type !== "string" || !Array.isArray(values) || !values.every((each) => typeof each === "string" && each !== ""))
  )
    yield `${place} has choices that are no texts`;
  if (type === "array") yield* problemsOf(items, `${place}[]`);
  for (const name of required as string[])
    if (!Object.hasOwn(properties as object, name)) yield `${place} lacks ${name}`;
  for (const [name, field] of Object.entries(properties as JsonObject)) {
    if (!/^[a-zA-Z0-9_-]{1,64}$/.test(name)) yield `${place} has a field ${name}`;
    yield* problemsOf(field, `${place}.${name}`);
  }
}

describe("The tools of assistants", () => {
  it("keep the limits of every provider: one tool that does not makes all calls of a client fail", () => {
    for (const { name, description = "", inputSchema } of TOOLS) {
      assert.match(`mcp__mailkeel__${name}`, /^[a-zA-Z0-9_-]{1,64}$/);
      assert.ok(description.length > 0 && description.length <= 1_024, `${name}: ${description.length} characters`);
      assert.equal(inputSchema.type, "object");
      assert.deepEqual([...problemsOf(inputSchema, name)], []);
    }
    assert.ok(TOOLS.length <= 64, `${TOOLS.length} tools`);
    // Some clients cut longer instructions.
    assert.ok(INSTRUCTIONS.length <= 2_048, `${INSTRUCTIONS.length} characters`);
  });

  it("describe the arguments that they share in the server's instructions alone", () => {
    for (const name of ["limit", "cursor", "order", "sort", "updated_since", "dry_run", "idempotency_key"]) {
      assert.match(INSTRUCTIONS, new RegExp(`\\b${name}\\b`));
      for (const { inputSchema } of TOOLS) {
        const field = inputSchema.properties?.[name] ?? {};
        assert.deepEqual(
          Object.keys(field).filter((keyword) => keyword !== "type" && keyword !== "enum"),
          [],
        );
      }
    }
  });

  it("write out a definition that is shared, and cut a long description to its first sentence", () => {
    const { upsertContacts, createNewsletter } = Object.fromEntries(TOOLS.map((tool) => [tool.name, tool.inputSchema]));
    const { items } = Object(upsertContacts?.properties?.["contacts"]);
    assert.deepEqual(Object.keys(items.properties), ["email", "first_name", "last_name", "tracking_consent", "fields"]);
    assert.equal(items.properties.fields.type, "object");
    assert.deepEqual(createNewsletter?.properties?.["body"], {
      type: "string",
      description: "The HTML, a Liquid template.",
    });
  });

  it("say of each operation whether it reads, and whether it can be taken back", () => {
    const hints = Object.fromEntries(TOOLS.map(({ name, annotations }) => [name, annotations]));
    assert.deepEqual(hints["listLists"], { readOnlyHint: true });
    assert.deepEqual(hints["createList"], { destructiveHint: false, idempotentHint: false });
    for (const name of ["createSubscribers", "previewNewsletterSend", "previewCampaignSend"])
      assert.equal(hints[name]?.destructiveHint, false, name);
    for (const name of ["sendNewsletter", "deleteList", "updateNewsletter", "addListSubscribers"])
      assert.equal(hints[name]?.destructiveHint, true, name);
    assert.equal(hints["sendNewsletter"]?.idempotentHint, true);
  });

  it("are the operations that an assistant needs, and a guide", () => {
    const names = new Set(TOOLS.map(({ name }) => name));
    assert.ok(names.delete("readGuide"));
    assert.ok(names.delete("createSubscribers"));
    const missing = new Set(OPERATIONS.keys());
    for (const name of names) assert.ok(missing.delete(name), name);
    assert.deepEqual([...missing].toSorted(), [
      ...["createContact", "createSubscriber", "createWebhook", "deleteWebhook", "listWebhookEventTypes"],
      ...["replayWebhookDelivery", "retrieveAccount", "retrieveWebhook", "retrieveWebhookDelivery"],
      ...["rotateWebhookSecret", "testWebhook", "updateWebhook"],
    ]);
  });
});
