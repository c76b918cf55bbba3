import { z } from "zod";
import { ENVIRONMENTS } from "../../db/entities/shared.ts";
import { ROLES } from "../../db/entities/team.ts";
import { SCOPES } from "../../domain/access/scopes.ts";

/** The key a request came with, as the API shows it. */
export const apiKey = z.object({
  object: z.literal("api_key"),
  id: z.string(),
  key_id: z.string(),
  environment: z.enum(ENVIRONMENTS),
  team: z.object({ id: z.string() }),
  role: z.enum(ROLES),
  role_at_issue: z.enum(ROLES),
  api_version: z.string(),
  scopes: z.array(z.enum(SCOPES)),
  granted_scopes: z.array(z.enum(SCOPES)),
});

/** The OAuth token a request came with: the same fields. No role was recorded when it was issued. */
export const oauthToken = apiKey.extend({ object: z.literal("oauth_token"), role_at_issue: z.null() });

export const identity = z.discriminatedUnion("object", [apiKey, oauthToken]);
