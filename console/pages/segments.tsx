import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import type { Client, DataOf } from "../api.ts";
import { Act } from "../parts/act.tsx";
import {
  type Condition,
  Conditions,
  canShow,
  firstCondition,
  grouped,
  isUnfinished,
  Words,
} from "../parts/audience/builder.tsx";
import { PersonLink, useFields } from "../parts/audience/people.tsx";
import { RESTORABLE, useUndo } from "../parts/bin.tsx";
import { Duplicate } from "../parts/duplicate.tsx";
import { useFilters } from "../parts/filters.tsx";
import { Form, type FormProps } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { PageHead, Problem, When } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import type { Edited } from "../parts/save-from.ts";
import { All } from "../parts/table.tsx";
import { DRAFT_NAME, useMakeDraft } from "../parts/templates.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

type Segment = DataOf<Client["app"]["audience"]["segment"]["query"]>;

/** The segments of the team. */
export function Segments() {
  const { client, base } = useWorkspace();
  const mayWrite = useRole("EDITOR");
  const segments = useData(["segments", "listed"], () => client.app.audience.listedSegments.query({}));
  return (
    <>
      <PageHead title="Segments">
        {mayWrite && (
          <Link className="button primary" to={`${base}/segments/new`}>
            New segment
          </Link>
        )}
      </PageHead>
      <All
        caption="Segments"
        rows={segments}
        search={["Name contains", ({ name }) => name]}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ id, name }) => <Link to={`${base}/segments/${id}`}>{name}</Link> },
          {
            name: "Conditions",
            cell: ({ conditions }) =>
              conditions === null ? "many" : <Words verb="If" value={conditions} mailings={{}} />,
          },
          { name: "Updated", cell: ({ updated_at }) => <When at={updated_at} /> },
        ]}
        empty="No segments yet. A segment selects contacts by their fields, lists and opened emails, for campaigns, newsletters and sequences. Create the first one."
      />
    </>
  );
}

/** A segment, or a new one. */
export function OneSegment() {
  const { segmentId = "" } = useParams({ strict: false }) as { segmentId?: string };
  return segmentId === "new" ? <Editor /> : <Saved key={segmentId} segmentId={segmentId} />;
}

function Saved(params: { segmentId: string }) {
  const { client } = useWorkspace();
  const [turn, setTurn] = useState(0);
  const read = () => client.app.audience.segment.query({ params });
  // The editor begins with the segment as the service has it, and not with a kept one.
  const record = useData(["segments", params.segmentId], read, { gcTime: 0 });
  return <Editor key={turn} edits={{ id: params.segmentId, record, read }} onKept={() => setTurn(turn + 1)} />;
}

/** Conditions on what people did with a mail, which its report puts into the URL. */
function conditionsFrom({ activity, mail, link }: Record<string, string | undefined>): Condition {
  const did = (event: string) => ({ event, resource: mail, ...(link && { link }) });
  if (!activity || !mail) return { all: [firstCondition()] };
  return { all: activity === "not_opened" ? [did("received_tracked"), { not: did("opened") }] : [did(activity)] };
}

function Editor({ edits, onKept }: { edits?: Edited<Segment>; onKept?: () => void }) {
  const segment = edits?.record;
  const [search] = useFilters();
  const { client, base } = useWorkspace();
  const navigate = useNavigate();
  const fields = useFields();
  const mayWrite = useRole("EDITOR") && !segment?.deleted_at;
  const [conditions, setConditions] = useState<unknown>(segment?.conditions ?? conditionsFrom(search));
  const [saved, setSaved] = useState(conditions);
  const shown = grouped(conditions);
  const isShowable = canShow(shown, fields);
  const submit: FormProps["onSubmit"] = async ({ name = "" }, _, save) => {
    const body = { name, conditions };
    const { createSegment, updateSegment } = client.app.audience;
    const { data } = await save(body, (options) =>
      segment
        ? updateSegment.mutate({ params: { segmentId: segment.id }, body }, options)
        : createSegment.mutate({ body }),
    );
    setSaved(conditions);
    if (!segment) await navigate({ to: `${base}/segments/${data.id}` });
  };
  const isChanged = JSON.stringify(conditions) !== JSON.stringify(saved);
  return (
    <>
      <PageHead title={segment?.name ?? "New segment"}>
        {segment && mayWrite && (
          <>
            <MakeDraft type="campaign" segment={segment} />
            <MakeDraft type="newsletter" segment={segment} />
            <More>
              <Duplicate type="segment" id={segment.id} />
              <Delete segment={segment} />
            </More>
          </>
        )}
      </PageHead>
      {segment?.deleted_at && (
        <p className="notice">This segment was deleted. An email that was sent still refers to it.</p>
      )}
      <Conditions value={conditions} onChange={setConditions} />
      <Count
        conditions={conditions}
        isReady={conditions !== undefined && !(isShowable && isUnfinished(shown as Condition))}
      />
      {segment && !isChanged && !segment.deleted_at && (
        <Link to={`${base}/people`} search={{ segment: segment.id }}>
          Show them in People
        </Link>
      )}
      {mayWrite && (
        <Form
          inputs={[["name", "Name", { required: true, maxLength: 200 }]]}
          values={segment}
          submit={segment ? "Save" : "Create segment"}
          isDisabled={conditions === undefined}
          isChanged={isChanged}
          edits={edits}
          onKept={onKept}
          onSubmit={submit}
        />
      )}
    </>
  );
}

const SENT_TO = {
  campaign: "It is sent to the contacts whom the saved segment selects when its send is confirmed.",
  newsletter: "It is sent to the subscribers of its lists whose address is a contact that the saved segment selects.",
} as const;

function MakeDraft({ type, segment }: { type: keyof typeof SENT_TO; segment: Segment }) {
  const makeDraft = useMakeDraft(type);
  return (
    <Act
      title={`Create ${type}`}
      submit="Create draft"
      note={SENT_TO[type]}
      inputs={DRAFT_NAME}
      values={segment}
      act={({ name = "" }, context) => makeDraft({ name, segment_id: segment.id }, context)}
    />
  );
}

/** A count begins once the conditions have stayed the same for so long. */
const PAUSE_MS = 500;

/** How many contacts the conditions select now, and some of them. */
function Count({ conditions, isReady }: { conditions: unknown; isReady: boolean }) {
  const { client, base } = useWorkspace();
  const query = useQuery({
    queryKey: [base, "count", conditions],
    queryFn: async ({ signal }) => {
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      signal.throwIfAborted();
      return (await client.app.audience.countSegment.mutate({ body: { conditions } }, { signal })).data;
    },
    enabled: isReady,
    retry: false,
    placeholderData: keepPreviousData,
  });
  if (!isReady) return <p className="muted">Complete the conditions to see how many contacts match.</p>;
  if (query.error) return <Problem error={query.error} />;
  const { contacts = 0, sample = [], is_estimate: isEstimate = false } = query.data ?? {};
  return (
    <section className="stack" aria-label="Contacts">
      <p role="status">
        {isEstimate && "About "}
        {query.data ? <strong>{contacts.toLocaleString()} contacts</strong> : "Counting…"}
        {contacts > sample.length && !isEstimate && `, ${sample.length} of them:`}
      </p>
      <p className="muted">Subscribers who are not contacts are left out.</p>
      <ul className="plain cards">
        {sample.map((email) => (
          <li key={email}>
            <PersonLink email={email} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Delete({ segment: { id, used_by: uses } }: { segment: Segment }) {
  const { client, base } = useWorkspace();
  const navigate = useNavigate();
  const undo = useUndo();
  const sequences = uses.filter((use) => use.is_sequence);
  return (
    <Remove
      title="Delete this segment"
      act={async ({ context }) => {
        if (!context.dryRun) return client.app.audience.deleteSegment.mutate({ params: { segmentId: id } });
        const impact = {
          drafts_that_need_another: uses.length - sequences.length,
          sequences_that_pause: sequences.length,
        };
        return { meta: { impact } };
      }}
      onDone={() => navigate({ to: `${base}/segments`, ignoreBlocker: true })}
      undo={undo(id)}
    >
      Its contacts stay. {RESTORABLE} {uses.length > 0 && `It is used by ${uses.map(({ name }) => name).join(", ")}.`}
    </Remove>
  );
}
