import type { DataOf } from "../../api.ts";
import { useData, useWorkspace } from "../../session.tsx";
import { readLists } from "../audience/lists.ts";
import type { Kind, useCalls } from "../send/calls.ts";

type Drafts = ReturnType<typeof useCalls>["calls"]["drafts"];
export type Draft = DataOf<Drafts["retrieve"]["query"]>;

/** The states in the words of the pages. */
export const STATES: Readonly<Record<Draft["status"], string>> = {
  DRAFT: "Draft",
  SCHEDULED: "Scheduled",
  SENDING: "Going out",
  PAUSED: "Paused",
  SENT: "Sent",
  CANCELLED: "Cancelled",
  FAILED: "Failed",
  ACTIVE: "Running",
  STOPPED: "Stopped",
};

/** The lists that a newsletter may go to, or the segments of a campaign. */
export function useTargets(kind: Kind): readonly { id: string; name: string }[] {
  const { client } = useWorkspace();
  const [key, read] =
    kind === "newsletter"
      ? [["lists", "all"], () => readLists(client)]
      : [["segments"], () => client.app.audience.segments.query({})];
  return useData<readonly { id: string; name: string }[]>(key, read);
}

/** The facts of a draft that the API does not show, and the merge tags that it may use. */
export function useSettings(kind: Kind, id: string) {
  const { client } = useWorkspace();
  return useData([`${kind}s`, id, "settings"], () => client.app.content.settings.query({ query: { type: kind, id } }));
}
