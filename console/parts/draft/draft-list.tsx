import { Link, useNavigate } from "@tanstack/react-router";
import { useRole, useWorkspace } from "../../session.tsx";
import { Act } from "../act.tsx";
import { ChoiceFilter, FilterBar, useFilters, When } from "../filters.tsx";
import { PageHead } from "../page.tsx";
import { callsOf, type Kind } from "../send/calls.ts";
import { List } from "../table.tsx";
import { type Listed, STATES, useTargets } from "./drafts.ts";

const TEXTS = {
  newsletter: {
    title: "Newsletters",
    create: "New newsletter",
    empty: "A newsletter goes once to the subscribers of lists: make one, write it, then send it.",
  },
  campaign: {
    title: "Campaigns",
    create: "New campaign",
    empty: "A campaign goes once to the contacts of a segment, over one or more accounts: make one, then write it.",
  },
};

const { ACTIVE: _running, STOPPED: _stopped, ...FILTERS } = STATES;
const NAME_HINT = "For the team alone; recipients see the subject.";

/** The newsletters, or the campaigns, of a team. */
export function DraftList({ kind }: { kind: Kind }) {
  const { client, base } = useWorkspace();
  const navigate = useNavigate();
  const [{ status: given = "" }] = useFilters();
  const { drafts } = callsOf(client, kind, "").calls;
  const mayWrite = useRole("EDITOR");
  const status = given in FILTERS ? (given as keyof typeof FILTERS) : undefined;
  const texts = TEXTS[kind];
  const { data: targets } = useTargets(kind);
  return (
    <>
      <PageHead title={texts.title}>
        {mayWrite && (
          <Act
            title={texts.create}
            submit="Make the draft"
            kind="primary"
            inputs={[["name", "Name", { required: true, maxLength: 200, hint: NAME_HINT }]]}
            act={async ({ name = "" }) => {
              const { data } = await drafts.create.mutate({ body: { name } });
              await navigate({ to: `${base}/${kind}s/${data.id}` });
            }}
          />
        )}
      </PageHead>
      <FilterBar>
        <ChoiceFilter name="status" label="State" any="All" choices={FILTERS} />
      </FilterBar>
      <List<Listed>
        caption={texts.title}
        queryKey={[base, `${kind}s`, "list", status]}
        read={async (cursor) => {
          const page = await drafts.page.query({ query: { cursor, status } });
          // Sequences have a page of their own.
          return { ...page, data: page.data.filter((draft) => !("is_drip" in draft && draft.is_drip)) };
        }}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ id, name }) => <Link to={`${base}/${kind}s/${id}`}>{name}</Link> },
          { name: "State", cell: (draft) => STATES[draft.status] },
          { name: "Subject", cell: ({ subject }) => subject ?? <span className="muted">none yet</span> },
          { name: "Targets", cell: (draft) => namesOf(draft, targets) },
          { name: "Updated", cell: ({ updated_at }) => <When at={updated_at} /> },
        ]}
        empty={<p>{status ? "None is in this state." : texts.empty}</p>}
      />
    </>
  );
}

function namesOf(
  draft: { lists?: string[]; segment_id?: string | null },
  targets: readonly { id: string; name: string }[] | undefined,
) {
  if (!targets) return "…";
  const ids = draft.lists ?? (draft.segment_id ? [draft.segment_id] : []);
  return ids.map((id) => targets.find((target) => target.id === id)?.name ?? "deleted").join(", ") || "none yet";
}
