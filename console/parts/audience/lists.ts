import type { Client, DataOf } from "../../api.ts";
import { useData, useWorkspace } from "../../session.tsx";

export type ListRecord = DataOf<Client["api"]["lists"]["retrieve"]["query"]>;

export const SUBSCRIPTION_STATUSES = {
  CONFIRMED: ["subscribed", "good"],
  PENDING: ["waits for the confirmation", "warn"],
  UNSUBSCRIBED: ["unsubscribed", "muted"],
} as const;

export async function readLists(client: Client): Promise<{ data: ListRecord[] }> {
  const lists: ListRecord[] = [];
  for (let cursor: string | undefined; ; ) {
    const { data, meta } = await client.api.lists.page.query({ query: { limit: "100", cursor } });
    lists.push(...data);
    cursor = (meta["next_cursor"] as string | null) ?? undefined;
    if (cursor === undefined) return { data: lists.sort((a, b) => a.name.localeCompare(b.name)) };
  }
}

/** All lists of the team, by their names. */
export function useLists(): ListRecord[] {
  const { client } = useWorkspace();
  return useData(["lists", "all"], () => readLists(client));
}
