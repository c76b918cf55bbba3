import assert from "node:assert/strict";
import { type Client, type WorkflowHandle, type WorkflowUpdateHandle, WorkflowUpdateStage } from "@temporalio/client";
import { sendWorkflowId } from "../../temporal/ids.ts";
import { detailsOf, temporalClient, untilDetails } from "./temporal.ts";

/** The workflows of sends, as operators see and command them in the Temporal UI. */
export interface SendWorkflows {
  readonly client: Client;
  workflowOf(sendId: string): WorkflowHandle;
  /** Carries out a command, a resume with its number if it is given. @returns its answer */
  command(sendId: string, update: string, input?: number | string): Promise<unknown>;
  /** Resolves once the workflow has accepted the command. */
  begin(sendId: string, update: string): Promise<WorkflowUpdateHandle<unknown>>;
  detailsOf(sendId: string): Promise<string>;
  untilDetails(sendId: string, texts: string | readonly string[], withinMs?: number): Promise<unknown>;
  needsOperator(sendId: string): Promise<boolean>;
  /** The send's status among the search attributes. */
  statusShown(sendId: string): Promise<unknown>;
}

export function sendWorkflowsOf(clientOf: () => Client): SendWorkflows {
  const workflowOf = (sendId: string) => clientOf().workflow.getHandle(sendWorkflowId(sendId));
  const attribute = async (sendId: string, name: string) =>
    (await workflowOf(sendId).describe()).searchAttributes[name]?.[0];
  return {
    get client() {
      return clientOf();
    },
    workflowOf,
    command: (sendId, update, input) =>
      input === undefined
        ? workflowOf(sendId).executeUpdate(update)
        : workflowOf(sendId).executeUpdate<unknown, [number | string]>(update, { args: [input] }),
    begin: (sendId, update) => workflowOf(sendId).startUpdate(update, { waitForStage: WorkflowUpdateStage.ACCEPTED }),
    detailsOf: (sendId) => detailsOf(workflowOf(sendId)),
    untilDetails: (sendId, texts, withinMs) => untilDetails(workflowOf(sendId), texts, withinMs),
    needsOperator: async (sendId) => (await attribute(sendId, "NeedsOperator")) === true,
    statusShown: (sendId) => attribute(sendId, "SendStatus"),
  };
}

/** The workflows of the stack's sends, while the tests of the calling suite run. */
export function useSendWorkflows(): SendWorkflows {
  let connected: Awaited<ReturnType<typeof temporalClient>> | undefined;
  before(async () => {
    connected = await temporalClient();
  });
  after(() => connected?.close());
  return sendWorkflowsOf(() => connected?.client ?? assert.fail("Temporal is connected when a test begins"));
}
