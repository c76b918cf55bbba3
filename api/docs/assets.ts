import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

const { resolve } = createRequire(import.meta.url);
const own = (name: string): string => `${import.meta.dirname}/assets/${name}`;

/** The files that the pages load: our own, and those of the renderer of the reference, as its package holds them. */
const FILES = {
  "site.css": own("site.css"),
  "reference.css": own("reference.css"),
  "reference.js": own("reference.js"),
  "icon.svg": own("icon.svg"),
  "form.png": own("form.png"),
  "console-forms.png": own("console-forms.png"),
  "console-draft.png": own("console-draft.png"),
  "console-newsletter.png": own("console-newsletter.png"),
  "console-overview.png": own("console-overview.png"),
  "swagger-ui.css": resolve("swagger-ui-dist/swagger-ui.css"),
  "swagger-ui-bundle.js": resolve("swagger-ui-dist/swagger-ui-bundle.js"),
} as const;

const TYPES: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  png: "image/png",
  svg: "image/svg+xml",
};

export type AssetName = keyof typeof FILES;

/** A file at a path that names its content: it may be cached for ever. */
export interface Asset {
  path: string;
  type: string;
  read(): Promise<Buffer>;
}

function openAsset(name: string, file: string): Asset {
  const digest = createHash("sha256").update(readFileSync(file)).digest("base64url").slice(0, 12);
  const type = TYPES[name.slice(name.lastIndexOf(".") + 1)] ?? "application/octet-stream";
  return { path: `/docs/assets/${digest}/${name}`, type, read: () => readFile(file) };
}

/** Every asset by its name, opened when the module is loaded: a file that is missing fails the start. */
export const ASSETS = Object.fromEntries(
  Object.entries(FILES).map(([name, file]) => [name, openAsset(name, file)]),
) as Record<AssetName, Asset>;
