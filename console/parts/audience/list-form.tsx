import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { Client } from "../../api.ts";
import { useWorkspace } from "../../session.tsx";
import { Dialog } from "../dialog.tsx";
import { Field, Form } from "../form.tsx";
import type { DataOf } from "./people.tsx";

export type ListRecord = DataOf<Client["api"]["lists"]["retrieve"]["query"]>;

export const OPTINS = { DOUBLE: "by a mail (double)", SINGLE: "at once (single)" } as const;
export const SUBSCRIPTION_STATUSES = {
  CONFIRMED: "subscribed",
  PENDING: "waits for the confirmation",
  UNSUBSCRIBED: "unsubscribed",
} as const;

/** All lists of the team, for their names. */
export function useLists() {
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
  });
}

/** Makes a list, or changes one. */
export function ListDialog({ list, onClose }: { list?: ListRecord; onClose: () => void }) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  return (
    <Dialog title={list ? `Edit ${list.name}` : "New list"} onClose={onClose}>
      <Form
        fields={["name", "description", "optin"]}
        submit={list ? "Save" : "Make the list"}
        onSubmit={async ({ name = "", description, ...values }) => {
          const body = { name, description: description || null, optin: values["optin"] as "SINGLE" };
          if (list) await client.api.lists.update.mutate({ params: { listId: list.id }, body });
          else await client.api.lists.create.mutate({ body });
          await queries.invalidateQueries({ queryKey: [base, "lists"] });
          onClose();
        }}
      >
        {(problemOf) => (
          <>
            <Field
              label="Name"
              name="name"
              required
              maxLength={200}
              defaultValue={list?.name}
              problem={problemOf("name")}
            />
            <Field
              label="Note for the team"
              name="description"
              defaultValue={list?.description ?? ""}
              problem={problemOf("description")}
            />
            <Field
              label="Opt-in"
              name="optin"
              hint={`Double: a person gets mails once they have confirmed by a link.${list ? " A change holds for those who subscribe later." : ""}`}
              problem={problemOf("optin")}
              control={(id, describedBy) => (
                <select id={id} name="optin" aria-describedby={describedBy} defaultValue={list?.optin}>
                  <option value="DOUBLE">Double</option>
                  <option value="SINGLE">Single</option>
                </select>
              )}
            />
          </>
        )}
      </Form>
    </Dialog>
  );
}
