import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { ListDialog, OPTINS, SUBSCRIPTION_STATUSES } from "../parts/audience/list-form.tsx";
import { nameOf, PersonLink } from "../parts/audience/people.tsx";
import { SubscriptionActions } from "../parts/audience/subscription.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Export } from "../parts/export.tsx";
import { ChoiceFilter, FilterBar, useFilters, When } from "../parts/filters.tsx";
import { Field, Form } from "../parts/form.tsx";
import { Loading, PageHead, Problem } from "../parts/page.tsx";
import { List } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

type Status = keyof typeof SUBSCRIPTION_STATUSES;

const WITHHELD = {
  suppressed: "mail to the address is stopped",
  list_limit: "asked today already",
  address_limit: "asked too often of late",
  team_limit: "the team has asked as many people as it may today",
} as const;

/** One list with its subscribers. */
export function Page() {
  const { listId = "" } = useParams({ strict: false }) as { listId?: string };
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const [{ status: given }] = useFilters();
  const [open, setOpen] = useState<"edit" | "add">();
  const list = useQuery({
    queryKey: [base, "lists", listId],
    queryFn: async () => (await client.api.lists.retrieve.query({ params: { listId } })).data,
  });
  if (list.isPending) return <Loading />;
  if (list.error) return <Problem error={list.error} />;
  const { name, description, optin } = list.data;
  const status = given !== undefined && given in SUBSCRIPTION_STATUSES ? (given as Status) : undefined;
  return (
    <>
      <PageHead title={name}>
        <Export of="list" listId={listId} />
        {mayWrite && (
          <>
            <button type="button" onClick={() => setOpen("edit")}>
              Edit
            </button>
            <Link className="button" to={`${base}/imports`} search={{ list: listId }}>
              Import
            </Link>
            <button type="button" className="primary" onClick={() => setOpen("add")}>
              Add a person
            </button>
          </>
        )}
      </PageHead>
      <p className="muted">
        People join {OPTINS[optin]}.{description && ` ${description}`}
      </p>
      <FilterBar>
        <ChoiceFilter name="status" label="Status" any="all" choices={SUBSCRIPTION_STATUSES} />
      </FilterBar>
      <List
        caption={`Subscribers of ${name}`}
        queryKey={[base, "lists", listId, "subscribers", status]}
        read={(cursor) =>
          client.api.lists.pageSubscribers.query({ params: { listId }, query: { cursor, status, sort: "created_at" } })
        }
        keyOf={({ id }) => id}
        columns={[
          { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
          { name: "Name", cell: nameOf },
          {
            name: "Status",
            cell: ({ status, confirmation_withheld: withheld }) =>
              `${SUBSCRIPTION_STATUSES[status]}${withheld ? `; not asked: ${WITHHELD[withheld]}` : ""}`,
          },
          { name: "Added", cell: ({ created_at }) => <When at={created_at} /> },
          {
            name: "Actions",
            cell: ({ id, email, status }) => (
              <SubscriptionActions listId={listId} subscriberId={id} status={status} name={email} />
            ),
          },
        ]}
        empty={
          status ? (
            <p>No subscriber has this status.</p>
          ) : (
            <p>Nobody is on this list yet. Add a person, or import many from a file.</p>
          )
        }
      />
      {open === "edit" && <ListDialog list={list.data} onClose={() => setOpen(undefined)} />}
      {open === "add" && <AddDialog list={list.data} onClose={() => setOpen(undefined)} />}
    </>
  );
}

interface AddDialogProps {
  list: { id: string; name: string; optin: "SINGLE" | "DOUBLE" };
  onClose: () => void;
}

/** Adds a person by their address, who becomes a subscriber if they are none. */
function AddDialog({ list: { id: listId, name, optin }, onClose }: AddDialogProps) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  const [done, setDone] = useState<string>();
  const add = async ({ email = "", first_name, last_name }: Record<string, string>) => {
    const { data: found } = await client.api.subscribers.page.query({ query: { email } });
    const body = { email, first_name: first_name || null, last_name: last_name || null };
    const { id } = found[0] ?? (await client.api.subscribers.create.mutate({ body })).data;
    const { data } = await client.api.lists.addMembers.mutate({ params: { listId }, body: { subscriber_ids: [id] } });
    await queries.invalidateQueries({ queryKey: [base] });
    if (data.added.length > 0) onClose();
    else if (data.already_subscribed.length > 0) setDone(`${email} is on this list already.`);
    else {
      const asked = optin === "DOUBLE" ? " A mail asks whether they want to come back." : "";
      setDone(`${email} unsubscribed from this list and stays off it until they confirm.${asked}`);
    }
  };
  return (
    <Dialog title={`Add a person to ${name}`} onClose={onClose}>
      <p>
        {optin === "DOUBLE"
          ? "A mail asks them to confirm; they get newsletters once they have."
          : "They get the newsletters of this list from now on. Add people who agreed to it."}
      </p>
      <Form fields={["email", "first_name", "last_name"]} submit="Add" onSubmit={add}>
        {(problemOf) => (
          <>
            <Field
              label="Address"
              name="email"
              type="email"
              required
              maxLength={320}
              problem={problemOf("email")}
              hint="The names below are kept for a new subscriber."
            />
            <Field label="First name" name="first_name" problem={problemOf("first_name")} />
            <Field label="Last name" name="last_name" problem={problemOf("last_name")} />
          </>
        )}
      </Form>
      {done && (
        <p className="notice" role="status">
          {done}
        </p>
      )}
    </Dialog>
  );
}
