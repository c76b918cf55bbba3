import type { Client, DataOf } from "../../api.ts";
import { useData, useWorkspace } from "../../session.tsx";

export type ListRecord = DataOf<Client["api"]["lists"]["retrieve"]["query"]>;

export const SUBSCRIPTION_STATUSES = {
  CONFIRMED: ["subscribed", "good"],
  PENDING: ["awaiting confirmation", "warn"],
  UNSUBSCRIBED: ["unsubscribed", "muted"],
} as const;

/** All lists of the team, by their names. */
export function useLists() {
  const { client } = useWorkspace();
  return useData(["lists", "all"], () => client.app.audience.allLists.query({}));
}
