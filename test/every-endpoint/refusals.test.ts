import assert from "node:assert/strict";
import type { Endpoint } from "../../api/rest/endpoints.ts";
import { roleHolds, type Scope } from "../../domain/access/scopes.ts";
import { api } from "../support/api.ts";
import { makeMember, makeTeam, scopesBesideSending, type TestTeam } from "../support/factories.ts";
import { absentValues, bodyOf, ENDPOINTS, nameOf, pathOf } from "./endpoints.ts";

describe("Every endpoint refuses", () => {
  let team: TestTeam;
  before(async () => {
    team = await makeTeam();
  });

  async function assertRefused(endpoint: Endpoint, key: string | undefined, code: string, says = ""): Promise<void> {
    const path = pathOf(endpoint, absentValues());
    const { body, text } = await api(key).call(endpoint.meta.method, path, bodyOf(endpoint));
    assert.equal(body.error?.code, code, `${nameOf(endpoint)}: ${text}`);
    assert.ok(body.error.message.includes(says), `${nameOf(endpoint)}: ${text}`);
  }

  it("a request without a credential", async () => {
    for (const endpoint of ENDPOINTS) await assertRefused(endpoint, undefined, "api_key_missing");
  });

  it("a key without one of its scopes, and names the scope", async () => {
    const { key: withNone } = await team.mint({ scopes: [] });
    for (const endpoint of ENDPOINTS) {
      const { scope, alsoScope } = endpoint.meta;
      if (scope === null) continue;
      await assertRefused(endpoint, withNone, "insufficient_scope", scope);
      if (alsoScope === undefined) continue;
      await assertRefused(endpoint, (await team.mint({ scopes: [scope] })).key, "insufficient_scope", alsoScope);
    }
  });

  it("a key whose creator's role no longer holds its scope, and names the scope", async () => {
    const member = await makeMember(team.em, team.team.id, "OWNER");
    const mint = async (scopes: Scope[]) => (await team.mint({ memberId: member.id, scopes })).key;
    const [sending, deleting] = [await mint(scopesBesideSending("OWNER")), await mint(["suppressions:delete"])];
    await team.em.execute("update members set role = 'VIEWER' where id = ?", [member.id]);
    for (const endpoint of ENDPOINTS) {
      const { scope } = endpoint.meta;
      if (scope === null || roleHolds("VIEWER", scope)) continue;
      const key = scope === "suppressions:delete" ? deleting : sending;
      await assertRefused(endpoint, key, "role_insufficient", scope);
    }
  });
});
