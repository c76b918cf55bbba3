import { useState } from "react";
import { Form, Inputs, textsOf } from "../parts/form.tsx";
import { PageHead } from "../parts/page.tsx";
import { useData, useRole, useWorkspace } from "../session.tsx";

const ZONE_HINT = "Allowed days are counted in this zone.";
const TRACKING_HINT = "Applies to sends confirmed from now on. A newsletter or campaign can override it.";
const TRACKING = {
  OFF: "Off: opens and clicks are not counted",
  ALL: "Count opens and clicks of everyone who has not said no",
  AGREED: "Count opens and clicks only of people who agreed",
} as const;
type Tracking = keyof typeof TRACKING;

/** Name, time zone and tracking of the team. */
export function Page() {
  const { client, team } = useWorkspace();
  const disabled = !useRole("ADMIN");
  const { settings, changeSettings } = client.app.team;
  const read = () => settings.query({});
  const record = useData(["settings"], read);
  const [turn, setTurn] = useState(0);
  const zones = [record.time_zone, "UTC", ...Intl.supportedValuesOf("timeZone")];
  return (
    <>
      <PageHead title="Settings" />
      {disabled && <p className="notice">An admin or an owner can change these settings.</p>}
      <Form
        key={turn}
        submit="Save"
        isDisabled={disabled}
        edits={{ id: team, record, read }}
        onKept={() => setTurn(turn + 1)}
        onSubmit={async ({ name, time_zone, tracking }, _, save) => {
          const body = { name, time_zone, tracking: tracking as Tracking | undefined };
          await save(body, (options) => changeSettings.mutate({ body }, options));
        }}
      >
        <h2>Team</h2>
        <Inputs
          inputs={[
            ["name", "Team name", { required: true, maxLength: 200, disabled }],
            ["time_zone", "Time zone", { hint: ZONE_HINT, choices: textsOf(zones), disabled }],
          ]}
          values={record}
        />
        <h2>Opens and clicks</h2>
        <Inputs
          inputs={[["tracking", "Tracking", { hint: TRACKING_HINT, choices: TRACKING, disabled }]]}
          values={record}
        />
      </Form>
    </>
  );
}
