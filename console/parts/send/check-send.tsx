import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { refusalOf } from "../../api.ts";
import { useRole, useWorkspace } from "../../session.tsx";
import { Dialog } from "../dialog.tsx";
import { type Figure, Figures } from "../figures.tsx";
import { Field, Form } from "../form.tsx";
import { Problem } from "../page.tsx";
import { callsOf, type GateReport, type Kind } from "./calls.ts";
import { clock, people, percent } from "./words.ts";

type GateState = GateReport["gates"][number];

interface CheckProps {
  kind: Kind;
  id: string;
  name: string;
  onConfirmed: () => void;
}

/** Checks a draft against every gate, makes the preview of its send when all are met, and confirms it. */
export function CheckSend({ kind, id, name, onConfirmed }: CheckProps) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  const { calls, params } = callsOf(client, kind, id);
  const [isConfirming, setConfirming] = useState(false);
  const [outdated, setOutdated] = useState<string>();
  const maySend = useRole("ADMIN");
  const check = useMutation({
    onMutate: () => setOutdated(undefined),
    mutationFn: async () => {
      const report = (await client.app.overview.gates.query({ body: { kind, id } })).data;
      if (report.gates.some(({ is_met }) => is_met !== true)) return { report };
      const context = { idempotencyKey: crypto.randomUUID() };
      const { data } = await calls.sends.sendPreview.mutate({ params }, { context });
      // Confirmed under one key, however often it is tried.
      return { report, preview: data as unknown as Preview, confirmKey: crypto.randomUUID() };
    },
  });
  const { report, preview, confirmKey } = check.data ?? {};

  const confirm = async () => {
    if (!preview || confirmKey === undefined) return;
    try {
      await calls.sends.send.mutate(
        { params, body: { confirmation_token: preview.confirmation.token } },
        { context: { idempotencyKey: confirmKey } },
      );
    } catch (error) {
      const text = OUTDATED[refusalOf(error).code ?? ""];
      if (text === undefined) throw error;
      check.reset();
      setOutdated(text);
      setConfirming(false);
      return;
    }
    setConfirming(false);
    onConfirmed();
    await queries.invalidateQueries({ queryKey: [base] });
  };

  return (
    <div className="stack">
      <p className="muted">
        The check looks at everything that can stop the send, and counts who would get it. It sends nothing.
        {!maySend && " You can check it; an ADMIN or the OWNER of the team sends."}
      </p>
      <div className="actions">
        <button
          type="button"
          className={preview ? undefined : "primary"}
          disabled={check.isPending}
          onClick={() => check.mutate()}
        >
          Check the send
        </button>
        {preview && (
          <button type="button" className="primary" onClick={() => setConfirming(true)}>
            Confirm the send
          </button>
        )}
      </div>
      <div role="status">
        {check.isPending && "Checking…"}
        {report && preview && <strong className="good">It can be sent.</strong>}
        {report && !preview && <strong className="wrong">It cannot be sent yet.</strong>}
      </div>
      {outdated && (
        <p className="problem" role="alert">
          {outdated}
        </p>
      )}
      <Problem error={check.error} />
      {report && <Numbers kind={kind} report={report} preview={preview} />}
      {report && <GateList kind={kind} report={report} />}
      {preview && isConfirming && (
        <Confirm
          name={name}
          recipients={preview.recipients.eligible}
          onConfirm={confirm}
          onClose={() => setConfirming(false)}
        />
      )}
    </div>
  );
}

/** The fields of both kinds of previews that are shown. */
interface Preview {
  recipients: { eligible: number };
  from_address?: string;
  from_addresses?: string[];
  confirmation: { token: string; expires_at: string };
}

/** Refusals of a confirm after which only a new check helps. */
const OUTDATED: Readonly<Record<string, string>> = {
  send_plan_changed: "The recipients, the text or the sender changed meanwhile: check again.",
  confirmation_stale: "The check is too old: check again.",
};

function Confirm(props: { name: string; recipients: number; onConfirm: () => Promise<void>; onClose: () => void }) {
  const { name, recipients, onConfirm, onClose } = props;
  const [typed, setTyped] = useState("");
  return (
    <Dialog title={`Send “${name}”`} onClose={onClose}>
      <p>
        {people(recipients)} get this mail. It starts within a minute, or on the next day on which it may be sent. What
        has left cannot be taken back; you can pause or cancel the rest.
      </p>
      <Form fields={[]} submit="Send now" onSubmit={onConfirm} isDisabled={typed.trim() !== String(recipients)}>
        {() => (
          <Field
            label="Number of recipients"
            name="recipients"
            hint={`Type ${recipients} to confirm.`}
            inputMode="numeric"
            autoComplete="off"
            value={typed}
            onChange={({ target }) => setTyped(target.value)}
          />
        )}
      </Form>
    </Dialog>
  );
}

/** Complaints over delivered mail at which the service sends nothing. */
const COMPLAINT_LIMIT = 0.002;

function Numbers({ kind, report, preview }: { kind: Kind; report: GateReport; preview: Preview | undefined }) {
  const { recipients, send_cap: cap } = report;
  const from = preview?.from_addresses ?? (preview?.from_address ? [preview.from_address] : []);
  const left = kind === "newsletter" ? "Left out: not confirmed" : "Left out: no valid address";
  const numbers: Record<string, number> = recipients
    ? {
        Recipients: preview?.recipients.eligible ?? recipients.eligible,
        "Left out: do-not-mail list": recipients.suppressed,
        [left]: recipients.ineligible,
        "Credits needed": recipients.eligible,
      }
    : {};
  const figures: Figure[] = [
    ...Object.entries(numbers).map(([name, number]): Figure => [name, number.toLocaleString()]),
    ["Credits available", report.credits_available.toLocaleString()],
    ["Your mails today", cap ? `${cap.used_today.toLocaleString()} of ${cap.limit.toLocaleString()}` : "not known"],
    ["Complaints, 30 days", `${percent(report.complaint_rate, 2)} (limit ${percent(COMPLAINT_LIMIT, 2)})`],
  ];
  return (
    <>
      <Figures figures={figures} />
      {preview && (
        <p>
          It is sent from {from.join(", ")}. The check is valid until {clock(preview.confirmation.expires_at)}.
        </p>
      )}
    </>
  );
}

interface GateWords {
  /** What is so when it is met. */
  name: string;
  /** What to do when it is not; the reason of the service unless given. */
  remedy?: (report: GateReport, state: GateState) => string;
  /** Where to do it: a page, and its name. */
  page?: readonly [path: string, name: string];
}

const wordsOf = (kind: Kind, isTest: boolean): Record<GateState["gate"], GateWords> => ({
  permission: {
    name: "You may send",
    ...(isTest && { remedy: () => "The test environment mails nothing: choose Live at the top." }),
    page: ["keys", "Keys"],
  },
  subject: { name: "It has a subject", remedy: () => "Write a subject." },
  body: { name: "It has a text", remedy: () => "Write the text of the mail." },
  sender: {
    name: "It has a sender",
    remedy: () =>
      kind === "newsletter" ? "Enter the address that it is sent from." : "Choose the accounts that send it.",
  },
  content: {
    name: "Every merge tag can be filled",
    remedy: (_report, { detail }) => `Correct the subject or the text. ${detail ?? ""}`,
  },
  targets: {
    name: kind === "newsletter" ? "It has a list" : "It has a segment",
    remedy: (_report, { code, message }) =>
      code === "filter_unsupported"
        ? `The segment cannot be used: ${message}`
        : kind === "newsletter"
          ? "Choose at least one list."
          : "Choose a segment.",
  },
  account: {
    name: "Its sending account works",
    remedy: (_report, { code }) =>
      code === "campaign_not_ready"
        ? "No account may send from this address: connect one, or enter the address of another."
        : "The sending account is gone or fails: repair or connect it.",
    page: ["accounts", "Accounts"],
  },
  recipients: {
    name: "It has recipients",
    remedy: () =>
      kind === "newsletter"
        ? "Nobody on the list has confirmed and may be mailed: import people, or choose another list."
        : "Nobody in the segment has a valid address and may be mailed: choose another segment.",
    page: kind === "newsletter" ? ["imports", "Imports"] : ["segments", "Segments"],
  },
  domains: { name: "You may send from its domain", page: ["accounts", "Accounts"] },
  cap: {
    name: "It is within your limit of the day",
    remedy: ({ send_cap: cap }) =>
      `You may send ${(cap?.remaining ?? 0).toLocaleString()} more mails today. The limit starts anew at midnight UTC: send tomorrow, or to fewer people.`,
  },
  complaints: {
    name: "Few people complain",
    remedy: (_report, { detail }) =>
      `Too many people called the team's mails spam: stop mailing those who did not ask for it. ${detail ?? ""}`,
  },
  credits: {
    name: "There are enough credits",
    remedy: ({ recipients, credits_available: available }) =>
      `It needs ${(recipients?.eligible ?? 0).toLocaleString()} credits, and ${available.toLocaleString()} are left: get more, or choose fewer recipients.`,
    page: ["usage", "Usage"],
  },
});

function GateList({ kind, report }: { kind: Kind; report: GateReport }) {
  const { base, environment } = useWorkspace();
  const words = wordsOf(kind, environment === "test");
  return (
    <ul className="gates" aria-label="Checks">
      {report.gates.map((state) => {
        const { name, remedy, page } = words[state.gate];
        const look = state.is_met === null ? "muted" : state.is_met ? "good" : "wrong";
        return (
          <li key={state.gate} className={state.is_met === false ? "unmet" : undefined}>
            <span className={look}>
              <span aria-hidden="true">{state.is_met === null ? "○" : state.is_met ? "✓" : "✗"}</span>
              <span className="hidden">
                {state.is_met === null ? "Not checked yet: " : state.is_met ? "Met: " : "Not met: "}
              </span>{" "}
              {name}
            </span>
            {state.is_met === false && (
              <p>
                {remedy?.(report, state) ?? state.message} {page && <Link to={`${base}/${page[0]}`}>{page[1]}</Link>}
              </p>
            )}
          </li>
        );
      })}
    </ul>
  );
}
