import assert from "node:assert/strict";
import { z } from "zod";
import type { RouteDefinition } from "../../api/rest/definition.ts";
import { endpointsOf } from "../../api/rest/endpoints.ts";
import { completeInput, parserOf, type RawInput } from "../../api/rest/input.ts";
import { appRouter } from "../../api/router.ts";
import { ApiError } from "../../domain/errors.ts";
import { type ApiAnswer, api, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";

const BAD_VALUES: readonly unknown[] = [
  ...[undefined, null, 0, -1.5, 1e12, true],
  ...["", " ", "a line\nbreak", "x".repeat(3_000), "not-one-of-them", "1.5", "-1"],
  ...[[], [null], [""], [{}], ["not-one-of-them"], Array.from({ length: 2_000 }, (_, i) => `item ${i}`)],
  ...[{}, { "": "" }, { name: 1 }, { name: null }],
  Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`x${i}`, "value"])),
];

/** Requests with one bad value each, in every field of a route and around it. */
function* badRequests(input: z.ZodObject): Generator<RawInput> {
  const empty: RawInput = { params: {}, query: {}, body: undefined };
  yield empty;
  for (const value of BAD_VALUES) yield { ...empty, body: value };
  for (const [part, given] of Object.entries(input.shape)) {
    const schema = given instanceof z.ZodOptional || given instanceof z.ZodDefault ? given.unwrap() : given;
    assert.ok(schema instanceof z.ZodObject);
    for (const field of [...Object.keys(schema.shape), "unknown"]) {
      for (const value of BAD_VALUES) yield { ...empty, [part]: { [field]: value } };
    }
  }
}

/** The messages that zod has for a request when no schema and no map brings another. */
function defaultMessages(schema: z.ZodType, raw: RawInput): string[] {
  const marked = schema.safeParse(raw, { error: () => "default" }).error?.issues ?? [];
  const issues = schema.safeParse(raw).error?.issues ?? [];
  return issues.flatMap(({ message }, i) => (marked[i]?.message === "default" ? [message] : []));
}

function messageOf(meta: RouteDefinition, raw: RawInput): string | undefined {
  try {
    parserOf(meta)(raw);
    return undefined;
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    return error.message;
  }
}

describe("Messages about a request that is not valid", () => {
  for (const { meta } of endpointsOf(appRouter)) {
    it(`hold none of the validator's words: ${meta.method} ${meta.path}`, () => {
      const schema = completeInput(meta.input);
      let refused = 0;
      for (const raw of badRequests(meta.input)) {
        const message = messageOf(meta, raw);
        if (message === undefined) continue;
        refused++;
        for (const words of defaultMessages(schema, raw)) assert.ok(!message.includes(words), message);
        // A quoted value of the API's own is none of them.
        const unquoted = message.replaceAll(/"[A-Z]+"/g, "");
        assert.doesNotMatch(unquoted, /invalid|too (small|big)|expected|received|unrecognized|undefined|\[object/i);
        // The map's wording for an issue that it does not know.
        assert.doesNotMatch(message, /is not valid|of another type|in another format|something else/);
        assert.match(message, /^[\w.[\]"@ -]+ (must|is|are|has|have|holds|stands|may) .*\.$/s);
      }
      assert.ok(refused > 0);
    });
  }

  describe("quote a client's text", () => {
    let team: TestTeam;
    before(async () => {
      team = await makeTeam();
    });
    const HOSTILE = "\u0007\u001b[31m\u202e\u2028\ufeff\u00a0\u{e0041}";
    const long = "x".repeat(100_000);

    const post = (body: Json) => api(team.keys.live).post("/lists", body);
    const get = (query: string) => api(team.keys.live).get(`/lists?${query}`);
    const refused: Record<string, () => Promise<ApiAnswer>> = {
      "an unknown field": () => post({ name: "a", [HOSTILE + long]: 1 }),
      "a choice": () => post({ name: "a", optin: HOSTILE + long }),
      "an unknown parameter": () => get(`${encodeURIComponent(HOSTILE)}${"x".repeat(9_000)}=1`),
      "a parameter's value": () => get(`order=${encodeURIComponent(HOSTILE)}${"x".repeat(9_000)}`),
      "a parameter that is given twice": () => get(`${HOSTILE}=1&${HOSTILE}=2`),
      "a half character": () => post({ name: "a", [`${"x".repeat(63)}😀`]: 1 }),
      "a name in a record": () => api(team.keys.live).post("/webhooks", { headers: { [HOSTILE + long]: "a" } }),
      "an address": () => api(team.keys.live).post("/suppressions", { emails: [`${HOSTILE}@x`] }),
      "many names": () =>
        post(Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`${i}${long.slice(0, 4_000)}`, i]))),
    };
    for (const [what, ask] of Object.entries(refused)) {
      it(`briefly and printably: ${what}`, async () => {
        const answer = await ask();
        assert.equal(answer.status, 400, answer.text.slice(0, 500));
        assert.ok(answer.text.length < 10_000, `${answer.text.length} characters`);
        const { message, param } = answer.body.error;
        assert.ok((param ?? "").length <= 65);
        for (const text of [message, param ?? ""]) {
          assert.doesNotMatch(text, /[\p{C}\p{Zl}\p{Zp}\u00a0]/u);
          assert.ok(text.isWellFormed());
        }
      });
    }
  });

  it("that quotes an address is not kept under the Idempotency-Key", async () => {
    const { keys, em, team } = await makeTeam();
    const ask = (email: string) => api(keys.live).post("/suppressions", { emails: [email] }, { idempotencyKey: "k" });
    assert.equal((await ask("nobody")).body.error.param, "emails[0]");
    const kept = "select from idempotency_records where payload is not null and team_id = ?";
    assert.deepEqual(await em.execute(kept, [team.id]), []);
    assert.equal((await ask("a@example.com")).status, 200);
  });

  describe("name the field, the bad value or its size, and the remedy", () => {
    let team: TestTeam;
    before(async () => {
      team = await makeTeam();
    });
    const post = (path: string, body: Json) => api(team.keys.live).post(path, body);
    const get = (path: string) => api(team.keys.live).get(path);
    const EXAMPLES: [how: () => ReturnType<typeof post>, message: string][] = [
      [
        () => post("/subscribers", { email: "a@example.com", first_name: "x".repeat(240) }),
        "first_name must be at most 200 characters long; it has 240.",
      ],
      [
        () => post("/lists", { name: "\u{1f600}".repeat(201) }),
        "name must be at most 200 characters long; it has 201.",
      ],
      [() => post("/lists", { name: "" }), "name must not be empty."],
      [() => post("/lists", { name: 5 }), "name must be a string; it is the number 5."],
      [() => post("/lists", {}), "name is required."],
      [
        () => post("/lists", { name: "a", optin: "TRIPLE" }),
        'optin must be one of "SINGLE", "DOUBLE"; it is "TRIPLE".',
      ],
      [() => post("/lists", { name: "a", extra: 1 }), "extra is not a field of this request; leave it out."],
      [() => post("/lists", []), "The body must be a JSON object."],
      [
        () => post("/subscribers", { email: "nobody" }),
        'email must be an email address, such as name@example.com; it is "nobody".',
      ],
      [
        () => post("/suppressions", { emails: ["a@example.com", "b@example.com", "nobody", "c@", "d@example.com"] }),
        'emails[2] must be an email address, such as name@example.com; it is "nobody". emails[3] must be an email address, such as name@example.com; it is "c@".',
      ],
      [
        () => post("/suppressions", { emails: ["a@example.com", `${"b".repeat(400)}@example.com`] }),
        `emails[1] must be at most 320 characters long; it is "${"b".repeat(64)}…".`,
      ],
      [() => post("/suppressions", { emails: [] }), "emails must have at least 1 item; it has 0."],
      [() => get("/lists?limit=ten"), 'limit must be a whole number from 1 to 100; it is "ten".'],
      [() => get("/lists?page=2"), "page is not a parameter of this endpoint; leave it out."],
      [() => get("/lists?expand=subscribers"), "expand is not supported by this list; leave it out."],
      [() => get("/lists?active=true"), "active is a filter of other lists and not of this one; leave it out."],
      [
        () => get("/lists?updated_since=yesterday"),
        'updated_since must be an ISO 8601 date and time with a time zone, such as 2026-08-15T10:00:00Z; it is "yesterday".',
      ],
      [
        () => post("/lists", { name: "", description: 1 }),
        "name must not be empty. description must be a string; it is the number 1.",
      ],
    ];
    for (const [how, message] of EXAMPLES) {
      it(message, async () => {
        const answer = await how();
        assert.equal(answer.status, 400, answer.text);
        assert.equal(answer.body.error.message, message);
      });
    }
  });
});
