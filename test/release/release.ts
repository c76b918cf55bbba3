/**
 * `npm run release -- 1.0.0` makes a version: its section of the changelog, the commit, the tag, and its files below `release/`.
 * It stands in `test/` because it imports `api/`.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { openApiDocument } from "../../api/openapi/document.ts";
import { appRouter } from "../../api/router.ts";
import { keepFiles } from "../support/kept.ts";

const ROOT = join(import.meta.dirname, "../..");
const UNRELEASED = "## Unreleased\n";
/** A process builds the console where no release has brought it; and its bundle of workflows, which names the folder of its build. */
const CONSOLE = "built/console";

/**
 * Gives the changes that wait in a changelog their version.
 * @param day as ISO 8601
 * @throws {Error} when none waits
 */
export function releaseChanges(changelog: string, version: string, day: string): string {
  const start = changelog.indexOf(UNRELEASED);
  const [changes = ""] = start < 0 ? [] : changelog.slice(start + UNRELEASED.length).split(/^## /m);
  if (changes.trim() === "") throw new Error("CHANGELOG.md has nothing under `## Unreleased`: say there what changes.");
  return changelog.replace(UNRELEASED, `${UNRELEASED}\n## ${version} – ${day}\n`);
}

/** The SBOM as CycloneDX, without what differs between two of one commit. */
export function sameSbom(json: string): string {
  const { serialNumber: _, metadata, ...sbom } = JSON.parse(json);
  const { timestamp: __, ...same } = metadata;
  return `${JSON.stringify({ ...sbom, metadata: same }, null, 2)}\n`;
}

interface Locked {
  version: string;
  license?: string;
  dev?: boolean;
}

/** The licences of the packages that run, a line each. @param lock package-lock.json */
export function licences(lock: string): string {
  const { "": _, ...packages }: Record<string, Locked> = JSON.parse(lock).packages;
  const lines = Object.entries(packages).flatMap(([path, { version, license, dev }]) =>
    dev
      ? []
      : [
          `${path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length)} ${version}: ${license ?? "see the package"}\n`,
        ],
  );
  return [...new Set(lines)].sort().join("");
}

const run = (program: string, args: readonly string[], cwd = ROOT): Buffer =>
  execFileSync(program, args, { cwd, stdio: ["ignore", "pipe", "inherit"], maxBuffer: 2 ** 29 });
const git = (...args: string[]): string => run("git", args).toString().trim();

/**
 * Makes the files of the commit that is checked out, with the packages that are installed: the same bytes each time.
 * @param folder where they go; it is emptied
 */
export function makeFiles(version: string, folder: string): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const put = (name: string, content: Buffer | string) => writeFileSync(join(folder, name), content);
  const above = mkdtempSync(join(tmpdir(), "mailkeel-release-"));
  const tree = join(above, `mailkeel-${version}`);
  try {
    mkdirSync(tree);
    execFileSync("tar", ["-x", "-C", tree], { input: run("git", ["archive", "HEAD"]) });
    const seconds = git("show", "--no-patch", "--format=%ct", "HEAD");
    const archive = (path: string) => {
      const same = [
        "--sort=name",
        `--mtime=@${seconds}`,
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mode=u=rwX,go=rX",
      ];
      return gzipSync(run("tar", ["-c", ...same, `mailkeel-${version}/${path}`], above));
    };
    put(`mailkeel-kubernetes-${version}.tar.gz`, archive("deploy/kubernetes"));
    put(`licences-${version}.txt`, licences(readFileSync(join(tree, "package-lock.json"), "utf8")));
    const sbom = ["sbom", "--sbom-format", "cyclonedx", "--omit", "dev", "--package-lock-only"];
    put(`sbom-${version}.cdx.json`, sameSbom(run("npm", sbom, tree).toString()));
    put(
      `openapi-${version}.json`,
      `${JSON.stringify(openApiDocument(appRouter, "https://mail.example.com"), null, 2)}\n`,
    );
    run("npm", ["pack", "--silent", "--pack-destination", folder], join(ROOT, "client"));
    run(process.execPath, ["console/build.ts"]);
    cpSync(join(ROOT, CONSOLE), join(tree, CONSOLE), { recursive: true });
    put(`mailkeel-${version}.tar.gz`, archive(""));
  } finally {
    rmSync(above, { recursive: true, force: true });
  }
  const digestOf = (name: string) =>
    createHash("sha256")
      .update(readFileSync(join(folder, name)))
      .digest("hex");
  put(
    "SHA256SUMS",
    readdirSync(folder)
      .map((name) => `${digestOf(name)}  ${name}\n`)
      .join(""),
  );
}

/** Writes a version wherever the project names its own. */
function writeVersion(version: string): void {
  const replace = (name: string, change: (text: string) => string) =>
    writeFileSync(join(ROOT, name), change(readFileSync(join(ROOT, name), "utf8")));
  replace("CHANGELOG.md", (text) => releaseChanges(text, version, new Date().toISOString().slice(0, 10)));
  replace("deploy/kubernetes/settings/kustomization.yaml", (text) =>
    text.replace(/newTag: [\d.]+/, `newTag: ${version}`),
  );
  replace("docs/operations/deploy.md", (text) => text.replaceAll(/mailkeel:\d+\.\d+\.\d+/g, `mailkeel:${version}`));
  run("npm", ["version", version, "--no-git-tag-version", "--allow-same-version"]);
}

if (import.meta.main) {
  const [version = ""] = process.argv.slice(2);
  if (!/^\d+\.\d+\.\d+$/.test(version)) throw new Error("Name the version: npm run release -- 1.0.0");
  if (git("status", "--porcelain") !== "") throw new Error("Commit your changes first: a version is made of a commit.");
  const tag = `v${version}`;
  const isTagged = git("tag", "--points-at", "HEAD").split("\n").includes(tag);
  if (!isTagged) {
    writeVersion(version);
    keepFiles(version);
    git("add", "--all");
    git("commit", "--message", `Release ${version}`, "--message", `CHANGELOG.md says what is new in ${version}.`);
  }
  const folder = join(ROOT, "release");
  makeFiles(version, folder);
  if (!isTagged) git("tag", "--annotate", tag, "--message", `Mailkeel ${version}`);
  console.log(`${isTagged ? "" : `Made the tag ${tag}. `}Its files are in ${folder}. The image:
  docker build --tag mailkeel:${version} .`);
}
