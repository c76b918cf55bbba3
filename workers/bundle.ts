import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { bundleWorkflowCode, type WorkflowBundleOption } from "@temporalio/worker";

const root = `${import.meta.dirname}/..`;
const CACHE = `${root}/built`;

/** A hash of the workflows and of the SDK they are bundled with: it changes when the bundle does. */
function fingerprint(): string {
  const hash = createHash("sha256").update(readFileSync(`${root}/node_modules/@temporalio/workflow/package.json`));
  const hashFile = (path: string) => hash.update(path).update(readFileSync(`${root}/${path}`));
  for (const folder of ["temporal", "workflows"]) {
    for (const name of readdirSync(`${root}/${folder}`).sort()) hashFile(`${folder}/${name}`);
  }
  hashFile("domain/sends/pause-reasons.ts");
  return hash.digest("hex").slice(0, 16);
}

/** Bundles the workflows, once per version: it takes seconds. `node workers/bundle.ts` does it for an image. @returns its file */
async function makeBundle(): Promise<string> {
  const codePath = `${CACHE}/workflows-${fingerprint()}.js`;
  if (!existsSync(codePath)) {
    const { code } = await bundleWorkflowCode({
      workflowsPath: `${root}/workflows/index.ts`,
      workflowInterceptorModules: [`${root}/workflows/trace-header.ts`],
      logger: { log() {}, trace() {}, debug() {}, info() {}, warn: console.warn, error: console.error },
    });
    await mkdir(CACHE, { recursive: true });
    // Several workers may do this at once: each writes its own, and the last rename wins with the same content.
    const own = `${codePath}.${process.pid}`;
    await writeFile(own, code);
    await rename(own, codePath);
  }
  return codePath;
}

/** The workflows as one bundle. @param heartbeatTimeoutMs how long activities may go without a heartbeat */
export async function workflowBundle(heartbeatTimeoutMs: number): Promise<WorkflowBundleOption> {
  const code = await readFile(await makeBundle(), "utf8");
  // Workflows read no environment: the setting is a global of their context.
  return { code: `globalThis.HEARTBEAT_TIMEOUT_MS = ${heartbeatTimeoutMs};${code}` };
}

if (import.meta.main) await makeBundle();
