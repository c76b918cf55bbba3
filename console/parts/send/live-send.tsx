import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useRole, useWorkspace } from "../../session.tsx";
import { Figures } from "../figures.tsx";
import { Problem } from "../page.tsx";
import { Remove } from "../remove.tsx";
import { callsOf, type Kind, type Send } from "./calls.ts";
import { clock, pauseText, people } from "./words.ts";

type Counts = Send["recipients"];
type State = Exclude<keyof Counts, "total">;

export const STATES: readonly [state: State, name: string][] = [
  ["sent", "Sent"],
  ["queued", "Waiting"],
  ["sending", "Leaving now"],
  ["deferred", "Refused for now, tried again"],
  ["rejected", "Refused"],
  ["expired", "Refused too often"],
  ["unknown", "Outcome unknown"],
  ["suppressed", "Left out meanwhile"],
  ["cancelled", "Cancelled"],
];

const openOf = ({ queued, sending, deferred }: Counts): number => queued + sending + deferred;

const SAMPLES_MS = 60_000;

/** Recipients settled in a minute, by what this page has seen of the last one; null before it has seen any. */
function useRate({ recipients, status }: Send, updatedAt: number): number | null {
  const settled = recipients.total - openOf(recipients);
  const [samples, setSamples] = useState<{ at: number; settled: number }[]>([]);
  useEffect(() => {
    const isRunning = status === "SENDING";
    setSamples((known) =>
      isRunning ? [...known.filter(({ at }) => at > updatedAt - SAMPLES_MS), { at: updatedAt, settled }] : [],
    );
  }, [updatedAt, settled, status]);
  const first = samples[0];
  if (!first || updatedAt <= first.at || settled <= first.settled) return null;
  return ((settled - first.settled) * 60_000) / (updatedAt - first.at);
}

/** How far a send is. @param updatedAt when that was read */
export function LiveSend({ send, updatedAt }: { send: Send; updatedAt: number }) {
  const { recipients, status } = send;
  const rate = useRate(send, updatedAt);
  const open = openOf(recipients);
  return (
    <div className="stack">
      <p role="status" className="live">
        {status === "SCHEDULED" && <>It starts at {clock(send.send_at)}, on the next day on which it may be sent.</>}
        {status === "PAUSED" && <strong className="warn">Paused. {pauseText(send.status_reason)}</strong>}
        {status === "SENDING" && <>It goes out.</>}
      </p>
      <progress
        value={recipients.total - open}
        max={Math.max(recipients.total, 1)}
        aria-label={`${send.name}: ${recipients.total - open} of ${recipients.total} done`}
      />
      <p className="muted">
        {(recipients.total - open).toLocaleString()} of {people(recipients.total)}
        {rate !== null && (
          <>
            {" "}
            · {Math.round(rate).toLocaleString()} a minute · done at about {clock(updatedAt + (open / rate) * 60_000)}
          </>
        )}
      </p>
      <Outcomes recipients={recipients} />
    </div>
  );
}

export function Outcomes({ recipients }: { recipients: Counts }) {
  const shown = STATES.filter(([state]) => state === "sent" || recipients[state] > 0);
  return <Figures figures={shown.map(([state, name]) => [name, recipients[state].toLocaleString()])} />;
}

/** Pauses, resumes and cancels a send that has not ended. */
export function Commands({ kind, send }: { kind: Kind; send: Send }) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  const { calls, params } = callsOf(client, kind, send.resource_id);
  const changed = () => queries.invalidateQueries({ queryKey: [base] });
  const command = useMutation({
    mutationFn: async (name: "pause" | "resume"): Promise<unknown> =>
      calls.commands[name].mutate({ params }, { context: { idempotencyKey: crypto.randomUUID() } }),
    onSettled: changed,
  });
  const open = openOf(send.recipients);
  if (!useRole("ADMIN")) return <p className="muted">An ADMIN or the OWNER of the team can pause or cancel it.</p>;
  return (
    <>
      <div className="actions">
        {send.status === "PAUSED" ? (
          <button
            type="button"
            className="primary"
            disabled={command.isPending}
            onClick={() => command.mutate("resume")}
          >
            Resume
          </button>
        ) : (
          <button type="button" disabled={command.isPending} onClick={() => command.mutate("pause")}>
            Pause
          </button>
        )}
        <Remove
          title="Cancel the send"
          act={(context) => calls.commands.cancel.mutate({ params }, { context: { ...context } })}
          onDone={changed}
        >
          <p>
            {people(open)} would not get the mail any more, and their credits come back. {people(send.recipients.sent)}{" "}
            got it already. A cancelled send cannot be continued.
          </p>
        </Remove>
      </div>
      <Problem error={command.error} />
    </>
  );
}
