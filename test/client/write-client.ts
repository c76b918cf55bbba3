/** `npm run client`. It stands in `test/` because it joins `api/` and `client/`, which may not import each other. */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { openApiDocument } from "../../api/openapi/document.ts";
import { appRouter } from "../../api/router.ts";
import { generateClient, type OpenApiDocument } from "../../client/generate.ts";

const ROOT = join(import.meta.dirname, "../..");

export const GENERATED = join(ROOT, "client/generated.ts");

/** Programs of the packages that the project has installed. */
export const installed = (name: string): string => join(ROOT, "node_modules/.bin", name);

export function clientOfDocument(): string {
  // The client holds no address: that of the document's server is its user's.
  const document = openApiDocument(appRouter, "http://localhost") as unknown as OpenApiDocument;
  const input = generateClient(document);
  return execFileSync(installed("biome"), ["format", `--stdin-file-path=${GENERATED}`], {
    input,
    cwd: ROOT,
    encoding: "utf8",
  });
}

if (import.meta.main) writeFileSync(GENERATED, clientOfDocument());
