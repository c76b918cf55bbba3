import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { useWorkspace } from "../../session.tsx";
import { Part } from "../page.tsx";
import { isOpen, useProgress } from "./calls.ts";
import { CheckSend } from "./check-send.tsx";
import { Commands, LiveSend } from "./live-send.tsx";
import { Report } from "./report.tsx";

interface SendPanelProps {
  kind: "newsletter" | "campaign";
  id: string;
  name: string;
  status: string;
}

/** Sends a draft, and shows how its send goes. */
export function SendPanel(props: SendPanelProps) {
  return (
    <section className="stack" aria-label="Send">
      <h2>Send</h2>
      {props.status === "DRAFT" ? (
        <CheckSend {...props} />
      ) : (
        <Part>
          <SendOf {...props} />
        </Part>
      )}
    </section>
  );
}

function SendOf({ kind, id }: SendPanelProps) {
  const { base } = useWorkspace();
  const queries = useQueryClient();
  const [send] = useProgress(id);
  const status = send?.status;
  // The page around it shows the status too.
  useEffect(() => {
    if (status !== undefined) void queries.invalidateQueries({ queryKey: [base, `${kind}s`] });
  }, [status, queries, base, kind]);
  if (!send) return <p className="muted">Its send is kept no longer.</p>;
  if (!isOpen(send)) return <Report kind={kind} send={send} />;
  return (
    <>
      <LiveSend send={send} />
      <Commands kind={kind} send={send} />
    </>
  );
}
