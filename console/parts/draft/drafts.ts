import { useQuery } from "@tanstack/react-query";
import type { Client } from "../../api.ts";
import { useWorkspace } from "../../session.tsx";

export type Kind = "newsletter" | "campaign";

export const draftsOf = (client: Client, kind: Kind) =>
  kind === "newsletter" ? client.api.newsletters.drafts : client.api.campaigns.drafts;

export const paramsOf = (kind: Kind, id: string): Record<string, string> => ({ [`${kind}Id`]: id });

export type Draft = Awaited<ReturnType<ReturnType<typeof draftsOf>["retrieve"]["query"]>>["data"];

export type Listed = Awaited<ReturnType<ReturnType<typeof draftsOf>["page"]["query"]>>["data"][number];

/** What the fields of the editor hold; "" for none. */
export interface Content {
  name: string;
  subject: string;
  from_email: string;
  from_name: string;
  body: string;
}

export const contentOf = (draft: Draft): Content => ({
  name: draft.name,
  subject: draft.subject ?? "",
  from_email: ("from_email" in draft && draft.from_email) || "",
  from_name: draft.from_name ?? "",
  body: draft.body ?? "",
});

/** The fields that differ, as the API takes them. */
export const changesOf = (saved: Content, now: Content): Record<string, string | null> =>
  Object.fromEntries(
    (Object.keys(now) as (keyof Content)[])
      .filter((name) => now[name] !== saved[name])
      .map((name) => [name, now[name] === "" && name !== "name" ? null : now[name]]),
  );

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

/** Every row of a list that a team has few of. */
async function readAll<Row>(
  read: (query: { limit: string; cursor?: string }) => Promise<{ data: readonly Row[]; meta: Record<string, unknown> }>,
): Promise<Row[]> {
  const rows: Row[] = [];
  for (let cursor: unknown = undefined; ; ) {
    const { data, meta } = await read({ limit: "100", ...(typeof cursor === "string" && { cursor }) });
    rows.push(...data);
    cursor = meta["next_cursor"];
    if (typeof cursor !== "string") return rows;
  }
}

/** The lists that a newsletter may go to, or the segments of a campaign. */
export function useTargets(kind: Kind) {
  const { client, base } = useWorkspace();
  return useQuery({
    queryKey: [base, kind === "newsletter" ? "lists" : "segments", "names"],
    queryFn: async (): Promise<{ id: string; name: string }[]> => {
      if (kind === "campaign") return (await client.app.content.segments.query({})).data;
      return readAll((query) => client.api.lists.page.query({ query }));
    },
  });
}

export function useAccounts() {
  const { client, base } = useWorkspace();
  const queryFn = () => readAll((query) => client.api.accounts.page.query({ query }));
  return useQuery({ queryKey: [base, "accounts", "all"], queryFn });
}

/** The facts of a draft that the API does not show, and the merge tags that it may use. */
export function useSettings(kind: Kind, id: string) {
  const { client, base } = useWorkspace();
  return useQuery({
    queryKey: [base, `${kind}s`, id, "settings"],
    queryFn: async () => (await client.app.content.settings.query({ query: { type: kind, id } })).data,
  });
}
