/**
 * Downloads an archive of the Temporal CLI and unpacks its binary. Arguments: folder, URL, SHA-256 digest in hex. A process
 * of its own: Node takes a proxy from the environment at its start only, and the download can be stopped at any time.
 */
import { execFile } from "node:child_process";
import { rm } from "node:fs/promises";
import { promisify } from "node:util";
import { downloadPinned } from "./download.ts";

const [folder = "", url = "", sha256 = ""] = process.argv.slice(2);
const archive = `${folder}/temporal.tar.gz`;
try {
  await downloadPinned({ url, sha256 }, archive);
  await promisify(execFile)("tar", ["-xzf", archive, "-C", folder, "temporal"]);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  await rm(archive, { force: true });
}
