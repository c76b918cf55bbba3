import assert from "node:assert/strict";
import { answersList, isPaged, queryNames } from "../../api/rest/definition.ts";
import { paramsOf } from "../../api/rest/endpoints.ts";
import { parserOf } from "../../api/rest/input.ts";
import { unique } from "../support/factories.ts";
import { bodyOf, ENDPOINTS, nameOf } from "./endpoints.ts";

const isSend = (path: string) => /\/send(-preview)?$/.test(path);
/** Commands to a send that was confirmed. */
const isCommand = (path: string) => /\/(pause|resume|cancel)$/.test(path);
/** The scope by which a client reads the people or figures that an answer shows, of routes whose own scope is another. */
const SHOWN: Record<string, string> = {
  "/lists/{listId}/subscribers": "subscribers:read",
  "/lists/{listId}/subscribers/{subscriberId}": "subscribers:read",
  "/newsletters/{newsletterId}/recipients": "subscribers:read",
  "/campaigns/{campaignId}/recipients": "contacts:read",
  "/newsletters/{newsletterId}/links": "analytics:read",
  "/campaigns/{campaignId}/links": "analytics:read",
};
/** Routes whose scopes belong to another resource than the first segment of their path. */
const OTHER_RESOURCE: Record<string, string> = { unsubscribes: "suppressions", forms: "lists" };

const fieldsOf = (schema: unknown): string[] => Object.keys((schema as { shape?: object } | undefined)?.shape ?? {});

function refusalOf(parse: () => unknown): { code?: string; param?: string } {
  try {
    parse();
    return {};
  } catch (error) {
    return error as { code?: string; param?: string };
  }
}

describe("Every endpoint declares", () => {
  for (const endpoint of ENDPOINTS) {
    const { meta } = endpoint;
    const { method, path } = meta;
    const [, first = ""] = path.split("/");
    const resource = OTHER_RESOURCE[first] ?? first;
    const isRead = method === "GET";

    describe(nameOf(endpoint), () => {
      it("the scope of its resource and of what it does", () => {
        const right = isRead ? "read" : isSend(path) || isCommand(path) ? "send" : "write";
        const expected =
          path === "/me"
            ? null
            : path === "/suppressions/{suppressionId}"
              ? "suppressions:delete"
              : `${resource}:${right}`.replace("analytics/overview", "analytics");
        assert.equal(meta.scope, expected);
        assert.equal(meta.alsoScope, isRead || method === "PATCH" ? SHOWN[path] : undefined);
      });

      it("a dry run on a write, with the scope to read, unless its preview shows its effect", () => {
        const hasDryRun = !isRead && !path.endsWith("/send");
        assert.equal(meta.dryRun, hasDryRun);
        assert.equal(meta.dryRunScope, hasDryRun ? `${resource}:read` : null);
      });

      it("whether an Idempotency-Key acts, which a write that cannot be repeated needs", () => {
        const needsKey = isSend(path) || path === "/contacts/bulk" || path.endsWith("/replay");
        const expected = isRead || method === "DELETE" ? "none" : needsKey ? "required" : "optional";
        assert.equal(meta.idempotency, expected);
      });

      it("that its answer holds a secret, if it does", () => {
        assert.equal(meta.secret ?? false, fieldsOf(meta.output).includes("secret"));
      });

      it("its parameters and its fields, and refuses one that is not valid by its name", () => {
        const parse = parserOf(meta);
        const valid = {
          params: Object.fromEntries(paramsOf(path).map((name) => [name, name === "email" ? "a@example.com" : "id"])),
          query: {},
          body: bodyOf(endpoint),
        };
        const refused = (changes: Partial<typeof valid>) => {
          const { code, param } = refusalOf(() => parse({ ...valid, ...changes }));
          return [code, param?.replace(/\[.*/, "")];
        };
        parse(valid);
        assert.deepEqual(refused({ query: { nonsense: "1" } }), ["unsupported_parameter", "nonsense"]);
        assert.deepEqual(refused({ body: { ...valid.body, nonsense: 1 } }), ["validation_failed", "nonsense"]);
        for (const name of Object.keys(valid.params).filter((each) => each !== "email")) {
          const params = { ...valid.params, [name]: "x".repeat(65) };
          assert.deepEqual(refused({ params }), ["validation_failed", name]);
        }
        for (const field of fieldsOf(meta.input.shape.body)) {
          // An item of the wrong type fails alone.
          const wrong = field === meta.itemsIn ? "no list" : [[[]]];
          assert.deepEqual(refused({ body: { ...valid.body, [field]: wrong } }), ["validation_failed", field]);
        }
        if (isPaged(meta)) {
          for (const name of ["cursor", "limit", "order"]) assert.ok(queryNames(meta).includes(name), name);
          assert.deepEqual(refused({ query: { limit: "101" } }), ["validation_failed", "limit"]);
        }
      });
    });
  }
});

describe("A parameter that an endpoint does not have", () => {
  const reads = ENDPOINTS.filter(({ meta }) => meta.method === "GET");
  /** Parameters of a list besides paging and sorting. */
  const PAGING = ["limit", "cursor", "order", "sort", "updated_since"];
  const parametersOf = (endpoints: typeof reads) =>
    new Set(endpoints.flatMap(({ meta }) => queryNames(meta)).filter((name) => !PAGING.includes(name)));
  const filters = parametersOf(reads.filter(({ meta }) => answersList(meta)));

  it("is refused by its own code on a list, and as unsupported elsewhere", () => {
    for (const { meta } of reads) {
      const taken = queryNames(meta);
      const parse = parserOf(meta);
      const params = Object.fromEntries(paramsOf(meta.path).map((name) => [name, "a@example.com"]));
      const refusal = (query: Record<string, string>) => () => parse({ params, query, body: undefined });
      for (const name of [...parametersOf(reads), "expand", "sort", "updated_since", "page", unique("name")]) {
        if (taken.includes(name)) continue;
        const ownCode = name === "expand" ? "expand_unsupported" : filters.has(name) ? "filter_unsupported" : undefined;
        const expected = (answersList(meta) && ownCode) || "unsupported_parameter";
        assert.throws(refusal({ [name]: "x" }), { code: expected, param: name }, `${meta.path} ${name}`);
      }
      if (taken.includes("sort")) assert.throws(refusal({ sort: "id" }), { code: "sort_unsupported" }, meta.path);
    }
    for (const name of ["active", "email", "event", "provider", "reason", "source", "status"])
      assert.ok(filters.has(name), name);
  });
});
