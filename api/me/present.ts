import type { z } from "zod";
import type { Access } from "../../domain/access/access.ts";
import { ApiError } from "../../domain/errors.ts";
import type { identity } from "./schema.ts";

export function presentIdentity({ caller, team, role, scopes, grantedScopes }: Access): z.input<typeof identity> {
  const facts = {
    key_id: caller.keyId,
    environment: caller.environment,
    team: { id: team.id },
    role,
    api_version: caller.apiVersion,
    scopes,
    granted_scopes: grantedScopes,
  };
  if (caller.kind === "session")
    throw new ApiError("not_found", "The console's session procedure says who is signed in.");
  return caller.kind === "api_key"
    ? { object: caller.kind, id: caller.id, role_at_issue: caller.roleAtIssue, ...facts }
    : { object: caller.kind, id: caller.tokenId, role_at_issue: null, ...facts };
}
