import { sleep } from "@temporalio/workflow";
import { type Change, isTaken } from "../../workflows/changes.ts";

/** Workflows of three versions, each under the same name in its own bundle: see `changes.test.ts`. */
export const CHANGE: Change = "list-forgotten-pauses";

export async function asItWas(): Promise<string> {
  await sleep("1 millisecond");
  return "as it was";
}

async function changed(taken?: readonly Change[]): Promise<string> {
  const before = isTaken(CHANGE, taken);
  await sleep("1 millisecond");
  if (isTaken(CHANGE, taken)) await sleep("2 milliseconds");
  return `${before}, ${isTaken(CHANGE, taken)}`;
}

export const knows = () => changed();
export const takes = () => changed([CHANGE]);
