import type { z } from "zod";
import type { Access } from "../../domain/access/authenticate.ts";
import type { apiKey } from "./schema.ts";

export const presentKey = ({ key, team, role, scopes, grantedScopes }: Access): z.input<typeof apiKey> => ({
  object: "api_key",
  id: key.id,
  key_id: key.keyId,
  environment: key.environment,
  team: { id: team.id },
  role,
  role_at_issue: key.roleAtIssue,
  api_version: key.apiVersion,
  scopes,
  granted_scopes: grantedScopes,
});
