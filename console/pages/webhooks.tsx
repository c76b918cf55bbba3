import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import type { Client, DataOf } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { Dialog, useSecret } from "../parts/dialog.tsx";
import { ChoiceFilter, useFilters } from "../parts/filters.tsx";
import { Refused, Ticks, textsOf } from "../parts/form.tsx";
import { More } from "../parts/more.tsx";
import { choicesOf, Facts, PageHead, State, When } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import { List } from "../parts/table.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

const HEALTH = {
  working: ["Working", "good"],
  failing: ["Failing", "wrong"],
  unproven: ["No success in the last day", "muted"],
  new: ["No events yet", "muted"],
  manual: ["Off", "warn"],
  failed: ["Turned off after failing for days", "wrong"],
} as const;

type Endpoint = DataOf<Client["api"]["webhooks"]["retrieve"]["query"]>;

function EndpointState({ active, health, disabled_reason: reason, last_success_at, last_failure_at }: Endpoint) {
  if (!active) return <State of={HEALTH} is={reason === "manual" ? "manual" : "failed"} />;
  return <State of={HEALTH} is={last_success_at || last_failure_at ? health : "new"} />;
}

const INPUTS = [
  ["url", "URL", { type: "url", required: true }],
  ["name", "Name", { maxLength: 200, hint: "Leave empty to use the host of the URL." }],
  ["description", "Note", { maxLength: 1_000 }],
] as const;

/** The events that there are. */
const useEventTypes = () =>
  useData(["webhook-events"], ({ api }) => api.webhooks.listEventTypes.query({}), { staleTime: "static" });

function EventPicker({ chosen, onChange }: { chosen: readonly string[]; onChange: (events: string[]) => void }) {
  const types = useEventTypes();
  const all = chosen.length === types.length;
  return (
    <fieldset name="events">
      <legend>Events</legend>
      <button type="button" onClick={() => onChange(all ? [] : types.map(({ id }) => id))}>
        {all ? "None" : "All"}
      </button>
      <Ticks
        options={types.map(({ id, description }) => ({
          id,
          name: (
            <>
              {id} <span className="muted">{description}</span>
            </>
          ),
        }))}
        chosen={chosen}
        onChange={onChange}
      />
      <Refused name="events" />
    </fieldset>
  );
}

const useEndpointSecret = () =>
  useSecret("The endpoint's secret", "Copy it into your program now: it verifies signatures, and is not shown again.");

/** The webhook endpoints of a team. */
export function Webhooks() {
  const { client, base } = useWorkspace();
  const [{ active, event }] = useFilters();
  const [events, setEvents] = useState<string[]>([]);
  const secret = useEndpointSecret();
  const types = useEventTypes().map(({ id }) => id);
  return (
    <>
      <PageHead title="Webhooks">
        {useRole("ADMIN") && (
          <Act
            title="New endpoint"
            submit="Create endpoint"
            kind="primary"
            inputs={INPUTS}
            onOpen={() => setEvents([])}
            act={async ({ url = "", name, description }, context) => {
              const body = { url, events, ...(name && { name }), ...(description && { description }) };
              const { data } = await client.api.webhooks.create.mutate({ body }, { context });
              secret.show(data.secret);
            }}
          >
            <EventPicker chosen={events} onChange={setEvents} />
          </Act>
        )}
      </PageHead>
      {secret.dialog}
      <div className="filters">
        <ChoiceFilter name="active" label="Status" any="All" choices={{ true: "On", false: "Off" }} />
        <ChoiceFilter name="event" label="Event" any="All" choices={textsOf(types)} />
      </div>
      <List
        caption="Webhook endpoints"
        queryKey={[base, "webhooks", active, event]}
        read={(cursor) => client.api.webhooks.page.query({ query: { cursor, active, event } })}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ id, name }) => <Link to={`${base}/webhooks/${id}`}>{name}</Link> },
          { name: "URL", cell: ({ url }) => url },
          { name: "Status", cell: (endpoint) => <EndpointState {...endpoint} /> },
          { name: "Last success", cell: ({ last_success_at }) => <When at={last_success_at} /> },
          { name: "Events", cell: (endpoint) => endpoint.events.length, isNumber: true },
        ]}
        empty={
          active || event
            ? "No endpoints match."
            : "No endpoints yet. An endpoint is a URL of your program that is notified at once of unsubscribes, bounces and sends."
        }
      />
    </>
  );
}

const STATUSES = {
  PENDING: ["Pending", "muted"],
  SUCCEEDED: ["Succeeded", "good"],
  RETRYING: ["Failed, will retry", "warn"],
  FAILED: ["Failed", "wrong"],
  BLOCKED: ["Not sent", "wrong"],
} as const;

/** Of a list with deliveries that were not attempted yet. */
const POLL_MS = 3_000;
/** Rows of one page. */
const MOST_POLLED = 50;

const OFF = "Nothing is sent to it while it is off. Events are logged as not sent, and you can replay them.";
const HOURS = {
  type: "number",
  min: 0,
  max: 168,
  required: true,
  hint: "Enter 0 if others may know the old one.",
} as const;
const ENDED = { true: "Last attempt", false: "Followed by another" };

function useEndpoint() {
  const { client, base } = useWorkspace();
  const { webhookId = "" } = useParams({ strict: false });
  return { client, base, params: { webhookId }, calls: client.api.webhooks, key: ["webhooks", webhookId] };
}

/** One webhook endpoint with its deliveries. */
export function Webhook() {
  const { client, base, params, calls, key } = useEndpoint();
  const navigate = useNavigate();
  const mayWrite = useRole("ADMIN");
  const secret = useEndpointSecret();
  const [events, setEvents] = useState<string[]>();
  const [, setFilters] = useFilters();
  const read = () => calls.retrieve.query({ params });
  const endpoint = useData(key, read);
  const { active } = endpoint;
  return (
    <>
      <PageHead title={endpoint.name}>
        {mayWrite && (
          <>
            <Act
              title="Edit"
              submit="Save"
              inputs={INPUTS}
              values={{ ...endpoint, description: endpoint.description ?? "" }}
              edits={{ id: endpoint.id, record: endpoint, read }}
              onOpen={() => setEvents(undefined)}
              act={({ url = "", name, description = "" }, _, save) => {
                const named = { ...(name && { name }), ...(events && { events }) };
                const body = { url, description: description || null, ...named };
                return save(body, (options) => calls.update.mutate({ params, body }, options));
              }}
            >
              <EventPicker chosen={events ?? endpoint.events} onChange={setEvents} />
            </Act>
            <Act
              title="Send a test event"
              submit="Send event"
              note="An example event is sent once, with a header that marks it as a test. You then see the response."
              inputs={[["type", "Event", { choices: textsOf(endpoint.events), required: true }]]}
              values={{ type: endpoint.events[0] }}
              act={async ({ type }) => {
                const { data } = await calls.test.mutate({ params, body: { type: type as never } });
                setFilters({ delivery: data.id });
              }}
            />
            <More>
              <Act
                title={active ? "Turn off" : "Turn on"}
                note={active ? OFF : "Events are sent to it from now on. Earlier ones can be replayed."}
                act={() => calls.update.mutate({ params, body: { active: !active } })}
              />
              <Act
                title="Rotate the secret"
                inputs={[["overlap_hours", "Hours for which the old secret still signs", HOURS]]}
                values={{ overlap_hours: 24 }}
                act={async (values, context) => {
                  const body = { overlap_hours: Number(values["overlap_hours"]) };
                  secret.show((await calls.rotate.mutate({ params, body }, { context })).data.secret);
                }}
              />
              <Act
                title="Retry now"
                note="Deliveries waiting for their next attempt are attempted at once. This uses none of their attempts."
                act={() => client.app.accounts.webhooks.retry.mutate({ params })}
              />
              <Remove
                title="Delete this endpoint"
                act={(options) => calls.remove.mutate({ params }, options)}
                onDone={() => navigate({ to: `${base}/webhooks` })}
              >
                The endpoint and its log are permanently deleted.
              </Remove>
            </More>
          </>
        )}
      </PageHead>
      {secret.dialog}
      <Facts
        of={[
          ["URL", <code key="url">{endpoint.url}</code>],
          ["Status", <EndpointState key="state" {...endpoint} />],
          ["Failures in a row", endpoint.consecutive_failures || null],
          ["Next attempt", endpoint.next_probe_at && <When at={endpoint.next_probe_at} />],
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
  const { base, params, calls, key } = useEndpoint();
  const [{ status, final, delivery }, setFilters] = useFilters();
  const openOf = (id: string) => ({ to: ".", search: { status, final, delivery: id }, resetScroll: false }) as const;
  return (
    <>
      <div className="head">
        <h2>Deliveries</h2>
        {useRole("ADMIN") && <ReplayMany />}
      </div>
      <div className="filters">
        <ChoiceFilter name="status" label="Status" any="All" choices={choicesOf(STATUSES)} />
        <ChoiceFilter name="final" label="Attempt" any="All" choices={ENDED} />
      </div>
      <List
        caption="Deliveries"
        queryKey={[base, ...key, "deliveries", status, final]}
        read={(cursor) =>
          calls.pageDeliveries.query({ params, query: { cursor, status: status as keyof typeof STATUSES, final } })
        }
        // Each page is read again.
        poll={(rows) => rows.length <= MOST_POLLED && rows.some(({ status }) => status === "PENDING") && POLL_MS}
        keyOf={({ id }) => id}
        columns={[
          { name: "Event", cell: ({ id, event_type }) => <Link {...openOf(id)}>{event_type}</Link> },
          { name: "When", cell: ({ created_at }) => <When at={created_at} /> },
          { name: "Status", cell: (row) => <State of={STATUSES} is={row.status} /> },
          { name: "Response", cell: ({ response_status, error_message }) => response_status ?? error_message },
          { name: "Attempt", cell: ({ attempt }) => attempt, isNumber: true },
        ]}
        empty="No deliveries match. Every event since the endpoint was created appears here; send a test event to see one."
      />
      {delivery && (
        <Dialog title="Delivery" onClose={() => setFilters({ delivery: undefined })}>
          <Delivery deliveryId={delivery} />
        </Dialog>
      )}
    </>
  );
}

function Delivery({ deliveryId }: { deliveryId: string }) {
  const { client, params, calls, key } = useEndpoint();
  const both = { params: { ...params, deliveryId } };
  const mayWrite = useRole("ADMIN");
  const delivery = useData([...key, "delivery", deliveryId], () => calls.retrieveDelivery.query(both), {
    poll: ({ status }) => status === "PENDING" && 1_000,
  });
  const { body } = useData([...key, "body", deliveryId], () => client.app.accounts.webhooks.body.query(both));
  return (
    <>
      <p>
        {delivery.event_type}: <State of={STATUSES} is={delivery.status} />, attempt {delivery.attempt},{" "}
        <When at={delivery.created_at} />
        {delivery.duration_ms !== null && `, ${delivery.duration_ms.toLocaleString()} ms`}
        {delivery.is_replay && ", a replay"}
      </p>
      <Facts of={[["Next attempt", delivery.next_attempt_at && <When at={delivery.next_attempt_at} />]]} />
      {delivery.error_message && <p className="wrong">{delivery.error_message}</p>}
      <h3>Request</h3>
      <pre>{body ? JSON.stringify(JSON.parse(body), null, 2) : "The event is no longer kept."}</pre>
      <h3>Response{delivery.response_status !== null && ` ${delivery.response_status}`}</h3>
      <pre>{delivery.response_body || "Empty"}</pre>
      {mayWrite && (
        <Act
          title="Replay"
          submit="Replay event"
          note="The same event is delivered again, with the same event ID."
          act={(_, context) => calls.replay.mutate(both, { context })}
        />
      )}
    </>
  );
}

const REPLAYED = { "": "Failed or not sent", FAILED: "Failed", BLOCKED: "Not sent" };
const REPLAY_INPUTS = [
  ["since", "Created since", { type: "datetime-local", required: true }],
  ["until", "Until", { type: "datetime-local", hint: "Leave empty for all until now." }],
  ["status", "Status", { choices: REPLAYED }],
] as const;

/** Counts the deliveries that match, then replays them. */
function ReplayMany() {
  const { params, calls } = useEndpoint();
  const types = useEventTypes().map(({ id }) => id);
  const [counted, setCounted] = useState<{ body: string; total: number }>();
  return (
    <Act
      title="Replay deliveries"
      onOpen={() => setCounted(undefined)}
      submit={counted?.total ? `Replay ${counted.total.toLocaleString()}` : "Count deliveries"}
      inputs={[...REPLAY_INPUTS, ["type", "Event", { choices: { "": "All", ...textsOf(types) } }]]}
      act={async ({ since = "", until, status, type }) => {
        const body = {
          since: new Date(since).toISOString(),
          ...(until && { until: new Date(until).toISOString() }),
          event_types: (type ? [type] : []) as never[],
          statuses: (status ? [status] : ["FAILED", "BLOCKED"]) as ("FAILED" | "BLOCKED")[],
        };
        if (counted?.total && counted.body === JSON.stringify(body)) {
          const { replayed, has_more } = (await calls.replayMany.mutate({ params, body })).data;
          return `Replayed: ${replayed.toLocaleString()}. ${has_more ? "More deliveries match: replay again." : ""}`;
        }
        const { meta } = await calls.replayMany.mutate({ params, body }, { context: { dryRun: true } });
        const { would_create: total = 0 } = (meta["impact"] ?? {}) as { would_create?: number };
        setCounted({ body: JSON.stringify(body), total });
        return false;
      }}
    >
      {counted && <p role="status">Deliveries to replay: {counted.total.toLocaleString()}.</p>}
    </Act>
  );
}
