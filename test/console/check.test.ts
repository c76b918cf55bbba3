import assert from "node:assert/strict";
import { consoleRouter } from "../../api/console/router.ts";
import { inputSchemas } from "../../api/console/schemas.ts";
import { endpointsOf } from "../../api/rest/endpoints.ts";
import { parserOf } from "../../api/rest/input.ts";
import { problemsIn } from "../../console/check.ts";
import { ApiError } from "../../domain/errors.ts";
import { bodyOf, ENDPOINTS } from "../every-endpoint/endpoints.ts";

const SCHEMAS = JSON.parse(JSON.stringify(inputSchemas()));
const TOO_MUCH = { body: { name: " ", description: "x".repeat(1_001) } };
const WRONG = {
  "api.lists.create": TOO_MUCH,
  "api.webhooks.create": { body: { url: "x", events: [] } },
  "app.team.mintKey": { body: {} },
};

describe("The check of a form in the browser", () => {
  it("says of each field what the service would say", () => {
    for (const [name, input] of Object.entries(WRONG)) {
      const endpoint = endpointsOf(consoleRouter).find((one) => one.name === name) ?? assert.fail(name);
      const problems = Object.fromEntries(problemsIn(SCHEMAS[name], input));
      assert.ok(Object.keys(problems).length > 1, name);
      assert.throws(
        () => parserOf(endpoint.meta)(input),
        (refusal) => {
          assert.ok(refusal instanceof ApiError);
          assert.deepEqual(problems, refusal.problems);
          return true;
        },
      );
    }
  });

  it("refuses no body that the service takes", () => {
    const writes = ENDPOINTS.filter(({ type }) => type === "mutation");
    assert.ok(writes.length > 20);
    for (const endpoint of writes) {
      const { body } = SCHEMAS[`api.${endpoint.name}`].properties;
      if (body) assert.deepEqual([...problemsIn(body, bodyOf(endpoint), ["body"])], [], endpoint.name);
    }
  });
});
