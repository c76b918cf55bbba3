import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { Act, Facts } from "../parts/act.tsx";
import { useFilters, When } from "../parts/filters.tsx";
import { Empty, Loading, PageHead, Problem } from "../parts/page.tsx";
import { SequenceState, StepsEditor, whenText } from "../parts/sequence.tsx";
import { Table } from "../parts/table.tsx";
import { useRole, useWorkspace } from "../session.tsx";

const PEOPLE = { ACTIVE: "in it", COMPLETED: "passed all steps", LEFT: "left", PRESENT: "were there before" };
const peopleText = (count: number) => (count === 1 ? "1 person" : `${count.toLocaleString()} people`);

const peopleIn = (people: Partial<Record<string, number>>) =>
  Object.entries(PEOPLE)
    .flatMap(([state, text]) => (people[state] ? [`${people[state].toLocaleString()} ${text}`] : []))
    .join(", ") || "none yet";

/** One sequence: its steps, and the people at each. */
export function Page(): ReactNode {
  const { client, base } = useWorkspace();
  const { sequenceId = "" } = useParams({ strict: false });
  const params = { sequenceId };
  const { sequences } = client.app;
  const queries = useQueryClient();
  const [{ edit }, setFilters] = useFilters();
  const [notice, setNotice] = useState<string>();
  const [isAdmin, isEditor] = [useRole("ADMIN"), useRole("EDITOR")];
  const queryKey = [base, "sequences", sequenceId];
  const queryFn = async () => (await sequences.show.query({ params })).data;
  const query = useQuery({
    queryKey,
    queryFn,
    refetchInterval: (polled) => (polled.state.data?.status === "ACTIVE" ? 5_000 : false),
    refetchIntervalInBackground: false,
  });
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  const sequence = query.data;
  const { status, steps, people, due } = sequence;
  const isRunning = status === "ACTIVE" || status === "PAUSED";
  const mayEdit = status === "DRAFT" ? isEditor : isAdmin && isRunning;
  const isEditing = mayEdit && (edit === "true" || steps.length === 0);
  const then = async (done: Promise<unknown>, said?: string) => {
    await done;
    setNotice(said);
    await queries.invalidateQueries({ queryKey: [base, "sequences"] });
  };
  const resume = async ({ due: choice, own }: Record<string, string>) => {
    const body = { ...(choice && { due: choice as "mail" }), with_own_key: own === "on" };
    const { data } = await sequences.resume.mutate({ params, body });
    const said = `Mailed now: ${data.due - data.spread}; within the hour: ${data.spread}; skipped: ${data.skipped}.`;
    await then(Promise.resolve(), said);
  };
  return (
    <>
      <PageHead title={sequence.name}>
        {isAdmin && status === "DRAFT" && (
          <Act
            title="Start"
            kind="primary"
            isDisabled={steps.length === 0}
            act={({ members }) =>
              then(sequences.start.mutate({ params, body: { include_members: members === "include" } }))
            }
          >
            <Members sequenceId={sequenceId} hasSteps={steps.length > 0} />
          </Act>
        )}
        {isAdmin && status === "ACTIVE" && (
          <Act title="Pause" act={() => then(sequences.pause.mutate({ params }))}>
            <p>No further mail begins. Mails under way are sent, and people still enter.</p>
          </Act>
        )}
        {isAdmin && status === "PAUSED" && (
          <Act title="Resume" kind="primary" act={resume}>
            <p>{peopleText(due)} fell due meanwhile.</p>
            <fieldset className="stack">
              <legend>Those who were due when it was paused</legend>
              {sequence.is_restored && (
                <p className="warn">The service was restored from a backup: some of them may have had their mail.</p>
              )}
              <label>
                <input type="radio" name="due" value="mail" required defaultChecked={!sequence.is_restored} /> Get their
                mail{sequence.is_restored && "; some of them get it twice"}. The first 1,000 get it at once, the others
                within the hour.
              </label>
              <label>
                <input type="radio" name="due" value="skip" required /> Pass this step without a mail
                {sequence.is_restored && "; some of them never get it"}.
              </label>
            </fieldset>
            <label>
              <input type="checkbox" name="own" /> Send with my key from now on, in place of that of the member who
              started it.
            </label>
          </Act>
        )}
        {isAdmin && isRunning && (
          <Act title="Stop" kind="danger" act={() => then(sequences.stop.mutate({ params }))}>
            <p>{peopleText(people.ACTIVE ?? 0)} leave it, and it cannot be started again.</p>
          </Act>
        )}
        {mayEdit && steps.length > 0 && (
          <button type="button" onClick={() => setFilters({ edit: isEditing ? undefined : "true" })}>
            {isEditing ? "Close the steps" : "Edit the steps"}
          </button>
        )}
      </PageHead>
      {notice && (
        <p className="notice" role="status">
          {notice}
        </p>
      )}
      <Facts
        of={[
          ["State", <SequenceState key="state" status={status} />],
          ["Why", status === "PAUSED" && (sequence.problem ?? "A member paused it.")],
          [
            "Mails",
            sequence.list_id ? (
              <Link key="list" to={`${base}/lists/${sequence.list_id}`}>
                {sequence.list_name ?? "a list that was deleted"}
              </Link>
            ) : (
              <Link key="segment" to={`${base}/segments/${sequence.segment_id}`}>
                {sequence.segment_name}
              </Link>
            ),
          ],
          ["From", sequence.from_name ? `${sequence.from_name}, ${sequence.from_email}` : sequence.from_email],
          ["People", peopleIn(people)],
          ["Next mail", sequence.next_due_at && <When at={sequence.next_due_at} />],
          ["Mailed today", isRunning && sequence.mailed_today],
        ]}
      />
      <h2>Steps</h2>
      {isEditing ? (
        <StepsEditor
          saved={steps}
          save={async (given) => {
            const { data } = await sequences.saveSteps.mutate({ params, body: { steps: given } });
            const { added, changed, removed } = data;
            await then(Promise.resolve(), `Saved: ${added} new, ${changed} changed, ${removed} removed.`);
            setFilters({ edit: undefined });
          }}
        />
      ) : steps.length === 0 ? (
        <Empty>
          <p>No step yet. An editor writes its mails.</p>
        </Empty>
      ) : (
        <Table
          caption="Steps"
          rows={steps}
          keyOf={({ id }) => id}
          columns={[
            { name: "Subject", cell: ({ subject }) => subject },
            { name: "When", cell: whenText },
            ...(["waiting", "sent", "opened", "clicked", "left"] as const).map((name) => ({
              name: `${name[0]?.toUpperCase()}${name.slice(1)}`,
              cell: (step: (typeof steps)[number]) => Number(step[name]).toLocaleString(),
              isNumber: true,
            })),
          ]}
        />
      )}
    </>
  );
}

function Members({ sequenceId, hasSteps }: { sequenceId: string; hasSteps: boolean }) {
  const { client, base } = useWorkspace();
  const queryFn = () => client.app.sequences.countMembers.query({ params: { sequenceId } });
  const query = useQuery({ queryKey: [base, "sequences", sequenceId, "members"], queryFn, gcTime: 0 });
  if (!hasSteps) return <p>It has no steps. Write and save them first.</p>;
  if (query.isPending) return <Loading />;
  const there = query.data ? peopleText(query.data.data.members) : "those";
  return (
    <>
      <Problem error={query.error} />
      <p>Mails go out with your key, and count towards its daily limit.</p>
      <fieldset className="stack">
        <legend>Who enters it</legend>
        <label>
          <input type="radio" name="members" value="new" required /> Only those who come from now on.
        </label>
        <label>
          <input type="radio" name="members" value="include" required /> Also {there} who are there now.
        </label>
      </fieldset>
    </>
  );
}
