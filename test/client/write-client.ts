/**
 * `npm run client`: writes the part of the client that follows from the OpenAPI document. It stands in `test/` because it joins
 * `api/` and `client/`, which may not import each other.
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { BASE_PATH } from "../../api/base-path.ts";
import { openApiDocument } from "../../api/openapi/document.ts";
import { appRouter } from "../../api/router.ts";
import { generateClient, type OpenApiDocument } from "../../client/generate.ts";

const ROOT = join(import.meta.dirname, "../..");

/** The committed file. */
export const GENERATED = join(ROOT, "client/generated.ts");

/** Programs of the packages that the project has installed. */
export const installed = (name: string): string => join(ROOT, "node_modules/.bin", name);

/** The text of `generated.ts` as the document of this tree gives it. */
export function clientOfDocument(): string {
  // The client holds no address: that of the document's server is its user's.
  const document = openApiDocument(appRouter, "http://localhost", BASE_PATH) as unknown as OpenApiDocument;
  const input = generateClient(document);
  return execFileSync(installed("biome"), ["format", `--stdin-file-path=${GENERATED}`], {
    input,
    cwd: ROOT,
    encoding: "utf8",
  });
}

if (import.meta.main) writeFileSync(GENERATED, clientOfDocument());
