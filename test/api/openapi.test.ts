import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { promisify } from "node:util";
import { openApiDocument } from "../../api/openapi/document.ts";
import { type JsonSchema, Schemas } from "../../api/openapi/schemas.ts";
import { endpointsOf } from "../../api/rest/endpoints.ts";
import { appRouter } from "../../api/router.ts";
import { SCOPES } from "../../domain/access/scopes.ts";
import { EVENT_NAMES } from "../../domain/webhooks/catalogue.ts";
import { isObject } from "../../lib/json-object.ts";
import type { Json } from "../support/api.ts";
import { documentOf, validatorAt } from "../support/document.ts";
import { stack } from "../support/stack.ts";

const run = promisify(execFile);
const REDOCLY = new URL("../../node_modules/@redocly/cli/bin/cli.js", import.meta.url).pathname;
/** With room for what is added: larger ones are slow to read for assistants and editors. */
const MAX_BYTES = 460_000;
const VERBS = ["get", "post", "patch", "put", "delete"];

interface Place {
  pointer: string;
  value: JsonSchema;
}

/** Every object inside of a document, with its JSON pointer. */
function* objectsIn(value: unknown, pointer = ""): Generator<Place> {
  if (isObject(value)) yield { pointer, value };
  if (typeof value !== "object" || value === null) return;
  for (const [name, inner] of Object.entries(value)) {
    yield* objectsIn(inner, `${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`);
  }
}

/** The last name of a reference; empty without one. */
const nameIn = (ref: string | undefined): string => ref?.split("/").at(-1) ?? "";

function operationsOf(document: Json): Map<string, Json> {
  const items: Json[] = Object.values(document.paths);
  const operations = items.flatMap((item) => VERBS.filter((verb) => item[verb]).map((verb) => item[verb]));
  return new Map(operations.map((operation) => [operation.operationId, operation]));
}

describe("the OpenAPI document", () => {
  let url: string;
  let document: Json;

  before(async () => {
    url = new URL("/openapi.json", (await stack()).api).href;
    document = await (await fetch(url)).json();
  });

  it("is served at /openapi.json, names every route once and is not sent again while it is the same", async () => {
    const answer = await fetch(url);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get("content-type"), "application/json; charset=utf-8");
    assert.equal(answer.headers.get("cache-control"), "no-cache");
    assert.equal(document.openapi, "3.1.0");
    const declared = endpointsOf(appRouter).map(({ meta }) => meta.operationId);
    assert.deepEqual([...operationsOf(document).keys()].sort(), declared.sort());
    assert.equal(new Set(declared).size, declared.length);
    assert.deepEqual(Object.keys(document.paths["/webhooks"].post.callbacks), EVENT_NAMES);

    const etag = answer.headers.get("etag");
    assert.ok(etag);
    // Without a Cache-Control of its own, fetch asks for a fresh answer.
    const again = await fetch(url, { headers: { "if-none-match": etag, "cache-control": "max-age=0" } });
    assert.equal(again.status, 304);
    assert.equal(await again.text(), "");
  });

  /** Compares a document with the recommended rules of Redocly: neither an error nor a warning. */
  async function assertClean(checked: Json): Promise<void> {
    const folder = await mkdtemp(`${tmpdir()}/openapi-`);
    try {
      await writeFile(`${folder}/openapi.json`, JSON.stringify(checked));
      const args = [REDOCLY, "lint", "openapi.json", "--extends=recommended", "--format=json"];
      const env = { ...process.env, REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true" };
      const options = { cwd: folder, env, maxBuffer: 2 ** 26 };
      const { stdout } = await run(process.execPath, args, options).catch((failed: { stdout: string }) => failed);
      const { problems, totals }: Json = JSON.parse(stdout);
      const found = problems.map(({ ruleId, message, location }: Json) => [ruleId, message, location[0]?.pointer]);
      assert.deepEqual(found, []);
      assert.deepEqual([totals.errors, totals.warnings], [0, 0]);
    } finally {
      await rm(folder, { recursive: true });
    }
  }

  it("names OAuth tokens where an issuer is configured, at every operation but those that send, and passes Redocly's rules", async () => {
    assert.deepEqual(Object.keys(document.components.securitySchemes), ["ApiKey", "Bearer"]);
    const issuer = "https://login.example.com";
    const withIssuer: Json = openApiDocument(appRouter, "https://mail.mailkeel.test", issuer);
    const { OAuth, ...others } = withIssuer.components.securitySchemes;
    assert.deepEqual(Object.keys(others), ["ApiKey", "Bearer"]);
    assert.deepEqual([OAuth.type, OAuth.scheme, OAuth.bearerFormat], ["http", "bearer", "JWT"]);
    assert.ok(OAuth.description.includes(issuer));
    const scopes = [...OAuth.description.matchAll(/`(\w+:\w+)`/g)].map(([, scope]) => scope);
    assert.deepEqual(
      scopes,
      SCOPES.filter((scope) => !scope.endsWith(":send")),
    );
    for (const [id, { security }] of operationsOf(withIssuer)) {
      const [{ ApiKey: needed }, , token] = security;
      if (/^preview(Campaign|Newsletter)Send$|^(send|pause|resume|cancel)(Campaign|Newsletter)$/.test(id))
        assert.equal(token, undefined);
      else assert.deepEqual(token, { OAuth: needed }, id);
    }
    await assertClean(withIssuer);
  });

  it("holds examples that fit their schemas, of every body, parameter and header", () => {
    const whole = documentOf();
    let examples = 0;
    const fits = (schema: string, value: unknown) => {
      const validate = validatorAt(schema);
      assert.ok(validate(value), `${schema}: ${JSON.stringify(value)} ${JSON.stringify(validate.errors)}`);
      examples++;
    };
    const schemas = new Schemas();
    for (const [name, schema] of Object.entries((whole as Json).components.schemas))
      schemas.byName.set(name, schema as Json);
    const without: string[] = [];
    for (const { pointer, value } of objectsIn(whole)) {
      const inData = /\/(examples|example|default|const)(\/|$)/.test(pointer);
      if (inData || !isObject(value["schema"])) continue;
      const given: unknown[] = [
        ...(value["example"] === undefined ? [] : [value["example"]]),
        ...Object.values(isObject(value["examples"]) ? value["examples"] : {}).map(({ value }: Json) => value),
        ...(Array.isArray(value["schema"]["examples"]) ? value["schema"]["examples"] : []),
      ];
      // A reader makes the example of such an answer of those of its fields.
      if (given.length === 0 && pointer.includes("/responses/")) given.push(schemas.exampleOf(value["schema"]));
      if (given.length === 0 && value["schema"]["const"] === undefined) without.push(pointer);
      for (const example of given) fits(`${pointer}/schema`, example);
    }
    assert.deepEqual(without, []);
    assert.ok(examples > 200, `${examples} examples`);
  });

  it("describes every operation, parameter and answer, and leaves no body open and no answer closed", () => {
    for (const [id, { summary, description, parameters, tags, responses }] of operationsOf(document)) {
      for (const text of [summary, description]) assert.ok(text?.length > 5, id);
      assert.equal(tags.length, 1, id);
      for (const parameter of parameters) assert.ok(parameter.$ref ?? parameter.description, `${id} ${parameter.name}`);
      for (const status of ["400", "401", "402", "403", "413", "415", "429", "500", "503"]) {
        assert.ok(responses[status], `${id} ${status}`);
      }
    }
    for (const [name, schema] of Object.entries<Json>(document.components.schemas)) {
      assert.ok(schema.description ?? name.endsWith("Body"), name);
      for (const { pointer, value } of objectsIn(schema)) {
        if (/\/(examples|default)(\/|$)/.test(pointer) || !/(^|\/properties\/\w+|\/items|\/anyOf\/\d)$/.test(pointer))
          continue;
        assert.ok(Object.keys(value).length > 0, `${name}${pointer} is empty`);
        if (!isObject(value["properties"])) continue;
        const isGiven = name.endsWith("Body") || name === "ContactUpsert";
        assert.equal(value["additionalProperties"], isGiven ? false : undefined, `${name}${pointer}`);
      }
    }
  });

  it("is small, and names nothing that common generators of clients refuse or take for something else", () => {
    assert.ok(Buffer.byteLength(JSON.stringify(document)) <= MAX_BYTES);
    const isOneTypeOrNull = (type: unknown) =>
      typeof type === "string" || (Array.isArray(type) && type.length === 2 && type[1] === "null");
    const inSchema = /\/(schema|schemas\/\w+)(\/.*)?$/;
    for (const { pointer, value } of objectsIn(document)) {
      if (!inSchema.test(pointer) || /\/(examples?|properties)$/.test(pointer) || /\/examples?\//.test(pointer))
        continue;
      if (value["type"] !== undefined) assert.ok(isOneTypeOrNull(value["type"]), `${pointer} has several types`);
      assert.notEqual(typeof value["default"], "object", `${pointer} has a default that is no text, number or boolean`);
    }
    const { schemas, responses } = document.components;
    for (const [name, schema] of Object.entries<Json>(schemas)) {
      assert.ok(!name.endsWith("Response"), `${name} is the name of a type that generators make`);
      for (const [field, { default: preset }] of Object.entries<Json>(schema.properties ?? {}))
        assert.equal(preset, undefined, `${name}.${field} is optional, and would be asked for`);
    }
    const bodies = Object.values<Json>(responses).map(({ content }) => content["application/json"].schema.$ref);
    assert.deepEqual(new Set(bodies), new Set(["#/components/schemas/ErrorAnswer"]));
    for (const [id, operation] of operationsOf(document)) {
      const refused = Object.entries<Json>(operation.responses).filter(([status]) => status >= "400");
      for (const [status, { $ref }] of refused)
        assert.ok($ref?.startsWith("#/components/responses/"), `${id} ${status}`);
      for (const code of operation["x-error-codes"]) assert.ok(operation.description.includes(`\`${code}\``), code);
      for (const { links = {} } of Object.values<Json>(operation.responses))
        for (const link of Object.values<Json>(links)) assert.equal(link.requestBody, undefined, id);
    }
    for (const { code, type } of [schemas.Error.properties, schemas.CreateWebhookBody.properties.events.items])
      assert.equal((code ?? type).enum, undefined);
  });

  it("shows a dry run in the shape of its write: without data, with an impact", () => {
    for (const { parameters, responses } of operationsOf(document).values()) {
      const takesDryRun = parameters.some(({ $ref }: Json) => $ref === "#/components/parameters/DryRun");
      const successes = Object.entries<Json>(responses).filter(([status]) => status < "300");
      const shapes = new Set(successes.map(([, { content }]) => content["application/json"].schema.$ref));
      assert.equal(shapes.size, 1);
      const { data, meta } = document.components.schemas[nameIn([...shapes][0])].properties;
      assert.equal(data.anyOf?.[1].type === "null", takesDryRun);
      if (takesDryRun) assert.deepEqual(meta, { $ref: "#/components/schemas/WriteMeta" });
    }
  });

  it("asks for the token of a send, also where the server has a code of its own for a request without it", () => {
    for (const kind of ["Newsletter", "Campaign"]) {
      const { required, properties } = document.components.schemas[`Send${kind}Body`];
      assert.deepEqual([required, properties.confirmation_token.type], [["confirmation_token"], "string"]);
      assert.equal(operationsOf(document).get(`send${kind}`)?.requestBody.required, true);
    }
  });

  it("links operations that exist, by parameters that they take", () => {
    const operations = operationsOf(document);
    const links = [...operations.values()].flatMap(({ operationId, responses }) =>
      Object.values<Json>(responses).flatMap(({ links = {} }) =>
        Object.values<Json>(links).map((link) => ({ from: operationId, ...link })),
      ),
    );
    for (const { from, operationId, parameters } of links) {
      const taken = operations.get(operationId)?.parameters ?? [];
      const names = taken.map(({ $ref, name }: Json) => document.components.parameters[nameIn($ref)]?.name ?? name);
      for (const name of Object.keys(parameters)) assert.ok(names?.includes(name), `${from} → ${operationId}: ${name}`);
    }
    const pairs = links.map(({ from, operationId }) => `${from} → ${operationId}`);
    for (const pair of ["createList → retrieveList", "previewNewsletterSend → sendNewsletter"])
      assert.ok(pairs.includes(pair), pair);
  });
});
