import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Act, useDone } from "../parts/act.tsx";
import { ChoiceFilter, FilterBar, useFilters, When } from "../parts/filters.tsx";
import { PageHead } from "../parts/page.tsx";
import { List } from "../parts/table.tsx";
import { ENDPOINT_INPUTS, EndpointState, EventPicker, useEventTypes, useSecret } from "../parts/webhook.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** The webhook endpoints of a team. */
export function Page() {
  const { client, base } = useWorkspace();
  const done = useDone("webhooks");
  const [{ active, event }] = useFilters();
  const [events, setEvents] = useState<string[]>([]);
  const secret = useSecret();
  const types = useEventTypes().data?.data ?? [];
  const names = Object.fromEntries(types.map(({ id }) => [id, id]));
  return (
    <>
      <PageHead title="Webhooks">
        {useRole("ADMIN") && (
          <Act
            title="New endpoint"
            submit="Make the endpoint"
            kind="primary"
            inputs={ENDPOINT_INPUTS}
            fields={["events"]}
            act={async ({ url = "", name, description }) => {
              const body = { url, events, ...(name && { name }), ...(description && { description }) };
              const { data } = await done(client.api.webhooks.create.mutate({ body }));
              secret.show(data.secret);
            }}
          >
            {(problemOf) => <EventPicker chosen={events} onChange={setEvents} problem={problemOf("events")} />}
          </Act>
        )}
      </PageHead>
      {secret.dialog}
      <FilterBar>
        <ChoiceFilter name="active" label="State" any="All" choices={{ true: "On", false: "Off" }} />
        <ChoiceFilter name="event" label="Event" any="All" choices={names} />
      </FilterBar>
      <List
        caption="Webhook endpoints"
        queryKey={[base, "webhooks", active, event]}
        read={(cursor) => client.api.webhooks.page.query({ query: { cursor, active, event } })}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ id, name }) => <Link to={`${base}/webhooks/${id}`}>{name}</Link> },
          { name: "URL", cell: ({ url }) => url },
          { name: "State", cell: (endpoint) => <EndpointState {...endpoint} /> },
          { name: "Last success", cell: ({ last_success_at }) => <When at={last_success_at} /> },
          { name: "Events", cell: (endpoint) => endpoint.events.length, isNumber: true },
        ]}
        empty={
          <p>
            {active || event
              ? "No endpoint is like this."
              : "No endpoint yet. An endpoint is a URL of your program: it hears at once of unsubscribes, bounces and sends."}
          </p>
        }
      />
    </>
  );
}
