import { InvalidArgumentError } from "commander";
import { MAX_TOKEN_ID_LENGTH, revokeToken } from "../../domain/access/oauth.ts";
import { argument, type Commands, command, OF_TEAM, option } from "../command.ts";
import { futureInstant } from "../options.ts";
import { teamOf } from "../session.ts";

/** The id of a token. A whole token would stay in the shell's history. */
function tokenId(text: string): string {
  if (text.split(".").length === 3 && text.startsWith("ey")) {
    throw new InvalidArgumentError("It is the token's jti claim, not the token.");
  }
  if (text === "" || text.length > MAX_TOKEN_ID_LENGTH) {
    throw new InvalidArgumentError(`It has 1 to ${MAX_TOKEN_ID_LENGTH} characters.`);
  }
  return text;
}

/** OAuth tokens. The issuer knows them; their revocations are known here. */
export const commands: Commands = {
  "token:revoke": command(
    "refuse an OAuth token from now on",
    {
      jti: argument("the token's jti claim; GET /me shows it as id", tokenId),
      ...OF_TEAM,
      expires: option(
        "<instant>",
        "when the token expires, ISO 8601; unless given, it is refused for good",
        futureInstant,
      ),
    },
    async (session, { jti, expires = null, ...options }) => {
      await teamOf(session, options);
      await revokeToken(session.orm.em.fork(), { tokenId: jti, expiresAt: expires });
      const expires_at = expires?.toISOString() ?? null;
      return { text: `OAuth token ${jti} is revoked`, data: { token: { id: jti, revoked: true, expires_at } } };
    },
  ),
};
