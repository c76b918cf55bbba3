import type { Client, DataOf } from "../../api.ts";
import { useData } from "../../session.tsx";

export type ListRecord = DataOf<Client["api"]["lists"]["retrieve"]["query"]>;

export const SUBSCRIPTION_STATUSES = {
  CONFIRMED: ["subscribed", "good"],
  PENDING: ["awaiting confirmation", "warn"],
  UNSUBSCRIBED: ["unsubscribed", "muted"],
} as const;

/** All lists of the team, by their names. */
export const useLists = () => useData(["lists", "all"], ({ app }) => app.audience.allLists.query({}));
