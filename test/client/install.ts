import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { runStepWell } from "../support/steps.ts";

const ROOT = join(import.meta.dirname, "../..");

/** Packs the client, which builds it, and installs it into a new project. @returns the paths in the package */
export async function installClient(project: string): Promise<string[]> {
  await writeFile(join(project, "package.json"), JSON.stringify({ type: "module" }));
  const pack = ["pack", join(ROOT, "client"), "--json", "--pack-destination", project];
  const packed = await runStepWell("npm pack of the client", "npm", pack, ROOT);
  const [{ filename, files }] = JSON.parse(packed.slice(packed.indexOf("[")));
  const install = ["install", "--offline", "--ignore-scripts", `./${filename}`];
  await runStepWell("npm install of the packed client", "npm", install, project);
  return files.map(({ path }: { path: string }) => path);
}
