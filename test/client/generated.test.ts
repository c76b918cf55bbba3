import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { apiErrorOf } from "../../client/errors.ts";
import { ERRORS } from "../../domain/errors.ts";
import { clientOfDocument, GENERATED } from "./write-client.ts";

describe("client/generated.ts", () => {
  it("is what the OpenAPI document gives: else run `npm run client`", () => {
    assert.equal(readFileSync(GENERATED, "utf8"), clientOfDocument());
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
