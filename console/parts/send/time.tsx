import type { CallContext } from "../../api.ts";
import { useRole, useWorkspace } from "../../session.tsx";
import { Act } from "../act.tsx";
import { useSettings } from "../draft/drafts.ts";
import { textsOf } from "../form.tsx";
import { DAY_MS, instantText, relativeText } from "../page.tsx";
import type { Kind } from "./calls.ts";

/** When a send starts, as the service shows it. */
interface Timed {
  send_at: string | null;
  /** Null: in the team's zone. */
  send_zone: string | null;
}

const cityOf = (zone: string) => zone.split("/").at(-1)?.replaceAll("_", " ");

/** "Tomorrow, Sunday 29 November 2026 at 09:00, Berlin (in 10 hours)". */
export function startText(at: string, zone: string): string {
  const text = (options: Intl.DateTimeFormatOptions, instant = Date.parse(at)) =>
    new Intl.DateTimeFormat("en-GB", { timeZone: zone, ...options }).format(instant).replace(",", "");
  const dateOf = (instant: number) => text({ dateStyle: "short" }, instant);
  const near = ["Today, ", "Tomorrow, "].find((_, n) => dateOf(Date.parse(at)) === dateOf(Date.now() + n * DAY_MS));
  const day = text({ weekday: "long", day: "numeric", month: "long", year: "numeric" });
  return `${near ?? ""}${day} at ${text({ timeStyle: "short" })}, ${cityOf(zone)} (${relativeText(Date.parse(at))})`;
}

/** The text of a start, in its zone or the team's. */
export function useStartText(): (of: Timed) => string {
  const { timeZone } = useWorkspace().current;
  return ({ send_at, send_zone }) =>
    send_at ? startText(send_at, send_zone ?? timeZone) : "as soon as it is confirmed";
}

/** "30 Nov 2026, 10:30, Berlin": where a zone was chosen, or in the reader's own time. */
export const shortStart = ({ send_at, send_zone }: Timed): string | null =>
  send_at === null
    ? null
    : [
        instantText(send_at, { timeStyle: "short", timeZone: send_zone ?? undefined }),
        ...(send_zone ? [cityOf(send_zone)] : []),
      ].join(", ");

/** Date and time as inputs have them. */
const localOf = (instant: Date, timeZone: string) =>
  new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "short" }).format(instant).split(" ");

interface TimeActProps {
  kind: Kind;
  id: string;
  title: string;
  timed: Timed & { updated_at: string };
  /** Of the button, where its row says the rest. */
  short?: string;
  /** The time is changed alone, of a send that waits. */
  isConfirmed?: boolean;
}

/** Sets the time of a draft, or moves that of its send. */
function TimeAct({ kind, id, title, short, timed, isConfirmed = false }: TimeActProps) {
  const { client, current } = useWorkspace();
  const { change, reschedule, settings } = client.app.content;
  const one = { type: kind, id };
  const zone = timed.send_zone ?? current.timeZone;
  const inTime = ({ send_at, send_zone }: Timed) => {
    const shown = send_zone ?? current.timeZone;
    return send_at ? [...localOf(new Date(send_at), shown), shown].join(" ") : "none";
  };
  const versionOf = (of: TimeActProps["timed"]) => ({ updated_at: of.updated_at, start: inTime(of) });
  const [tomorrow] = localOf(new Date(Date.now() + DAY_MS), zone);
  const [date, time] = timed.send_at ? localOf(new Date(timed.send_at), zone) : [tomorrow, "09:00"];
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const zones = [current.timeZone, own, "UTC", ...Intl.supportedValuesOf("timeZone")];
  return (
    <Act
      title={title}
      short={short ?? title}
      submit={isConfirmed ? "Reschedule" : "Save time"}
      inputs={[
        ["date", "Date", { type: "date", required: true }],
        ["time", "Time", { type: "time", required: true }],
        ["zone", "Time zone", { choices: textsOf(zones) }],
      ]}
      values={{ date, time, zone }}
      edits={{
        id,
        record: versionOf(timed),
        read: async () => ({ data: versionOf((await settings.query({ query: one })).data) }),
      }}
      act={async ({ date = "", time = "", zone = "" }, _, save) => {
        const body = { ...one, send_time: { date, time, zone } };
        const write = (options: { context: CallContext }): Promise<unknown> =>
          isConfirmed ? reschedule.mutate({ body }, options) : change.mutate({ body }, options);
        await save({ start: `${date} ${time} ${zone}` }, write);
      }}
    />
  );
}

/** When the send of a draft starts; an editor changes it. */
export function SendTime({ kind, id }: Pick<TimeActProps, "kind" | "id">) {
  const { change } = useWorkspace().client.app.content;
  const timed = useSettings(kind, id);
  const textOf = useStartText();
  const mayWrite = useRole("EDITOR");
  return (
    <>
      <p>
        Start: <strong>{textOf(timed)}</strong>
      </p>
      {mayWrite && (
        <div className="actions">
          <TimeAct kind={kind} id={id} title={timed.send_at ? "Change the time" : "Set a time"} timed={timed} />
          {timed.send_at && (
            <Act
              title="Remove the time"
              note="It then starts as soon as it is confirmed."
              act={(_, context) => change.mutate({ body: { type: kind, id, send_time: null } }, { context })}
            />
          )}
        </div>
      )}
    </>
  );
}

/** Moves the start of a send that has not begun. */
export function MoveStart({ name, ...of }: Pick<TimeActProps, "kind" | "id" | "timed"> & { name?: string }) {
  const title = name === undefined ? "Reschedule" : `Reschedule ${name}`;
  return useRole("EDITOR") && <TimeAct title={title} short="Reschedule" isConfirmed {...of} />;
}
