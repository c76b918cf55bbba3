import { useQuery } from "@tanstack/react-query";
import type { Client } from "../../api.ts";
import { useWorkspace } from "../../session.tsx";
import { Act, useDone } from "../act.tsx";
import type { DataOf } from "./people.tsx";

export type ListRecord = DataOf<Client["api"]["lists"]["retrieve"]["query"]>;

export const OPTINS = { DOUBLE: "by a mail (double)", SINGLE: "at once (single)" } as const;
export const SUBSCRIPTION_STATUSES = {
  CONFIRMED: "subscribed",
  PENDING: "waits for the confirmation",
  UNSUBSCRIBED: "unsubscribed",
} as const;

/** All lists of the team, for their names. */
export function useLists(isNeeded = true) {
  const { client, base } = useWorkspace();
  return useQuery({
    queryKey: [base, "lists", "all"],
    queryFn: async () => {
      const lists: ListRecord[] = [];
      for (let cursor: string | undefined; ; ) {
        const { data, meta } = await client.api.lists.page.query({ query: { limit: "100", cursor } });
        lists.push(...data);
        cursor = (meta["next_cursor"] as string | null) ?? undefined;
        if (cursor === undefined) return lists.sort((a, b) => a.name.localeCompare(b.name));
      }
    },
    enabled: isNeeded,
  });
}

const DOUBLE = "Double: a person gets mails once they have confirmed by a link.";

/** A button that makes a list, or changes one. */
export function ListButton({ list }: { list?: ListRecord }) {
  const { lists } = useWorkspace().client.api;
  const done = useDone("lists");
  const hint = list ? `${DOUBLE} A change holds for those who subscribe later.` : DOUBLE;
  return (
    <Act
      {...(list
        ? { title: `Edit ${list.name}`, short: "Edit", submit: "Save", values: list }
        : { title: "New list", submit: "Make the list", kind: "primary" })}
      inputs={[
        ["name", "Name", { required: true, maxLength: 200 }],
        ["description", "Note for the team"],
        ["optin", "Opt-in", { choices: { DOUBLE: "Double", SINGLE: "Single" }, hint }],
      ]}
      act={({ name = "", description, optin }) => {
        const body = { name, description: description || null, optin: optin as "SINGLE" };
        return done(list ? lists.update.mutate({ params: { listId: list.id }, body }) : lists.create.mutate({ body }));
      }}
    />
  );
}
