import { Link, useNavigate, useParams } from "@tanstack/react-router";
import type { Client, DataOf } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { AddressList, useSearch } from "../parts/audience/address-list.tsx";
import {
  type ListRecord,
  nameOf,
  PERSON_INPUTS,
  PersonLink,
  SUBSCRIPTION_STATUSES,
} from "../parts/audience/people.tsx";
import { RESTORABLE, useUndo } from "../parts/bin.tsx";
import { Export } from "../parts/export.tsx";
import { ChoiceFilter, choiceOf, SearchFilter, useFilters } from "../parts/filters.tsx";
import type { Values } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { Copy, choicesOf, Facts, PageHead, Part, State, When } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import { type Column, List } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

type Listed = DataOf<Client["app"]["audience"]["lists"]["query"]>["lists"][number];

const membersText = ({ members, has_more_members }: Listed) =>
  `${members.toLocaleString()}${has_more_members ? " or more" : ""}`;
const SIGNED = new Intl.NumberFormat(undefined, { signDisplay: "exceptZero" });

const OPTINS = { DOUBLE: "Double", SINGLE: "Single" } as const;

/** The lists of a team. */
export function Lists() {
  const { client, base } = useWorkspace();
  const undo = useUndo();
  const mayWrite = useRole("EDITOR");
  const [{ q }] = useFilters();
  return (
    <>
      <PageHead title="Lists">{mayWrite && <ListButton />}</PageHead>
      <div className="filters">
        <SearchFilter name="q" label="Name contains" />
      </div>
      <List
        caption="Lists"
        queryKey={[base, "lists", "page", q]}
        read={async (cursor) => {
          const { data } = await client.app.audience.lists.query({ query: { q, cursor } });
          return { data: data.lists, meta: { next_cursor: data.next_cursor } };
        }}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ id, name }) => <Link to={`${base}/lists/${id}`}>{name}</Link> },
          { name: "Subscribers", cell: membersText, isNumber: true },
          { name: "Last 30 days", cell: ({ growth }) => SIGNED.format(growth), isNumber: true },
          { name: "Note", cell: ({ description }) => description },
          { name: "Opt-in", cell: ({ optin }) => OPTINS[optin] },
          { name: "Created", cell: ({ created_at }) => <When at={created_at} /> },
          {
            name: "Actions",
            cell: ({ id, name }) =>
              mayWrite && (
                <More of={name}>
                  <Remove
                    title={`Delete ${name}`}
                    act={(options) => client.api.lists.remove.mutate({ params: { listId: id } }, options)}
                    undo={undo(id)}
                  >
                    Its subscribers stay in the audience; their subscriptions to it end. {RESTORABLE}
                  </Remove>
                </More>
              ),
          },
        ]}
        empty={
          q
            ? "No lists match."
            : "No lists yet. A list holds the people who subscribed to one newsletter: create one, then import people."
        }
      />
    </>
  );
}

const OPTIN =
  "Double: people get emails once they confirm through a link. Single: people get emails from the moment they are added.";

interface ListButtonProps {
  /** The one to change; a new one unless given. */
  list?: ListRecord;
  /** In place of the page of a new one. */
  onMade?: (id: string) => void;
}

/** A button that makes a list, or changes one. */
export function ListButton({ list, onMade }: ListButtonProps) {
  const { client, base } = useWorkspace();
  const { lists } = client.api;
  const navigate = useNavigate();
  const hint = list ? `${OPTIN} A change applies to new subscribers only.` : OPTIN;
  return (
    <Act
      {...(list
        ? { title: `Edit ${list.name}`, short: "Edit", submit: "Save", values: list }
        : { title: "New list", submit: "Create list", kind: onMade ? undefined : "primary" })}
      inputs={[
        ["name", "Name", { required: true, maxLength: 200 }],
        ["description", "Note for the team"],
        ["optin", "Opt-in", { choices: OPTINS, hint }],
      ]}
      edits={list && { id: list.id, record: list, read: () => lists.retrieve.query({ params: { listId: list.id } }) }}
      act={async ({ name = "", description, optin }, context, save) => {
        const body = { name, description: description || null, optin: optin as "SINGLE" };
        if (list) return save(body, (options) => lists.update.mutate({ params: { listId: list.id }, body }, options));
        const { id } = (await lists.create.mutate({ body }, { context })).data;
        return onMade ? onMade(id) : navigate({ to: `${base}/lists/${id}` });
      }}
    />
  );
}

type Member = DataOf<Client["api"]["lists"]["pageSubscribers"]["query"]>[number];

const WITHHELD = {
  suppressed: "the address is suppressed",
  list_limit: "already asked today",
  address_limit: "asked too often recently",
  team_limit: "the team has reached its limit for today",
  relay_failure: "the mail server did not accept the email",
} as const;

/** One list with its subscribers. */
export function OneList() {
  const { listId = "" } = useParams({ strict: false }) as { listId?: string };
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const [{ q, status: given }] = useFilters();
  const list = useData(["lists", listId], () => client.api.lists.retrieve.query({ params: { listId } }));
  const { name, description, optin } = list;
  const status = choiceOf(SUBSCRIPTION_STATUSES, given);
  const states: Column<Member>[] = [
    {
      name: "Status",
      cell: ({ status, unsubscribed_at: left, confirmation_withheld: withheld }) => (
        <>
          <State of={SUBSCRIPTION_STATUSES} is={status} /> {status === "UNSUBSCRIBED" && <When at={left} isAgo />}{" "}
          {withheld && `Not asked to confirm: ${WITHHELD[withheld]}`}
        </>
      ),
    },
    {
      name: "Actions",
      cell: ({ id, email, status }) => (
        <SubscriptionActions listId={listId} subscriberId={id} status={status} name={email} optin={optin} />
      ),
    },
  ];
  return (
    <>
      <PageHead title={name}>
        {mayWrite && (
          <>
            <ListButton list={list} />
            <Link className="button" to={`${base}/forms`} search={{ list: listId }}>
              Create a form
            </Link>
            <Link className="button" to={`${base}/imports`} search={{ list: listId }}>
              Import
            </Link>
            <AddPerson list={list} />
          </>
        )}
      </PageHead>
      <p className="muted">
        {OPTINS[optin]} opt-in.{description && ` ${description}`}
      </p>
      <Part>
        <Growth listId={listId} />
      </Part>
      <AddressList<Member>
        search={useSearch("subscribers", listId)}
        caption={`Subscribers of ${name}`}
        queryKey={[base, "lists", listId, "subscribers", status]}
        read={(cursor) =>
          client.api.lists.pageSubscribers.query({ params: { listId }, query: { cursor, status, sort: "created_at" } })
        }
        columns={[
          { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
          { name: "Name", cell: nameOf },
          { name: "Added", cell: ({ created_at }) => <When at={created_at} /> },
          // A search finds subscribers, and not their subscriptions.
          ...(q ? [] : states),
        ]}
        empty={
          status
            ? "No subscribers have this status."
            : "This list has no subscribers yet. Add a person, or import a file."
        }
      >
        <ChoiceFilter name="status" label="Status" any="All" choices={choicesOf(SUBSCRIPTION_STATUSES)} />
        <Export of="list" list_id={listId} subscription={status} text="Export these people" />
      </AddressList>
    </>
  );
}

function Growth({ listId }: { listId: string }) {
  const { environment } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const read = ({ app }: Client) => app.audience.lists.query({ query: { list_id: listId } });
  const [list] = useData(["lists", listId, "members"], read).lists;
  if (!list) return null;
  const url = list.archive_url;
  const figures = [
    ["Subscribers", membersText(list)],
    ["Last 30 days", SIGNED.format(list.growth)],
    [
      "Unsubscribed",
      list.unsubscribed && (
        <Link key="left" to="." search={{ status: "UNSUBSCRIBED" }}>
          {list.unsubscribed.toLocaleString()}
        </Link>
      ),
    ],
  ] as const;
  return (
    <>
      <Facts className="figures" of={figures} />
      {environment === "live" && (
        <section className="card">
          <h2>Public archive</h2>
          {url ? (
            <Copy text={url} name="the address of the public archive" isLink />
          ) : (
            <p className="muted">Off: no page shows the newsletters that were sent to this list.</p>
          )}
          {mayWrite && <ArchiveButton {...list} />}
        </section>
      )}
    </>
  );
}

function ArchiveButton({ id, has_archive: isOn }: Listed) {
  const { archive } = useWorkspace().client.app.audience;
  const body = { list_id: id, is_on: !isOn };
  return (
    <Act
      {...(isOn
        ? { title: "End the public archive", note: "Its newsletters leave the web, but for those that you published." }
        : { title: "Make the archive public", note: "Anyone may read the newsletters that were sent to this list." })}
      act={(_, context) => archive.mutate({ body }, { context })}
    />
  );
}

/** Adds a person by their address, who becomes a subscriber if they are none. */
function AddPerson({ list: { id: listId, name, optin } }: { list: ListRecord }) {
  const { lists, subscribers } = useWorkspace().client.api;
  const add = async ({ email = "", first_name, last_name }: Values) => {
    const { data: found } = await subscribers.page.query({ query: { email } });
    const body = { email, first_name: first_name || null, last_name: last_name || null };
    const { id } = found[0] ?? (await subscribers.create.mutate({ body })).data;
    const { data } = await lists.addMembers.mutate({ params: { listId }, body: { subscriber_ids: [id] } });
    if (data.added.length > 0) return;
    if (data.already_subscribed.length > 0)
      return `${email} is already on this list. If they have not confirmed, another email asks them to.`;
    const asked = optin === "DOUBLE" ? " An email asks whether they want to come back." : "";
    return `${email} unsubscribed from this list and stays off it until they confirm.${asked}`;
  };
  return (
    <Act
      title={`Add a person to ${name}`}
      short="Add a person"
      submit="Add"
      kind="primary"
      note={
        optin === "DOUBLE"
          ? "An email asks them to confirm; they get newsletters once they do."
          : "They get this list's newsletters from now on. Only add people who agreed to it."
      }
      inputs={PERSON_INPUTS}
      act={add}
    >
      <p className="muted">Names are saved only for new subscribers.</p>
    </Act>
  );
}

const LEFT = { all: "From all email", list: "From this list" } as const;
const LEAVING =
  "From all email: the address gets no newsletters, campaigns or sequences. From this list: the person still gets other lists, and campaigns if they are a contact. An admin can allow an address again; to come back to the list they sign up again.";

/** Buttons that end a subscription, or ask to confirm it again after an opt-out. @param of with the name of the person or the list */
export function SubscriptionActions(of: Record<"listId" | "subscriberId" | "status" | "name" | "optin", string>) {
  const { listId, subscriberId, status, name, optin } = of;
  const { api, app } = useWorkspace().client;
  const params = { listId, subscriberId };
  const ask = async () => {
    await api.lists.addMembers.mutate({ params: { listId }, body: { subscriber_ids: [subscriberId] } });
    return "An email asks the person to confirm, unless one did recently.";
  };
  if (!useRole("EDITOR")) return null;
  if (status === "UNSUBSCRIBED")
    return (
      <More of={name}>
        <Act
          title="Ask to confirm again"
          isDisabled={optin === "SINGLE"}
          note={`${name}: ${optin === "SINGLE" ? "a list with single opt-in cannot ask. They can sign up by a form." : "an email asks the person. Send it only if they want to sign up again."}`}
          act={ask}
        />
        <Act
          title="Unsubscribe from all email"
          kind="danger"
          note="The address gets no newsletters, campaigns or sequences. An admin can allow it again."
          act={(_, context) => app.audience.unsubscribe.mutate({ params }, { context })}
        />
      </More>
    );
  return (
    <More of={name}>
      <Act
        title="Unsubscribe"
        kind="danger"
        note={`${name}: ${LEAVING}`}
        inputs={[["from", "Which emails", { choices: LEFT }]]}
        act={({ from }, context) =>
          from === "all"
            ? app.audience.unsubscribe.mutate({ params }, { context })
            : api.lists.updateMember.mutate({ params, body: { status: "UNSUBSCRIBED" } }, { context })
        }
      />
      <Remove title="Remove" act={(options) => api.lists.removeMember.mutate({ params }, options)}>
        {name}: the person is removed from the list. They stay in the audience, and can be added again.
      </Remove>
    </More>
  );
}
