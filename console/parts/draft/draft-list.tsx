import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { useRole, useWorkspace } from "../../session.tsx";
import { Dialog } from "../dialog.tsx";
import { useFilters } from "../filters.tsx";
import { Field, Form } from "../form.tsx";
import { PageHead } from "../page.tsx";
import { List } from "../table.tsx";
import { Time } from "../time.tsx";
import { draftsOf, type Kind, type Listed, STATES, useTargets } from "./drafts.ts";

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

const FILTERS = ["DRAFT", "SCHEDULED", "SENDING", "PAUSED", "SENT", "CANCELLED", "FAILED"] as const;

/** The newsletters, or the campaigns, of a team. */
export function DraftList({ kind }: { kind: Kind }) {
  const { client, base } = useWorkspace();
  const [{ status: given }, setFilters] = useFilters();
  const [isMaking, setMaking] = useState(false);
  const mayWrite = useRole("EDITOR");
  const status = FILTERS.find((state) => state === given);
  const texts = TEXTS[kind];
  const { data: targets = [] } = useTargets(kind);
  return (
    <>
      <PageHead title={texts.title}>
        <label>
          State{" "}
          <select value={status ?? ""} onChange={({ target }) => setFilters({ status: target.value || undefined })}>
            <option value="">All</option>
            {FILTERS.map((state) => (
              <option key={state} value={state}>
                {STATES[state]}
              </option>
            ))}
          </select>
        </label>
        {mayWrite && (
          <button type="button" className="primary" onClick={() => setMaking(true)}>
            {texts.create}
          </button>
        )}
      </PageHead>
      <List<Listed>
        caption={texts.title}
        queryKey={[base, `${kind}s`, "list", status]}
        read={async (cursor) => await draftsOf(client, kind).page.query({ query: { cursor, status } })}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Name",
            cell: (draft) => (
              <Link to={`${base}/${isSequence(draft) ? "sequence" : kind}s/${draft.id}`}>{draft.name}</Link>
            ),
          },
          { name: "State", cell: (draft) => `${STATES[draft.status]}${isSequence(draft) ? " (sequence)" : ""}` },
          { name: "Subject", cell: ({ subject }) => subject ?? <span className="muted">none yet</span> },
          { name: "Targets", cell: (draft) => namesOf(draft, targets) },
          { name: "Updated", cell: ({ updated_at }) => <Time at={updated_at} /> },
        ]}
        empty={<p>{status ? "None is in this state." : texts.empty}</p>}
      />
      {isMaking && <NewDraft kind={kind} title={texts.create} onClose={() => setMaking(false)} />}
    </>
  );
}

function namesOf(
  draft: { lists?: string[]; segment_id?: string | null },
  targets: readonly { id: string; name: string }[],
) {
  const ids = draft.lists ?? (draft.segment_id ? [draft.segment_id] : []);
  return ids.map((id) => targets.find((target) => target.id === id)?.name ?? "deleted").join(", ") || "none yet";
}

const isSequence = (draft: object): boolean => "is_drip" in draft && draft.is_drip === true;

function NewDraft({ kind, title, onClose }: { kind: Kind; title: string; onClose: () => void }) {
  const { client, base } = useWorkspace();
  const navigate = useNavigate();
  return (
    <Dialog title={title} onClose={onClose}>
      <Form
        fields={["name"]}
        submit="Make the draft"
        onSubmit={async ({ name = "" }) => {
          const { data } = await draftsOf(client, kind).create.mutate({ body: { name } });
          await navigate({ to: `${base}/${kind}s/${data.id}` });
        }}
      >
        {(problemOf) => (
          <Field
            label="Name"
            name="name"
            required
            maxLength={200}
            hint="For the team alone; recipients see the subject."
            problem={problemOf("name")}
          />
        )}
      </Form>
    </Dialog>
  );
}
