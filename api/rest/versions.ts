import type { HeaderValues } from "../../domain/access/authenticate.ts";
import { type ApiVersion, VERSIONS } from "../../domain/api-version.ts";
import { ApiError } from "../../domain/errors.ts";
import { shortened } from "./messages.ts";

/*
 * The dated versions of the API. Handlers and schemas speak the newest one. A version that changes a shape brings its
 * transformations into this file: of an input from the version before, and of an answer to it.
 */

/** The header that names a version, on a request and on each answer to a caller. */
export const VERSION_HEADER = "Service-Version";

const isVersion = (text: string): text is ApiVersion => (VERSIONS as readonly string[]).includes(text);

/**
 * The version that applies to a request: the one that its header names, else the one that its key is pinned to.
 * @throws {ApiError} `version_unsupported` for a version that does not exist, and for two that differ
 */
export function readVersion(headers: HeaderValues, pinned: string): ApiVersion {
  const given = [...new Set(headers[VERSION_HEADER.toLowerCase()] ?? [])];
  const versionRefusal = (problem: string) =>
    new ApiError("version_unsupported", `${problem} The versions are ${VERSIONS.join(", ")}.`, {
      param: VERSION_HEADER,
    });
  if (given.length > 1) throw versionRefusal("The request names two versions; name one.");
  const [named] = given;
  if (named !== undefined && !isVersion(named)) {
    throw versionRefusal(`There is no version ${JSON.stringify(shortened(named))}.`);
  }
  if (named !== undefined) return named;
  if (!isVersion(pinned)) throw new Error("a key is pinned to a version that does not exist");
  return pinned;
}
