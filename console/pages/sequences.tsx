import { Link, useNavigate } from "@tanstack/react-router";
import { Act } from "../parts/act.tsx";
import { ChoiceFilter, FilterBar, SearchFilter, useFilters } from "../parts/filters.tsx";
import { Inputs } from "../parts/form.tsx";
import { choicesOf, PageHead, State } from "../parts/page.tsx";
import { SEQUENCE_STATES } from "../parts/sequence.tsx";
import { List } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

/** The sequences of a team. */
export function Page() {
  const { client, base, environment } = useWorkspace();
  const navigate = useNavigate();
  const [{ q, status }] = useFilters();
  const mayWrite = useRole("EDITOR");
  const { sequences } = client.app;
  const filter = { q, status: status as keyof typeof SEQUENCE_STATES | undefined };
  return (
    <>
      <PageHead title="Sequences">
        {mayWrite && environment === "live" && (
          <Act
            title="New sequence"
            submit="Make the sequence"
            kind="primary"
            inputs={[["name", "Name", { required: true, maxLength: 200, hint: "For your team alone." }]]}
            fields={["from_email", "from_name"]}
            act={async ({ name = "", target = "", from_email = "", from_name }) => {
              const [kind = "list_id", id = ""] = target.split(" ");
              const body = { name, [kind]: id, from_email, from_name: from_name || null };
              const { data } = await sequences.create.mutate({ body });
              await navigate({ to: `${base}/sequences/${data.id}` });
            }}
          >
            {(problemOf) => <Choices problemOf={problemOf} />}
          </Act>
        )}
      </PageHead>
      <FilterBar>
        <SearchFilter name="q" label="Name" />
        <ChoiceFilter name="status" label="State" any="All" choices={choicesOf(SEQUENCE_STATES)} />
      </FilterBar>
      <List
        caption="Sequences"
        queryKey={[base, "sequences", q, status]}
        read={async (cursor) => {
          const { data } = await sequences.page.query({ query: { cursor, ...filter } });
          return { data: data.sequences, meta: { next_cursor: data.next_cursor } };
        }}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ id, name }) => <Link to={`${base}/sequences/${id}`}>{name}</Link> },
          { name: "State", cell: (sequence) => <State of={SEQUENCE_STATES} is={sequence.status} /> },
          { name: "Mails", cell: ({ target }) => target ?? "a list or segment that was deleted" },
          { name: "From", cell: ({ from_email }) => from_email },
          { name: "Steps", cell: ({ steps }) => steps, isNumber: true },
        ]}
        empty={
          q || status
            ? "No sequence is like this."
            : "No sequence yet. A sequence mails those who come onto a list, or into a segment: a welcome at once, the next mail some days later."
        }
      />
    </>
  );
}

function Choices({ problemOf }: { problemOf: (name: string) => string | undefined }) {
  const { client } = useWorkspace();
  const { lists, segments, addresses } = useData(["sequence-choices"], () => client.app.sequences.choices.query({}));
  const choices = Object.fromEntries([
    ...lists.map(({ id, name }) => [`list_id ${id}`, `List: ${name}`]),
    ...segments.map(({ id, name }) => [`segment_id ${id}`, `Segment: ${name}`]),
  ]);
  const inputs = [
    ["target", "Mails those who come into", { choices, required: true }],
    ["from_email", "From address", { type: "email", required: true, suggestions: addresses }],
    ["from_name", "Name beside it", { maxLength: 200 }],
  ] as const;
  return <Inputs inputs={inputs} problemOf={problemOf} />;
}
