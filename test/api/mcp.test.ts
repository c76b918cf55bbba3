import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { mock } from "node:test";
import {
  Client,
  discoverOAuthProtectedResourceMetadata,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Server } from "@modelcontextprotocol/server";
import { pino } from "pino";
import { z } from "zod";
import { toolsOf } from "../../api/mcp/tools.ts";
import { DEADLINE_MS } from "../../api/rest/deadline.ts";
import { PLAIN_ANSWER_BYTES } from "../../api/rest/http.ts";
import { ok, router } from "../../api/rest/route.ts";
import { appRouter } from "../../api/router.ts";
import { SCOPES, SEND_SCOPES } from "../../domain/access/scopes.ts";
import { ApiError, ERRORS, isErrorCode, type Retry } from "../../domain/errors.ts";
import { newId } from "../../domain/ids.ts";
import { api, type Json } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, unique, uniqueEmail } from "../support/factories.ts";
import { bringNewsletter } from "../support/newsletter-by-tools.ts";
import { freshKey, makeSender, type Sender } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { claimsFor, openIssuer, signToken, type TestIssuer } from "./oauth-issuer.ts";

/** The largest list of tools, in bytes: a client reads it to its model before every conversation. */
const MOST_TOOL_BYTES = 36_000;
const INFO = { name: "test", version: "1.0.0" };
/** Codes of messages that are refused as a whole, besides those without a good credential. */
const BEFORE_A_TOOL: ReadonlySet<string> = new Set([
  ...["invalid_json", "unsupported_media_type", "request_timeout", "method_not_allowed", "version_unsupported"],
]);
const CLIENT_FILE = join(import.meta.dirname, "../../client/mcp.ts");

/** The answers of the client's program to lines, by their ids. */
async function bridge(url: string, key: string, ...lines: string[]): Promise<Record<string, Json>> {
  const env = { MAILKEEL_URL: url, MAILKEEL_API_KEY: key };
  const child = spawn(process.execPath, [CLIENT_FILE, "mcp"], { env, stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.end(lines.join("\n"));
  const answers = (await child.stdout.toArray()).join("").trim().split("\n");
  return Object.fromEntries(
    answers.map((line) => JSON.parse(line)).map((answer) => [answer.id, answer.error ?? answer]),
  );
}

describe("The MCP server", () => {
  let issuer: TestIssuer;
  let app: TestApp;
  const logged: Json[] = [];
  /** Method, route and status of the requests that have ended, as the metrics count them. */
  const ended: string[] = [];
  let sender: Sender;
  /** A token for all that a token can hold. */
  let token: string;
  let withKey: Client;
  let withToken: Client;
  const url = (base = app.base) => new URL(`${base}/mcp`);

  async function connect(credential: string, mode: "legacy" | "auto" = "legacy", base?: string): Promise<Client> {
    const client = new Client(INFO, { versionNegotiation: { mode } });
    const headers = { authorization: `Bearer ${credential}` };
    await client.connect(new StreamableHTTPClientTransport(url(base), { requestInit: { headers } }));
    return client;
  }
  /** The API's body in the answer to a call, and the advice beside a refusal. */
  async function call(client: Client, name: string, args: Record<string, unknown> = {}): Promise<Json> {
    const { content, isError = false } = await client.callTool({ name, arguments: args });
    const [body = "", advice] = content.map((part) => (part.type === "text" ? part.text : ""));
    assert.equal(isError, advice !== undefined);
    return { ...JSON.parse(body), advice };
  }
  const namesOf = async (client: Client) => (await client.listTools()).tools.map(({ name }) => name).toSorted();
  const post = (body: string, headers: Record<string, string> = {}) =>
    fetch(url(), { method: "POST", body, headers: { "content-type": "application/json", ...headers } });
  const message = (method: string, params: object = {}) => JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });

  before(async () => {
    issuer = await openIssuer();
    app = await serveRoutes(appRouter, {
      changes: issuer.settings,
      with: {
        log: pino({}, { write: (line: string) => void logged.push(JSON.parse(line)) }),
        requestEnded: ({ method, route, status }) => ended.push(`${method} ${route} ${status}`),
      },
    });
    sender = await makeSender({ recipients: 2 });
    const [key] = issuer.keys;
    assert.ok(key);
    const scope = SCOPES.filter((name) => name !== "suppressions:delete").join(" ");
    token = await signToken(key, await claimsFor(issuer, sender, { scope }));
    withKey = await connect(sender.keys.live, "auto");
    withToken = await connect(token);
  });
  after(async () => {
    await Promise.all([withKey.close(), withToken.close()]);
    await app.close();
    await issuer.close();
  });

  it("speaks the newest version of MCP and those before", () => {
    assert.equal(withKey.getProtocolEra(), "modern");
    assert.equal(withToken.getProtocolEra(), "legacy");
  });

  it("shows a caller the tools of its scopes, and no token one of the send tier", async () => {
    const tools = (allowed: (scope: string) => boolean) =>
      [...toolsOf(appRouter).values()]
        .filter(({ endpoint: { meta } }) => [meta.scope, meta.alsoScope].every((scope) => !scope || allowed(scope)))
        .map(({ tool }) => tool.name)
        .concat("readGuide")
        .toSorted();
    const isKeys = (scope: string) => scope !== "suppressions:delete";
    assert.deepEqual(await namesOf(withKey), tools(isKeys));
    const isTokens = (scope: string) => isKeys(scope) && !(SEND_SCOPES as string[]).includes(scope);
    assert.deepEqual(await namesOf(withToken), tools(isTokens));
    const few = await connect((await sender.mint({ scopes: ["lists:read"] })).key);
    assert.deepEqual(await namesOf(few), [
      "listForms",
      "listLists",
      "readGuide",
      "retrieveForm",
      "retrieveList",
      "retrieveMe",
    ]);
    await few.close();
  });

  it("describes all tools to a key that may do everything in few bytes", async () => {
    const headers = { authorization: `Bearer ${sender.keys.live}`, "mcp-protocol-version": "2025-11-25" };
    const answer = await (await post(message("tools/list"), headers)).text();
    assert.ok(Buffer.byteLength(answer) <= MOST_TOOL_BYTES, `${Buffer.byteLength(answer)} bytes`);
    assert.doesNotMatch(answer, /Idempotency-Key/);
    const { tools } = JSON.parse(answer).result;
    const send = tools.find(({ name }: Json) => name === "sendNewsletter");
    const replay = tools.find(({ name }: Json) => name === "replayWebhookDeliveries");
    assert.ok(JSON.stringify(replay.inputSchema).includes('"newsletter.completed"'), "the names of events");
    assert.deepEqual(send.inputSchema.required, ["newsletterId", "confirmation_token", "idempotency_key"]);
    assert.match(send.description, /only after the person has seen the numbers of the preview/);
  });

  it("brings a newsletter to five people by tools alone, with a key that is made for the list", async () => {
    const { data: list } = await call(withKey, "createList", { name: unique("Readers"), optin: "SINGLE" });
    const client = await connect((await sender.mint({ forListId: list.id })).key, "auto");
    await bringNewsletter((...tool) => call(client, ...tool), list.id, sender.fromEmail);
    const { data: all } = await call(client, "retrieveAnalyticsOverview", { resource_id: null });
    assert.equal(all.days.length, 30);
    await client.close();
  });

  it("makes up to a hundred subscribers in one call, refuses each for itself, and makes none twice under a key", async () => {
    const taken = uniqueEmail();
    await call(withKey, "createSubscribers", { subscribers: [{ email: taken }] });
    // More than a caller may have under way at once.
    const some = Array.from({ length: 20 }, () => ({ email: uniqueEmail(), first_name: null }));
    const subscribers = [{ email: taken }, { email: "nobody" }, { email: uniqueEmail(), list: "x" }, ...some];
    const tried = await call(withKey, "createSubscribers", { subscribers, dry_run: true });
    assert.equal(tried.data.at(-1).meta.impact.would_create, 1);
    const keyed = { subscribers, idempotency_key: "k".repeat(200) + freshKey().slice(0, 55).padEnd(55, "k") };
    const long = { subscribers, idempotency_key: `${keyed.idempotency_key}k` };
    assert.equal((await call(withKey, "createSubscribers", long)).error.param, "idempotency_key");
    const { data } = await call(withKey, "createSubscribers", keyed);
    const refusals = ["resource_already_exists", "validation_failed", "validation_failed"];
    assert.deepEqual(
      data.map((each: Json) => each.error?.code ?? each.data.email),
      [...refusals, ...some.map(({ email }) => email)],
    );
    assert.equal(data[1].error.param, "email");
    const ids = (answers: Json[]) => answers.map((each) => each.data?.id);
    assert.deepEqual(ids((await call(withKey, "createSubscribers", keyed)).data), ids(data));

    for (const [args, param] of [
      [{}, "subscribers"],
      [{ subscribers: [] }, "subscribers"],
      [{ subscribers: ["x"] }, "subscribers[0]"],
      [{ subscribers, listId: "list_none" }, "listId"],
    ] as const) {
      const { error } = await call(withKey, "createSubscribers", args);
      assert.deepEqual([error.code, error.param], ["validation_failed", param]);
    }
    const hundredOne = Array.from({ length: 101 }, () => ({ email: uniqueEmail() }));
    assert.equal((await call(withKey, "createSubscribers", { subscribers: hundredOne })).error.param, "subscribers");
    const again = await call(withKey, "createSubscribers", { subscribers: [{ email: taken }] });
    assert.match(again.advice, /^Every item was refused/);
    assert.equal(again.data[0].error.code, "resource_already_exists");
    const reader = await connect((await sender.mint({ scopes: ["subscribers:read"] })).key);
    assert.equal((await call(reader, "createSubscribers", { subscribers })).error.code, "insufficient_scope");
    await reader.close();
  });

  it("takes null for an argument that is left out, unless it clears a field", async () => {
    const { data: list } = await call(withKey, "createList", {
      ...{ name: unique("List"), description: "A note", optin: null, dry_run: null, idempotency_key: null },
      // A name that every object inherits.
      ...{ constructor: null },
    });
    assert.deepEqual([list.description, list.optin], ["A note", "SINGLE"]);
    const page = await call(withKey, "listLists", { limit: 1, cursor: null, order: null, updated_since: null });
    assert.equal(page.data[0].id, list.id);
    const { data } = await call(withKey, "updateList", { listId: list.id, name: null, description: null });
    assert.deepEqual([data.name, data.description], [list.name, null]);
    assert.match((await call(withKey, "retrieveList", { listId: null })).error.message, /listId is required/);
    const answer = await post(message("tools/call", { name: "retrieveMe", arguments: null }), {
      authorization: `Bearer ${token}`,
    });
    assert.equal(((await answer.json()) as Json).result.isError, undefined);
  });

  it("agrees on no version of MCP that has batches, and refuses a batch", async () => {
    const headers = { authorization: `Bearer ${token}` };
    const agreed = async (protocolVersion: string) => {
      const params = { protocolVersion, capabilities: {}, clientInfo: INFO };
      return ((await (await post(message("initialize", params), headers)).json()) as Json).result.protocolVersion;
    };
    const versions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    assert.deepEqual(await Promise.all(versions.map(agreed)), ["2024-11-05", "2024-11-05", ...versions.slice(2)]);
    const batch = (await (await post(`[${message("ping")}]`, headers)).json()) as Json;
    assert.match(batch.error.message, /no batches/);
  });

  it("gives structured results to the versions of MCP that have them", async () => {
    for (const [version, isStructured] of [
      [undefined, false],
      ["2025-03-26", false],
      ["2025-06-18", true],
    ] as const) {
      const headers = { authorization: `Bearer ${token}`, ...(version && { "mcp-protocol-version": version }) };
      const ask = async (...params: Parameters<typeof message>) =>
        ((await (await post(message(...params), headers)).json()) as Json).result;
      const [tool] = (await ask("tools/list")).tools;
      assert.equal(tool.outputSchema?.type, isStructured ? "object" : undefined);
      const { structuredContent, content } = await ask("tools/call", { name: "retrieveMe", arguments: {} });
      assert.deepEqual(structuredContent, isStructured ? JSON.parse(content[0].text) : undefined);
      const refused = await ask("tools/call", { name: "retrieveList", arguments: { listId: "list_none" } });
      assert.deepEqual([refused.isError, refused.structuredContent], [true, undefined]);
    }
  });

  it("has the guides as resources at the URLs of their pages, and a tool that reads them", async () => {
    for (const client of [withKey, withToken]) {
      const { resources } = await client.listResources();
      const page = resources.find(({ name }) => name === "merge-tags");
      assert.equal(page?.uri, `${new URL((await stack()).api).origin}/docs/merge-tags`);
      const { contents } = await client.readResource({ uri: `${page.uri}#tags` });
      const [{ text } = { text: "" }] = contents as { text: string }[];
      assert.match(text, /^# Merge tags\n/);
      assert.doesNotMatch(text, /\{\{ (base|origin) \}\}/);
      const { content } = await client.callTool({ name: "readGuide", arguments: { guide: "merge-tags" } });
      assert.deepEqual(content, [{ type: "text", text }]);
      for (const guide of ["none", 1, { toString: 1 }])
        await assert.rejects(client.callTool({ name: "readGuide", arguments: { guide } }), /The guides are /);
      await assert.rejects(client.readResource({ uri: "file:///etc/passwd" }), /The guides are /);
      assert.deepEqual((await client.listResourceTemplates()).resourceTemplates, []);
    }
  });

  it("lets an assistant draft a newsletter: a dry run first, and once under a key", async () => {
    const draft = { name: unique("Draft"), subject: "Hello", body: "<p>Hello</p>", from_email: sender.fromEmail };
    const tried = await call(withToken, "createNewsletter", { ...draft, dry_run: true });
    assert.deepEqual([tried.data, tried.meta.impact.would_create], [null, 1]);
    const keyed = { ...draft, idempotency_key: freshKey() };
    const { data } = await call(withToken, "createNewsletter", keyed);
    assert.equal((await call(withToken, "createNewsletter", keyed)).data.id, data.id);
    const page = await call(withKey, "listNewsletters", { limit: 1, status: "DRAFT" });
    assert.deepEqual([page.data.length, page.data[0].id], [1, data.id]);
  });

  it("previews and confirms a send for a key, and refuses the confirm to a token", async () => {
    const { newsletterId } = sender;
    const preview = await call(withKey, "previewNewsletterSend", { newsletterId, idempotency_key: freshKey() });
    const send = { newsletterId, confirmation_token: preview.data.confirmation.token, idempotency_key: freshKey() };
    const refused = await call(withToken, "sendNewsletter", send);
    assert.equal(refused.error.code, "insufficient_scope");
    assert.match(refused.error.message, /which no OAuth client can hold; use an API key/);
    const sent = await call(withKey, "sendNewsletter", send);
    assert.equal(sent.data.newsletter_id, newsletterId, JSON.stringify(sent));
    assert.deepEqual((await call(withKey, "sendNewsletter", send)).data, sent.data);
  });

  it("answers a bad call with the API's error, and says what to do", async () => {
    const { keys } = await makeTeam();
    const { data } = (await api(keys.live).post("/lists", { name: "Of another team" })).body;
    for (const listId of [data.id, "list_none"]) {
      const { error, advice } = await call(withKey, "retrieveList", { listId });
      assert.deepEqual([error.type, error.code], ["not_found_error", "not_found"]);
      assert.match(advice, /\w+\.$/);
    }
    for (const [name, args, code, param] of [
      ["createList", { name: { $ne: 1 } }, "validation_failed", "name"],
      ["createList", {}, "validation_failed", "name"],
      ["createList", { name: "x", dry_run: "perhaps" }, "validation_failed", "dry_run"],
      ["createList", { name: "x", dry_run: { toString: "x" } }, "validation_failed", "dry_run"],
      ["createList", { name: "x", dry_run: [[[true]]] }, "validation_failed", "dry_run"],
      ["createList", { name: "x", idempotency_key: {} }, "validation_failed", "idempotency_key"],
      ["retrieveList", { listId: ["list_none"] }, "validation_failed", "listId"],
      ["retrieveList", {}, "validation_failed", "listId"],
      ["retrieveList", { listId: "list_none", name: "x" }, "unsupported_parameter", "name"],
      ["deleteList", { listId: "list_none", idempotency_key: "" }, "not_found", undefined],
      ["retrieveUsage", { dry_run: true }, "unsupported_parameter", "dry_run"],
      ["previewNewsletterSend", { newsletterId: "nl_none" }, "idempotency_key_required", undefined],
    ] as const) {
      const { error, advice } = await call(withKey, name, args);
      assert.deepEqual([error.code, error.param], [code, param], name);
      assert.doesNotMatch(error.message + advice, /Idempotency-Key|header/);
    }
    await assert.rejects(call(withKey, "dropTables"), /There is no tool dropTables/);
  });

  it("checks a message's size, then its credential, then its origin and form, and takes no other method", async () => {
    const codeOf = async (answer: Promise<Response>) => ((await (await answer).json()) as Json).error.code;
    const authorization = `Bearer ${token}`;
    assert.equal(await codeOf(post("x".repeat(10 * 1024 * 1024))), "payload_too_large");
    assert.equal(await codeOf(post("not JSON")), "api_key_missing");
    assert.equal(await codeOf(post("not JSON", { authorization })), "invalid_json");
    assert.equal(await codeOf(post("[]", { authorization })), "validation_failed");
    assert.equal(await codeOf(post("{}", { authorization, "content-type": "text/plain" })), "unsupported_media_type");
    assert.equal(await codeOf(post("{}", { authorization, origin: "https://evil.example" })), "role_insufficient");
    const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
    const calling = (params: string) => `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`;
    const called = calling(`{"name":"createList","arguments":{"name":${nested(33)}}}`);
    assert.match(await (await post(called, { authorization })).text(), /nested over 32 levels/);
    assert.equal(await codeOf(post(calling(`{"_meta":${nested(50_000)}}`), { authorization })), "validation_failed");
    const get = await fetch(url());
    assert.deepEqual([get.status, get.headers.get("allow")], [405, "POST, OPTIONS"]);
  });

  it("counts and logs a call as over REST, with its status and the ID of its record", async () => {
    const { data } = await call(withKey, "createCampaign", { name: "Logged" });
    // In another order than in the path.
    const ids = { subscriberId: newId("subscriber"), listId: newId("list") };
    await call(withKey, "removeListSubscriber", ids);
    for (const [tool, request, resourceId] of [
      ["createCampaign", "POST /campaigns 201", data.id],
      ["removeListSubscriber", "DELETE /lists/{listId}/subscribers/{subscriberId} 404", ids.subscriberId],
    ]) {
      await eventually(() => ended.includes(request), { what: `${request} in ${ended}` });
      const line = logged.find((each) => each.tool === tool);
      assert.deepEqual([`${line?.method} ${line?.route} ${line?.status}`, line?.resourceId], [request, resourceId]);
    }
  });

  it("logs an error inside the SDK, and answers it as a failure of the service", async () => {
    const broken = mock.method(Server.prototype, "connect", () => Promise.reject(new Error("out of order")));
    await assert.rejects(call(withKey, "retrieveMe"), /internal_error/);
    broken.mock.restore();
    const line = logged.find(({ msg }) => msg === "internal_error");
    assert.deepEqual([line?.route, line?.teamId, line?.err.message], ["/mcp", sender.team.id, "out of order"]);
    await eventually(() => logged.some(({ code, requestId }) => code && requestId === line?.requestId));
  });

  it("refuses an unknown version in each message", async () => {
    const headers = { authorization: `Bearer ${token}`, "service-version": "2020-01-01" };
    const unknown = await post('{"jsonrpc":"2.0","id":1,"method":"ping"}', headers);
    assert.deepEqual([unknown.status, ((await unknown.json()) as Json).error.code], [400, "version_unsupported"]);
  });

  it("compresses no answer: it may hold a secret beside texts of others", async () => {
    const headers = { authorization: `Bearer ${token}`, "accept-encoding": "gzip" };
    const answer = await post('{"jsonrpc":"2.0","id":1,"method":"tools/list"}', headers);
    assert.equal(answer.headers.get("content-encoding"), null);
    assert.ok((await answer.text()).length > PLAIN_ANSWER_BYTES);
  });

  describe("with an operation that has the outcome it is asked for", () => {
    let own: TestApp;
    let client: Client;
    const held = Promise.withResolvers<void>();
    const released = Promise.withResolvers<void>();

    before(async () => {
      const meta = { method: "GET", path: "/outcomes/{outcome}", scope: null, summary: "Reads" } as const;
      const test = route(meta)
        .input(z.strictObject({ params: z.strictObject({ outcome: z.string() }) }))
        .output(z.null())
        .query(async ({ input: { params } }) => {
          if (isErrorCode(params.outcome)) throw new ApiError(params.outcome, undefined, { retryAfterSeconds: 6.2 });
          if (params.outcome === "failed") throw new Error("failed");
          held.resolve();
          await released.promise;
          return ok(null);
        });
      own = await serveRoutes(router({ test }), { with: { log: pino({ level: "silent" }) } });
      client = await connect(sender.keys.live, "auto", own.base);
    });
    after(async () => {
      released.resolve();
      await client.close();
      await own.close();
    });

    it("says after each refusal of a tool what to do, in words of a tool, and under which key to repeat the call", async () => {
      const nextSteps: Record<Retry, RegExp> = {
        as_is: /^Repeat the same call after 7 seconds, a write with the same idempotency_key\.$/,
        after_remedy: /^\S.+\. Then repeat the call after 7 seconds, a write with a new idempotency_key\.$/,
        never: /^(?!.*repeat the (same )?call)\S.+\.$/i,
      };
      for (const [code, { type, retry }] of Object.entries(ERRORS)) {
        if (type === "authentication_error" || BEFORE_A_TOOL.has(code)) continue;
        const { error, advice } = await call(client, "test", { outcome: code });
        assert.equal(error.code, code);
        assert.match(advice, nextSteps[retry], code);
        assert.doesNotMatch(advice, /Retry-After|RateLimit|header|\b(GET|PATCH)\b|\?\w+=/, code);
      }
      const { advice } = await call(client, "test", { outcome: "failed" });
      assert.match(advice, /^Repeat the same call after a few seconds,/);
    });

    it("refuses a call that takes longer than over REST", async () => {
      const timers = mock.method(globalThis, "setTimeout");
      const answer = call(client, "test", { outcome: "held" });
      await held.promise;
      const deadline = timers.mock.calls.findLast(({ arguments: [, ms] }) => ms === DEADLINE_MS.read);
      timers.mock.restore();
      deadline?.arguments[0]();
      assert.equal((await answer).error.code, "service_unavailable");
    });
  });

  it("opens no stream, and counts each message as a request", async () => {
    const headers = { authorization: `Bearer ${(await sender.mint()).key}` };
    const left = async () => {
      const answer = await post(message("tools/list"), headers);
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.get("service-version"), "2026-08-15");
      return Number(answer.headers.get("ratelimit-remaining"));
    };
    const before = await left();
    assert.equal(await left(), before - 1);
    const meta = {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientInfo": INFO,
      "io.modelcontextprotocol/clientCapabilities": {},
    };
    const listen = message("subscriptions/listen", { _meta: meta, notifications: { toolsListChanged: true } });
    const answer = await post(listen, {
      ...headers,
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": "subscriptions/listen",
    });
    assert.match(await answer.text(), /"error"/);
  });

  it("leads a client without a token to the issuer", async () => {
    const refused = await post("{}");
    assert.equal(refused.status, 401);
    const [, metadata = ""] = /resource_metadata="([^"]+)"/.exec(refused.headers.get("www-authenticate") ?? "") ?? [];
    // The public URL is that of the stack's API, which takes no tokens.
    const resourceMetadataUrl = new URL(new URL(metadata).pathname, app.origin);
    const found = await discoverOAuthProtectedResourceMetadata(url(), { resourceMetadataUrl });
    assert.deepEqual(found.authorization_servers, [issuer.settings.OAUTH_ISSUER]);
    assert.equal(found.resource, new URL(url().pathname, (await stack()).api).href);
  });

  for (const mode of ["legacy", "auto"] as const) {
    it(`serves a program on this machine through the client's package, negotiating ${mode}`, async () => {
      const env = { MAILKEEL_URL: app.base, MAILKEEL_API_KEY: sender.keys.live };
      const client = new Client(INFO, { versionNegotiation: { mode } });
      await client.connect(new StdioClientTransport({ command: process.execPath, args: [CLIENT_FILE, "mcp"], env }));
      const { data } = await call(client, "retrieveMe");
      assert.equal(data.team.id, sender.team.id);
      assert.equal(client.getProtocolEra(), mode === "auto" ? "modern" : "legacy");
      assert.ok((await client.listTools()).tools[0]?.outputSchema, "the version is in each message's header");
      const [guide] = (await client.listResources()).resources;
      assert.ok(guide && (await client.readResource({ uri: guide.uri })).contents.length === 1);
      await client.close();
    });
  }

  it("has the client's package answer each request, also where no server of MCP does", async () => {
    const ask = (id: number) => `{"jsonrpc":"2.0","id":${id},"method":"tools/list","params":{"text":"\u2028"}}`;
    const pages = [
      [500, ""],
      [502, "<html>"],
      [200, "null"],
      [429, '{"error":null}'],
    ] as const;
    const server = createServer((_req, res) => {
      const [status, body] = pages[count++ % pages.length] ?? [500, ""];
      res.writeHead(status, { "Retry-After": "7" }).end(body);
    });
    let count = 0;
    await once(server.listen(0, "127.0.0.1"), "listening");
    const elsewhere = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { live } = sender.keys;
    const lines = ["null", ask(1), ask(2), ask(3), ask(4), '{"jsonrpc":"2.0","method":"notifications/initialized"}'];
    const answers = await bridge(elsewhere, live, ...lines);
    assert.equal(answers["null"]?.code, -32_600);
    const facts = [1, 2, 3, 4].map((id) => answers[id]?.data);
    assert.deepEqual(facts.map(({ status }) => status).toSorted(), [200, 429, 500, 502]);
    assert.ok(facts.every(({ retry_after }) => retry_after === "7"));
    server.closeAllConnections();
    await once(server.close(), "close");

    const dead = await bridge(elsewhere, live, ask(1), "{");
    assert.equal(dead["null"]?.code, -32_700);
    assert.match(dead[1]?.message, /^No answer from http:\S+\/mcp: fetch failed: ECONNREFUSED\.$/);
    assert.match((await bridge(app.origin, live, ask(1)))[1]?.message, /Check MAILKEEL_URL.+HTTP 404/);
    const refused = (await bridge(app.base, "mk_live_wrong", ask(1)))[1];
    assert.match(refused?.message, /API key.+HTTP 401, api_key_malformed, req_/);
    assert.equal(refused?.data.code, "api_key_malformed");
  });

  it("comes with the guides in one text", async () => {
    const answer = await fetch(`${app.origin}/llms.txt`);
    assert.match(answer.headers.get("content-type") ?? "", /^text\/plain/);
    const text = await answer.text();
    assert.match(text, /^# Mailkeel\n/);
    for (const title of ["Getting started", "Sending safely", "Assistants"])
      assert.ok(text.includes(`\n# ${title}`), title);
  });
});
