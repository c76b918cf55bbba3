import assert from "node:assert/strict";
import { paramsOf } from "../../api/rest/endpoints.ts";
import type { ApiAnswer } from "../support/api.ts";
import { snapshotTables } from "../support/tables.ts";
import {
  absentValues,
  callRoute,
  ENDPOINTS,
  type Estate,
  endpointNamed,
  keyFor,
  makeEstate,
  nameOf,
  tablesAtRest,
} from "./endpoints.ts";

/** Headers whose values differ from request to request. */
const VARYING = /^(date|x-request-id|x?-?ratelimit-(remaining|reset))$/;

function bytes({ status, text, headers }: ApiAnswer): string {
  const shown = [...headers].map(([name, value]) => (VARYING.test(name) ? name : `${name}: ${value}`));
  return `${status} ${shown.sort().join()} ${text.replaceAll(/req_\w+/g, "req")}`;
}

const WITH_IDS = ENDPOINTS.filter(({ meta }) => paramsOf(meta.path).length > 0);

describe("Isolation: another team's record and one that does not exist answer alike, to the byte", () => {
  let own: Estate;
  let foreign: Estate;
  let untouched: Record<string, string>;
  before(async () => {
    own = await makeEstate();
    foreign = await makeEstate();
    untouched = await tablesAtRest(foreign);
  });

  for (const endpoint of WITH_IDS) {
    for (const param of paramsOf(endpoint.meta.path)) {
      it(`${nameOf(endpoint)}: ${param}`, async () => {
        const key = keyFor(own, endpoint);
        const place = (value: string | undefined) => ({ ...own.values, ...(value && { [param]: value }) });
        const theirs = await callRoute(endpoint, key, place(foreign.values[param]));
        const absent = await callRoute(endpoint, key, place(absentValues()[param]));
        assert.equal(theirs.status, 404, theirs.text);
        assert.equal(theirs.body.error.code, "not_found");
        assert.equal(bytes(theirs), bytes(absent));
      });
    }
  }

  it("POST /lists/{listId}/subscribers: subscriber_ids", async () => {
    const add = endpointNamed("POST /lists/{listId}/subscribers");
    const theirs = await callRoute(add, own.keys.live, own.values, { subscriberId: foreign.newcomerId });
    const absent = await callRoute(add, own.keys.live, own.values);
    assert.equal(theirs.status, 404);
    assert.equal(bytes(theirs), bytes(absent));
  });

  it("no row of the other team has changed by any of these requests", async () => {
    assert.deepEqual(await snapshotTables(own.em, foreign.team.id), untouched);
  });

  for (const endpoint of ENDPOINTS.filter(({ meta }) => meta.method === "GET")) {
    it(`${nameOf(endpoint)} shows nothing of another team`, async () => {
      const { text } = await callRoute(endpoint, own.keys.live, own.values);
      for (const value of [foreign.team.id, foreign.newcomerId, ...Object.values(foreign.values)]) {
        assert.ok(!text.includes(value), `${value} in ${text}`);
      }
    });
  }

  it("isolates the team's two environments like two teams", async () => {
    for (const endpoint of WITH_IDS) {
      // A test key is refused each send and every scope it lacks before anything is looked up.
      if (["newsletters:send", "campaigns:send", "suppressions:delete"].includes(endpoint.meta.scope ?? "")) continue;
      const live = await callRoute(endpoint, own.keys.test, own.values);
      const absent = await callRoute(endpoint, own.keys.test, absentValues());
      assert.equal(live.status, 404, `${nameOf(endpoint)} ${live.text}`);
      assert.equal(bytes(live), bytes(absent));
    }
  });
});
