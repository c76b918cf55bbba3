import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { Act, Facts, useDone } from "../parts/act.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { ChoiceFilter, FilterBar, useFilters, When } from "../parts/filters.tsx";
import { Loading, PageHead, Problem } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import { List } from "../parts/table.tsx";
import { ENDPOINT_INPUTS, EndpointState, EventPicker, useEventTypes, useSecret } from "../parts/webhook.tsx";
import { useRole, useWorkspace } from "../session.tsx";

const STATUSES = {
  PENDING: ["On its way", "muted"],
  SUCCEEDED: ["Succeeded", "good"],
  RETRYING: ["Failed, tried again", "warn"],
  FAILED: ["Failed", "wrong"],
  BLOCKED: ["Not sent", "wrong"],
} as const;

const Outcome = ({ status }: { status: keyof typeof STATUSES }) => (
  <span className={STATUSES[status][1]}>{STATUSES[status][0]}</span>
);

const textsOf = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, name]));
const OFF = "Nothing is sent to it then. What happens meanwhile stands in its log as not sent, to be replayed.";
const HOURS = { type: "number", min: 0, max: 168, required: true, hint: "0 if others may know the old one." } as const;
const OUTCOMES = Object.fromEntries(Object.entries(STATUSES).map(([name, [text]]) => [name, text]));
const ENDED = { true: "With this attempt", false: "Followed by another" };

/** The query and the changes that the page and its parts share. */
function useEndpoint() {
  const { client, base } = useWorkspace();
  const { webhookId = "" } = useParams({ strict: false });
  const queryKey = [base, "webhooks", webhookId];
  return { client, base, params: { webhookId }, calls: client.api.webhooks, queryKey, done: useDone("webhooks") };
}

/** One webhook endpoint with its deliveries. */
export function Page(): ReactNode {
  const { client, base, params, calls, queryKey, done } = useEndpoint();
  const navigate = useNavigate();
  const mayWrite = useRole("ADMIN");
  const secret = useSecret();
  const [events, setEvents] = useState<string[]>();
  const query = useQuery({ queryKey, queryFn: () => calls.retrieve.query({ params }) });
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  const endpoint = query.data.data;
  const { active } = endpoint;
  return (
    <>
      <PageHead title={endpoint.name}>
        {mayWrite && (
          <>
            <Act
              title={active ? "Switch off" : "Switch on"}
              note={active ? OFF : "Events are sent to it from now on. Those of the time before can be replayed."}
              act={() => done(calls.update.mutate({ params, body: { active: !active } }))}
            />
            <Act
              title="Change"
              submit="Save"
              inputs={ENDPOINT_INPUTS}
              values={{ ...endpoint, description: endpoint.description ?? "" }}
              fields={["events"]}
              act={({ url = "", name, description = "" }) => {
                const named = { ...(name && { name }), ...(events && { events }) };
                return done(calls.update.mutate({ params, body: { url, description: description || null, ...named } }));
              }}
            >
              {(problemOf) => (
                <EventPicker chosen={events ?? endpoint.events} onChange={setEvents} problem={problemOf("events")} />
              )}
            </Act>
            <Act
              title="Send a test event"
              submit="Send"
              note="Its example is sent once, with a header that says that it is a test."
              inputs={[["type", "Event", { choices: textsOf(endpoint.events) }]]}
              act={({ type }) => done(calls.test.mutate({ params, body: { type: type as never } }))}
            />
            <Act
              title="Rotate the secret"
              inputs={[["overlap_hours", "Hours for which the old secret signs, too", HOURS]]}
              values={{ overlap_hours: 24 }}
              act={async (values) => {
                const body = { overlap_hours: Number(values["overlap_hours"]) };
                secret.show((await calls.rotate.mutate({ params, body })).data.secret);
              }}
            />
            <Act
              title="Retry now"
              note="Deliveries that wait for their next attempt are attempted at once. It uses up none of their attempts."
              act={() => done(client.app.accounts.webhooks.retry.mutate({ params }))}
            />
            <Remove
              title="Delete this endpoint"
              act={(context) => calls.remove.mutate({ params }, { context: { ...context } })}
              onDone={() => navigate({ to: `${base}/webhooks` })}
            >
              <p>It is deleted with its log, for good.</p>
            </Remove>
          </>
        )}
      </PageHead>
      {secret.dialog}
      <Facts
        of={[
          ["URL", <code key="url">{endpoint.url}</code>],
          ["State", <EndpointState key="state" {...endpoint} />],
          ["Failures in a row", endpoint.consecutive_failures || null],
          ["Next try", endpoint.next_probe_at && <When at={endpoint.next_probe_at} />],
          ["Last success", endpoint.last_success_at && <When at={endpoint.last_success_at} />],
          ["Last failure", endpoint.last_failure_at && <When at={endpoint.last_failure_at} />],
          ["Events", endpoint.events.join(", ")],
          ["Note", endpoint.description],
        ]}
      />
      <Deliveries />
    </>
  );
}

function Deliveries() {
  const { params, calls, queryKey } = useEndpoint();
  const [{ status, final, delivery, replay }, setFilters] = useFilters();
  const openOf = (id: string) => ({ to: ".", search: { status, final, delivery: id }, resetScroll: false }) as const;
  return (
    <>
      <div className="head">
        <h2>Deliveries</h2>
        {useRole("ADMIN") && <ReplayMany onStarted={(id) => setFilters({ replay: id })} />}
      </div>
      {replay && <Progress key={replay} replayId={replay} />}
      <FilterBar>
        <ChoiceFilter name="status" label="Outcome" any="All" choices={OUTCOMES} />
        <ChoiceFilter name="final" label="Ended" any="All" choices={ENDED} />
      </FilterBar>
      <List
        caption="Deliveries"
        queryKey={[...queryKey, "deliveries", status, final]}
        read={(cursor) =>
          calls.pageDeliveries.query({ params, query: { cursor, status: status as keyof typeof STATUSES, final } })
        }
        keyOf={({ id }) => id}
        columns={[
          { name: "Event", cell: ({ id, event_type }) => <Link {...openOf(id)}>{event_type}</Link> },
          { name: "When", cell: ({ created_at }) => <When at={created_at} /> },
          { name: "Outcome", cell: (row) => <Outcome status={row.status} /> },
          { name: "Answer", cell: ({ response_status, error_message }) => response_status ?? error_message },
          { name: "Attempt", cell: ({ attempt }) => attempt, isNumber: true },
        ]}
        empty={<p>No delivery is like this. Each event since the endpoint was made stands here; send a test event.</p>}
      />
      {delivery && <Delivery deliveryId={delivery} onClose={() => setFilters({ delivery: undefined })} />}
    </>
  );
}

function Delivery({ deliveryId, onClose }: { deliveryId: string; onClose: () => void }) {
  const { client, params, calls, queryKey, done } = useEndpoint();
  const both = { params: { ...params, deliveryId } };
  const mayWrite = useRole("ADMIN");
  const [once] = useState(() => crypto.randomUUID());
  const query = useQuery({
    queryKey: [...queryKey, "delivery", deliveryId],
    queryFn: () => Promise.all([calls.retrieveDelivery.query(both), client.app.accounts.webhooks.body.query(both)]),
  });
  const delivery = query.data?.[0].data;
  const sent = query.data?.[1].data;
  return (
    <Dialog title={delivery?.event_type ?? "Delivery"} onClose={onClose}>
      <Problem error={query.error} />
      {query.isPending && <Loading />}
      {delivery && (
        <>
          <p>
            <Outcome status={delivery.status} />, attempt {delivery.attempt}, <When at={delivery.created_at} />
            {delivery.duration_ms !== null && `, ${delivery.duration_ms.toLocaleString()} ms`}
            {delivery.is_replay && ", a replay"}
          </p>
          {delivery.next_attempt_at && (
            <Facts of={[["Next attempt", <When key="at" at={delivery.next_attempt_at} />]]} />
          )}
          {delivery.error_message && <p className="wrong">{delivery.error_message}</p>}
          <h3>Sent</h3>
          <pre>{sent?.body ? JSON.stringify(JSON.parse(sent.body), null, 2) : "The event is no longer kept."}</pre>
          <h3>Answer{delivery.response_status !== null && ` ${delivery.response_status}`}</h3>
          <pre>{delivery.response_body || "No text"}</pre>
          {mayWrite && (
            <Act
              title="Replay"
              submit="Send it once more"
              note="The same event is delivered once more, under the same event id."
              act={() => done(calls.replay.mutate(both, { context: { idempotencyKey: once } }))}
            />
          )}
        </>
      )}
    </Dialog>
  );
}

const REPLAYED = { "": "Failed or not sent", FAILED: "Failed", BLOCKED: "Not sent" };
const REPLAY_INPUTS = [
  ["since", "Made since", { type: "datetime-local", required: true }],
  ["until", "Until", { type: "datetime-local", hint: "Empty: until now." }],
  ["status", "Outcome", { choices: REPLAYED }],
] as const;

/** Counts what matches, then replays it. */
function ReplayMany({ onStarted }: { onStarted: (replayId: string) => void }) {
  const { params, calls } = useEndpoint();
  const types = useEventTypes().data?.data.map(({ id }) => id) ?? [];
  const [counted, setCounted] = useState<{ body: string; total: number }>();
  return (
    <Act
      title="Replay many"
      submit={counted?.total ? `Replay ${counted.total.toLocaleString()}` : "Count them"}
      inputs={[...REPLAY_INPUTS, ["type", "Event", { choices: { "": "All", ...textsOf(types) } }]]}
      act={async ({ since = "", until, status, type }) => {
        const body = {
          since: new Date(since).toISOString(),
          ...(until && { until: new Date(until).toISOString() }),
          event_types: (type ? [type] : []) as never[],
          statuses: (status ? [status] : ["FAILED", "BLOCKED"]) as ("FAILED" | "BLOCKED")[],
        };
        if (counted?.total && counted.body === JSON.stringify(body)) {
          onStarted((await calls.replayMany.mutate({ params, body })).data.id);
          setCounted(undefined);
          return true;
        }
        const { meta } = await calls.replayMany.mutate({ params, body }, { context: { dryRun: true } });
        const { would_create: total = 0 } = (meta["impact"] ?? {}) as { would_create?: number };
        setCounted({ body: JSON.stringify(body), total });
        return false;
      }}
    >
      {counted && <p role="status">Deliveries that would be sent once more: {counted.total.toLocaleString()}.</p>}
    </Act>
  );
}

function Progress({ replayId }: { replayId: string }) {
  const { params, calls, queryKey } = useEndpoint();
  const query = useQuery({
    queryKey: [...queryKey, "replay", replayId],
    queryFn: () => calls.retrieveReplay.query({ params: { ...params, replayId } }),
    refetchInterval: ({ state }) => (state.data?.data.status === "RUNNING" ? 2_000 : false),
    refetchIntervalInBackground: false,
  });
  if (!query.data) return <Problem error={query.error} />;
  const { status, replayed, total } = query.data.data;
  const text = `${replayed.toLocaleString()} of about ${total.toLocaleString()} are queued again.`;
  return (
    <p className="notice" role="status">
      {status === "RUNNING" ? "Replaying" : "Replayed"}: {text}
      {status === "RUNNING" && <progress aria-label={text} value={replayed} max={Math.max(total, 1)} />}
    </p>
  );
}
