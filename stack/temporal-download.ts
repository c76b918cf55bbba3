/**
 * Lets the Temporal SDK download its CLI into the folder that is the only argument. A process of its own, because Core's
 * download can neither be cancelled nor given a deadline.
 */
import { TestWorkflowEnvironment } from "@temporalio/testing";
import { TEMPORAL_CLI_VERSION } from "./temporal-cli.ts";

const executable = {
  type: "cached-download",
  version: `v${TEMPORAL_CLI_VERSION}`,
  ...(process.argv[2] && { downloadDir: process.argv[2] }),
} as const;
const environment = await TestWorkflowEnvironment.createLocal({ server: { executable } });
await environment.teardown();
