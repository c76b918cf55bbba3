import { z } from "zod";
import { ENVIRONMENTS } from "../../db/entities/shared.ts";
import { ROLES } from "../../db/entities/team.ts";
import { presentKeyId } from "../../domain/access/keys.ts";
import { SCOPES } from "../../domain/access/scopes.ts";
import { CURRENT_API_VERSION } from "../../domain/api-version.ts";
import { idOf, text } from "../fields.ts";

/** The key or the OAuth token a request came with, as the API shows it. */
export const identity = z
  .object({
    object: z.enum(["api_key", "oauth_token"]),
    id: idOf("apiKey"),
    key_id: text("The part of the key that may be shown.", presentKeyId("LIVE", "5f0c1c4a4d3f")),
    environment: z.enum(ENVIRONMENTS).describe("Test keys have records of their own and never send."),
    team: z.object({ id: idOf("team", "The id of the team.") }),
    role: z.enum(ROLES).meta({ description: "The role of the key's creator at this moment.", examples: ["ADMIN"] }),
    role_at_issue: z
      .enum(ROLES)
      .nullable()
      .meta({
        description: "Their role when the key was created; null for a token, of which none was recorded.",
        examples: ["ADMIN"],
      }),
    api_version: text("The dated version that the key is pinned to.", CURRENT_API_VERSION),
    scopes: z
      .array(z.enum(SCOPES))
      .meta({ description: "The scopes that the key has at this moment.", examples: [["lists:read", "lists:write"]] }),
    granted_scopes: z
      .array(z.enum(SCOPES))
      .meta({ description: "The scopes that the key was created with.", examples: [["lists:read", "lists:write"]] }),
  })
  .meta({ id: "Identity", description: "The API key or the OAuth token of a request." });
