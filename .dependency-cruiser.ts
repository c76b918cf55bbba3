import type { IConfiguration } from "dependency-cruiser";

/**
 * Which folder may import which: the table "Layers" of docs/architecture.md, enforced by `npm run check`. Imports of
 * types count like any other. "(types)" after a name allows imports of types alone.
 */

/** Files or folders of ours that each layer may import besides its own. */
export const LAYERS: Readonly<Record<string, readonly string[]>> = {
  client: [],
  config: [],
  db: ["lib/fair-queue.ts"],
  lib: ["config (types)"],
  domain: ["db", "lib", "config (types)"],
  temporal: ["domain (types)"],
  activities: ["config", "db", "domain", "lib", "temporal"],
  workflows: ["activities (types)", "domain (types)", "domain/sends/pause-reasons.ts", "temporal"],
  workers: ["activities", "config", "db", "domain", "lib", "temporal", "workflows (types)"],
  api: ["activities/smtp/verify.ts", "config", "db", "domain", "lib", "temporal", "workflows (types)"],
  console: [
    "api (types)",
    "api/rest/messages.ts",
    "lib/mail-link.ts",
    "lib/mail-style.ts",
    "lib/merge-tags.ts",
    "lib/subject.ts",
  ],
  stack: ["config", "console/build.ts", "db", "domain", "lib", "temporal"],
  app: [
    "activities/smtp/verify.ts",
    "api/openapi/event-examples.ts",
    "api/temporal-gateway.ts",
    "client",
    "config",
    "db",
    "domain",
    "lib",
    "stack",
    "temporal",
  ],
  test: [
    "activities",
    "api",
    "app",
    "client",
    "config",
    "console/build.ts",
    "console/check.ts",
    "console/parts/audit-words.ts",
    "console/parts/chart-time.ts",
    "console/parts/draft/blocks/text.ts",
    "console/parts/draft/content.ts",
    "console/parts/save-from.ts",
    "db",
    "domain",
    "lib",
    "stack",
    "temporal",
    "workers",
    "workflows",
  ],
  bench: [
    "activities",
    "app",
    "config",
    "db",
    "domain",
    "lib",
    "stack",
    "temporal",
    "test/support",
    "workers",
    "workflows",
  ],
};

const pattern = (name: string): string => `^${name.replaceAll(".", "\\.")}${name.endsWith(".ts") ? "$" : "/"}`;
const OURS = `^(${Object.keys(LAYERS).join("|")})/`;
const PRODUCT = "^(client|config|db|lib|domain|temporal|activities|workflows|workers|api|stack|app)/";

const layerRules = Object.entries(LAYERS).flatMap(([layer, allowed]) => {
  const types = allowed.filter((name) => name.endsWith(" (types)")).map((name) => name.replace(" (types)", ""));
  const values = allowed.filter((name) => !name.endsWith(" (types)"));
  return [
    {
      name: `${layer}-imports`,
      comment: `${layer}/ may import ${allowed.join(", ") || "nothing of ours"}; see "Layers" in docs/architecture.md`,
      severity: "error" as const,
      from: { path: pattern(layer) },
      to: { path: OURS, pathNot: [layer, ...values, ...types].map(pattern) },
    },
    ...types.map((name) => ({
      name: `${layer}-imports-types-of-${name}`,
      comment: `${layer}/ may import types of ${name}/, nothing else; see "Layers" in docs/architecture.md`,
      severity: "error" as const,
      from: { path: pattern(layer) },
      to: { path: pattern(name), pathNot: values.map(pattern), dependencyTypesNot: ["type-only"] },
    })),
  ];
});

export default {
  forbidden: [
    ...layerRules,
    {
      name: "every-file-has-a-layer",
      comment: "a folder that the layers do not name",
      severity: "error",
      from: { pathNot: [OURS, "^\\.dependency-cruiser\\.ts$"] },
      to: {},
    },
    {
      name: "no-cycles",
      severity: "error",
      from: {},
      to: { circular: true },
    },
    {
      name: "workflows-do-no-io",
      comment: "a workflow replays: it imports no module of Node and no package but Temporal's",
      severity: "error",
      from: { path: "^(temporal|workflows)/" },
      to: {
        dependencyTypes: ["core", "npm", "npm-dev", "npm-no-pkg"],
        pathNot: "^node_modules/@temporalio/(common|workflow)/",
      },
    },
    {
      name: "test-support-is-shared",
      comment: "what tests and measurements share imports neither",
      severity: "error",
      from: { path: "^test/support/" },
      to: { path: "^(test|bench)/", pathNot: "^test/support/" },
    },
    {
      name: "product-without-development-packages",
      comment: "an image has no devDependencies",
      severity: "error",
      from: { path: PRODUCT },
      to: { dependencyTypes: ["npm-dev"], dependencyTypesNot: ["type-only"] },
    },
    {
      name: "packages-are-declared",
      comment: "a package that package.json does not name may go with the one that brought it",
      severity: "error",
      from: {},
      to: { dependencyTypes: ["npm-no-pkg", "npm-unknown"] },
    },
    { name: "imports-resolve", severity: "error", from: {}, to: { couldNotResolve: true } },
  ],
  options: {
    // TypeScript 7 has no API that others could parse with.
    parser: "swc",
    doNotFollow: { path: "node_modules" },
    exclude: { path: "^(\\.data|coverage|built|release|client/dist|test/real/job)/" },
    enhancedResolveOptions: { exportsFields: ["exports"], conditionNames: ["import", "node", "default", "types"] },
  },
} satisfies IConfiguration;
