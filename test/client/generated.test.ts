import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { BASE_PATH } from "../../api/base-path.ts";
import { openApiDocument } from "../../api/openapi/document.ts";
import { appRouter } from "../../api/router.ts";
import { apiErrorOf } from "../../client/errors.ts";
import type { OpenApiDocument } from "../../client/generate.ts";
import { Mailkeel } from "../../client/index.ts";
import { ERRORS } from "../../domain/errors.ts";
import { clientOfDocument, GENERATED } from "./write-client.ts";

describe("client/generated.ts", () => {
  it("is what the OpenAPI document gives: else run `npm run client`", () => {
    assert.equal(readFileSync(GENERATED, "utf8"), clientOfDocument());
  });

  it("has a method for every operation", () => {
    const { paths } = openApiDocument(appRouter, "http://localhost", BASE_PATH) as unknown as OpenApiDocument;
    const operations = Object.values(paths).flatMap((item) => Object.values(item));
    const mailkeel = new Mailkeel({ apiKey: "mk_test_x", baseUrl: "http://localhost/api/v2" });
    const methods = Object.values(mailkeel).flatMap((resource: object) =>
      Object.getOwnPropertyNames(Object.getPrototypeOf(resource)).filter(
        (name) => !/^(constructor$|changes)/.test(name),
      ),
    );
    assert.equal(methods.length, operations.length);
    assert.ok(
      methods.every((name) => /^[a-z][A-Za-z]*$/.test(name)),
      methods.join(", "),
    );
  });

  it("has a class for every type of error", () => {
    for (const type of new Set(Object.values(ERRORS).map((error) => error.type))) {
      const refusal = {
        status: 400,
        code: "x",
        message: "x",
        param: undefined,
        docUrl: undefined,
        requestId: undefined,
      };
      const error = apiErrorOf({ ...refusal, type, retryAfter: undefined, idempotencyKey: undefined });
      assert.notEqual(error.name, "ApiError", type);
    }
  });
});
