import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Field, Form } from "../parts/form.tsx";
import { Loading, PageHead, Problem } from "../parts/page.tsx";
import { useRole, useWorkspace } from "../session.tsx";

/** Name, time zone and tracking of the team. */
export function Page() {
  const { client, team } = useWorkspace();
  const queries = useQueryClient();
  const mayWrite = useRole("ADMIN");
  const [isSaved, setSaved] = useState(false);
  const query = useQuery({ queryKey: [team, "settings"], queryFn: () => client.app.team.settings.query({}) });
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  const { name, time_zone, tracking } = query.data.data;
  const zones = [...new Set([time_zone, "UTC", ...Intl.supportedValuesOf("timeZone")])];
  return (
    <>
      <PageHead title="Settings" />
      {!mayWrite && <p className="notice">An ADMIN or an OWNER can change these settings.</p>}
      <Form
        fields={["name", "time_zone", "tracking"]}
        submit="Save"
        isDisabled={!mayWrite}
        onSubmit={async (values) => {
          setSaved(false);
          const body = { name: values["name"], time_zone: values["time_zone"], tracking: values["tracking"] === "on" };
          await client.app.team.changeSettings.mutate({ body });
          await Promise.all([
            queries.invalidateQueries({ queryKey: [team, "settings"] }),
            queries.invalidateQueries({ queryKey: ["session"] }),
          ]);
          setSaved(true);
        }}
      >
        {(problemOf) => (
          <>
            <Field
              label="Name of the team"
              name="name"
              defaultValue={name}
              required
              maxLength={200}
              disabled={!mayWrite}
              problem={problemOf("name")}
            />
            <Field
              label="Time zone"
              name="time_zone"
              hint="Send days are days in this zone."
              problem={problemOf("time_zone")}
              control={(id, describedBy) => (
                <select
                  id={id}
                  name="time_zone"
                  defaultValue={time_zone}
                  aria-describedby={describedBy}
                  disabled={!mayWrite}
                >
                  {zones.map((zone) => (
                    <option key={zone}>{zone}</option>
                  ))}
                </select>
              )}
            />
            <Field
              label="Tracking"
              name="tracking"
              hint="Counts opens and clicks of sends that are confirmed from now on. A newsletter or a campaign may say otherwise."
              control={(id, describedBy) => (
                <select
                  id={id}
                  name="tracking"
                  defaultValue={tracking ? "on" : "off"}
                  aria-describedby={describedBy}
                  disabled={!mayWrite}
                >
                  <option value="off">Off</option>
                  <option value="on">On</option>
                </select>
              )}
            />
            <p role="status" className="good">
              {isSaved && "Saved."}
            </p>
          </>
        )}
      </Form>
    </>
  );
}
