import { Client, Connection } from "@temporalio/client";
import { stack } from "./stack.ts";

/** A client of the stack's Temporal. */
export async function temporalClient(): Promise<{ client: Client; close: () => Promise<void> }> {
  const { temporal } = await stack();
  const connection = await Connection.connect({ address: temporal.address });
  const client = new Client({ connection, namespace: temporal.namespace });
  return { client, close: () => connection.close() };
}
