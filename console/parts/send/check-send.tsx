import { useIsMutating, useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useEffect, useEffectEvent, useRef, useState } from "react";
import { type DataOf, refusalOf } from "../../api.ts";
import { useRole, useWorkspace } from "../../session.tsx";
import { Act } from "../act.tsx";
import { weakPlaces } from "../draft/blocks/text.ts";
import { contentOf } from "../draft/content.ts";
import { type Draft, IN_TURN, type Mail, useContent, useSettings } from "../draft/drafts.ts";
import { OldBrand } from "../draft/editor.tsx";
import { trackingText } from "../draft/targets.tsx";
import { Field } from "../form.tsx";
import { Facts, Problem, When } from "../page.tsx";
import { type GateReport, type Kind, useCalls } from "./calls.ts";
import { MailFacts } from "./live-send.tsx";
import { useStartText } from "./time.tsx";
import { people, percent } from "./words.ts";

type GateState = GateReport["gates"][number];

const JOINED_LATER = "People who join later do not get it.";
const STOPS = "Emails already sent cannot be taken back; you can pause or cancel the rest.";

/** Shows a place of the editor: the index of each node on the way to it, or none for the subject. */
export type ShowPlace = (path: readonly number[]) => void;

interface CheckProps {
  kind: Kind;
  draft: Draft;
  onShow: ShowPlace;
  /** The check is asked for by a link of the page, until it begins. */
  isAsked: boolean;
  onBegin: () => void;
}

/** Checks a draft against every gate, makes the preview of its send when all are met, and confirms it. */
export function CheckSend({ kind, draft, onShow, isAsked, onBegin }: CheckProps) {
  const { id } = draft;
  const { client, base } = useWorkspace();
  const { calls, params } = useCalls(kind, id);
  const [isTyped, setTyped] = useState(false);
  const [outdated, setOutdated] = useState<string>();
  const maySend = useRole("ADMIN");
  const mail: Mail = { type: kind, id };
  const settings = useSettings(kind, id);
  const { send_zone } = settings;
  const startOf = useStartText();
  const isSaving = useIsMutating({ mutationKey: [base, "save"] }) > 0;
  const check = useMutation({
    onMutate: () => setOutdated(undefined),
    mutationFn: async () => {
      const report = (await client.app.overview.gates.query({ body: { kind, id } })).data;
      if (report.gates.some(({ is_met }) => is_met !== true)) return { report };
      const context = { idempotencyKey: crypto.randomUUID() };
      const { data } = await calls.sends.sendPreview.mutate({ params }, { context });
      // Confirmed under one key, however often it is tried.
      return { report, preview: data, confirmKey: crypto.randomUUID() };
    },
  });
  const { report, preview, confirmKey } = check.data ?? {};
  const begin = useEffectEvent(() => {
    onBegin();
    if (!check.isPending) check.mutate();
  });
  useEffect(() => {
    if (isAsked && !isSaving) begin();
  }, [isAsked, isSaving]);
  const result = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!report) return;
    result.current?.focus();
    result.current?.scrollIntoView({ block: "center" });
  }, [report]);
  const warnings = useWarnings(mail, check.submittedAt, report !== undefined);
  const links = useLinks(mail, report && check.submittedAt);
  const doubtful = doubtfulOf(links);
  const kinds = [...doubtful.map(({ outcome: kind }) => ({ kind })), ...(warnings.data?.warnings ?? [])];
  const unfinished = kinds.filter(isUnfinished).length;
  const seen = kinds.length + Number(draft.is_of_old_brand);
  const begins = `Sending starts within a minute${draft.send_days.length > 0 ? ", or on the next allowed day" : ""}.`;

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
    }
  };

  return (
    <div className="stack">
      <p className="muted">
        The check looks at everything that could stop the send, and counts the recipients. It sends nothing.
        {!maySend && " You can check it; an admin or owner of the team can send it."}
      </p>
      <button
        type="button"
        className={preview ? undefined : "primary"}
        disabled={isSaving}
        // It keeps the focus.
        aria-disabled={check.isPending}
        onClick={() => !check.isPending && check.mutate()}
      >
        Check the send
      </button>
      <div role="status" ref={result} tabIndex={-1}>
        {(check.isPending || warnings.isLoading) && "Checking…"}
        {preview && !warnings.isLoading && seen === 0 && <strong className="good">Ready to send.</strong>}
        {preview && unfinished > 0 && (
          <strong className="wrong">
            {unfinished === 1 ? "1 thing" : `${unfinished} things`} to fix before sending.
          </strong>
        )}
        {preview && unfinished === 0 && seen > 0 && (
          <strong className="warn">Ready, with {seen === 1 ? "1 thing" : `${seen} things`} to look at.</strong>
        )}
        {report && !preview && <strong className="wrong">Not ready to send yet.</strong>}
      </div>
      {outdated && (
        <p className="problem" role="alert">
          {outdated}
        </p>
      )}
      <Problem error={check.error} />
      {report && draft.is_of_old_brand && <NewBrand kind={kind} draft={draft} />}
      {report && <GateList mail={mail} report={report} />}
      {report && <Warnings mail={mail} at={check.submittedAt} draft={draft} onShow={onShow} links={doubtful} />}
      {report && <Links of={links} />}
      {report && <Numbers mail={mail} report={report} preview={preview} />}
      {preview && (
        <Act
          title={unfinished > 0 ? "Send anyway" : "Confirm the send"}
          submit={preview.send_at ? "Schedule the send" : "Send now"}
          kind={unfinished > 0 ? undefined : "primary"}
          note={`${people(preview.recipients.eligible)} will get it. ${preview.send_at ? `Start: ${startOf({ ...preview, send_zone })}. ${JOINED_LATER}` : begins} ${STOPS}`}
          isDisabled={!isTyped}
          onOpen={() => setTyped(false)}
          act={confirm}
        >
          <MailFacts kind={kind} draft={draft} facts={[["Opens and clicks", trackingText(settings)]]} />
          <Warnings mail={mail} at={check.submittedAt} links={doubtful} />
          <TypedNumber count={preview.recipients.eligible} label="Number of recipients" onTyped={setTyped} />
        </Act>
      )}
    </div>
  );
}

interface TypedProps {
  count: number;
  label: string;
  /** @param isIt the number that was asked for */
  onTyped: (isIt: boolean) => void;
}

/** Asks for the number of people who will be emailed, before they are. */
export const TypedNumber = ({ count, label, onTyped }: TypedProps) => (
  <Field
    label={label}
    name="recipients"
    hint={`Type ${count} to confirm.`}
    inputMode="numeric"
    autoComplete="off"
    onChange={(typed) => onTyped(typed.replace(/\D/g, "") === String(count))}
  />
);

/** Saves the blocks again, after which there is another check. */
function NewBrand({ kind, draft }: { kind: Kind; draft: Draft }) {
  const { fields, write } = useContent(kind, draft.id);
  const { mutate, isPending, error } = useMutation({
    ...IN_TURN,
    mutationFn: () => write({ blocks: draft.blocks }, contentOf(draft, fields), { context: { began: draft } }),
  });
  if (!useRole("EDITOR")) return null;
  return (
    <>
      <OldBrand isDisabled={isPending} onApply={mutate} />
      <Problem error={error} />
    </>
  );
}

function useWarnings(mail: Mail, at: number | string, enabled = true) {
  const { client, base } = useWorkspace();
  return useQuery({
    queryKey: [base, "warnings", mail, at],
    queryFn: async () => (await client.app.content.check.query({ query: mail })).data,
    retry: false,
    enabled,
  });
}

/** With these a mail is hardly finished. */
const UNFINISHED = /^(placeholder|empty_link|relative_link|empty_image|broken)$/;
const isUnfinished = ({ kind }: { kind: string }) => UNFINISHED.test(kind);

/** Shows the places of a finding one after the other, again from the first. */
function ShowIt({ kind, message, draft, onShow }: { kind: string; message: string } & Partial<Shows>) {
  const turn = useRef(0);
  const paths = draft ? weakPlaces(kind, draft) : [];
  if (paths.length === 0) return null;
  const show = () => onShow?.([...(paths[turn.current++ % paths.length] ?? [])]);
  return (
    <button type="button" className="plain" aria-label={`Show it: ${message}`} onClick={show}>
      Show it
    </button>
  );
}

/** With the editor of the draft on the page. */
interface Shows {
  draft: Draft;
  onShow: ShowPlace;
}

interface WarningsProps extends Partial<Shows> {
  mail: Mail;
  at: number | string;
  /** Of all that is found; without it, what has to be fixed stands apart. */
  title?: string;
  /** Those that do not work, or could not be asked. */
  links?: ReturnType<typeof doubtfulOf>;
  /** One of several that start together, by its place: also for what it is refused, and its links. The first says what holds for all. */
  place?: number;
  /** The act that mends conditions of hits without tracking, for who may. */
  tracking?: ReactNode;
  /** With a `place`: it is checked, and the next one may be. */
  onChecked?: () => void;
}

/** Weaknesses of the mail that keep it from no send. */
export function Warnings({ mail, at, title, links = [], place, tracking, onChecked, ...shows }: WarningsProps) {
  const { base } = useWorkspace();
  const { data, error, isPending } = useWarnings(mail, at);
  const isAlone = place === undefined;
  const ownLinks = useLinks(mail, isAlone ? undefined : at);
  const found: { kind: string; message: string; url?: string }[] = [
    ...(isAlone
      ? []
      : (data?.problems ?? []).map(({ field, message }) => ({
          kind: "broken",
          message: `In the ${field}, ${message}.`,
        }))),
    ...(data?.warnings ?? []).filter(({ kind }) => !place || kind !== "no_postal_address"),
    ...(isAlone ? links : doubtfulOf(ownLinks)).map(({ url, outcome, reason }) => ({
      kind: outcome,
      url,
      message: `${OUTCOMES[outcome]}${url} ${reason}`,
    })),
  ];
  const isChecking = !isAlone && (isPending || ownLinks.isPending);
  const checked = useEffectEvent(() => onChecked?.());
  useEffect(() => {
    if (!isChecking) checked();
  }, [isChecking]);
  if (found.length === 0 && !isChecking) return <Problem error={error ?? ownLinks.error} />;
  const { fix = [], suggest = [] } = Object.groupBy(found, (one) => (isUnfinished(one) ? "fix" : "suggest"));
  const parts = title === undefined ? { "Fix before sending": fix, Suggestions: suggest } : { [title]: found };
  return Object.entries(parts).map(
    ([name, some]) =>
      (some.length > 0 || isChecking) && (
        <section key={name} className="stack">
          <h3>{name}</h3>
          {isChecking && <p role="status">Checking…</p>}
          <ul aria-label={name}>
            {some.map(({ kind, message, url }) => (
              <li key={message} className={isUnfinished({ kind }) ? "wrong" : undefined}>
                {message} <ShowIt kind={url ?? kind} {...{ message, ...shows }} />
                {kind === "no_postal_address" && <Link to={`${base}/brand`}>Set it under Brand</Link>}
                {kind === "condition_without_tracking" && tracking}
              </li>
            ))}
          </ul>
        </section>
      ),
  );
}

const OUTCOMES = { fine: "", broken: "Broken: ", unchecked: "Could not be checked: " };

/** The answers of the mail's links. @param at of the check; none asks none */
function useLinks(mail: Mail, at: number | string | undefined) {
  const { client, base } = useWorkspace();
  return useQuery({
    queryKey: [base, "links", mail, at],
    enabled: at !== undefined,
    queryFn: async ({ signal }) => (await client.app.content.links.query({ query: mail }, { signal })).data,
    retry: false,
    // The servers of others are asked once, and by the button.
    staleTime: "static",
  });
}

const doubtfulOf = ({ data }: ReturnType<typeof useLinks>) =>
  data?.links.filter(({ outcome }) => outcome !== "fine") ?? [];

/** How many of the mail's links work; the others are named among what was found. */
function Links({ of }: { of: ReturnType<typeof useLinks> }) {
  const { data, error, isFetching, refetch } = of;
  const asked = data?.links.length ?? 0;
  if (data && asked === 0) return null;
  return (
    <section className="stack">
      <div className="head">
        <h3>Links</h3>
        <button type="button" disabled={isFetching} onClick={() => void refetch()}>
          Check links
        </button>
      </div>
      <p role="status">
        {isFetching
          ? "Checking links…"
          : data &&
            `${asked - doubtfulOf(of).length} of ${asked} links work.${data.left > 0 ? ` ${data.left} more were not checked.` : ""}`}
      </p>
      <Problem error={error} />
    </section>
  );
}

type Preview = DataOf<ReturnType<typeof useCalls>["calls"]["sends"]["sendPreview"]["mutate"]>;

/** Refusals of a confirm after which only a new check helps. */
const OUTDATED: Readonly<Record<string, string>> = {
  send_plan_changed: "The recipients, the text, the sender or the time has changed since: check again.",
  confirmation_stale: "The check is too old: check again.",
};

/** Complaints over delivered mail at which the service sends nothing. */
const COMPLAINT_LIMIT = 0.002;

function Numbers({ mail, report, preview }: { mail: Mail; report: GateReport; preview: Preview | undefined }) {
  const { recipients, send_cap: cap } = report;
  const { segment_name: segment } = useSettings(mail.type, mail.id);
  const left = mail.type === "newsletter" ? "Excluded: unconfirmed or unsubscribed" : "Excluded: no valid address";
  const numbers: (readonly [name: string, number: number | undefined])[] = [
    ["Recipients", preview?.recipients.eligible ?? recipients?.eligible],
    ["Recipients with tracking", preview?.recipients.tracked ?? recipients?.tracked],
    ["Excluded: suppressed", recipients?.suppressed],
    [left, recipients?.ineligible],
    ...(recipients?.outside ? [[`Excluded: not in segment ${segment}`, recipients.outside] as const] : []),
  ];
  const needed = recipients && `${recipients.eligible.toLocaleString()} needed, `;
  const figures = numbers.map(([name, number]) => [name, number?.toLocaleString()] as const);
  return (
    <>
      <Facts className="figures" of={figures} />
      <p className="muted">
        Credits: {needed}
        {report.credits_available.toLocaleString()} available.{" "}
        {cap &&
          `You have started sends to ${people(cap.used_today)} today, and may to ${cap.limit.toLocaleString()} a day. `}
        Complaints in 30 days: {percent(report.complaint_rate, 2)} (limit {percent(COMPLAINT_LIMIT, 2)}).
      </p>
      {preview && (
        <p>
          It is sent from {"from_address" in preview ? preview.from_address : preview.from_addresses.join(", ")}. The
          check is valid until <When at={preview.confirmation.expires_at} />.
        </p>
      )}
    </>
  );
}

/** Of each gate: how it is when it is met; what to do when it is not, else the service's own words; and the page for it. */
function wordsOf(
  kind: Kind,
  isNarrowed: boolean,
  { recipients, send_cap: cap, credits_available: credits }: GateReport,
) {
  const isNewsletter = kind === "newsletter";
  const words: Record<GateState["gate"], readonly [name: string, remedy: string | null, page?: string]> = {
    permission: ["You may send", null, "Keys"],
    subject: ["It has a subject", "Write a subject."],
    body: ["It has text", "Write the text of the email."],
    sender: ["It has a sender", isNewsletter ? "Enter a from address." : "Choose the sending accounts."],
    content: ["Every merge tag can be filled", "Correct the subject or the text."],
    targets: isNewsletter
      ? ["It has a list", isNarrowed ? null : "Choose at least one list."]
      : ["It has a segment", "Choose a segment that works."],
    account: ["Its sending account works", "Connect or repair the account of the sender's address.", "Accounts"],
    time: ["Its start is in the future", "Set a later time, or remove it to send at once."],
    recipients: isNewsletter
      ? isNarrowed
        ? ["It has recipients", "No confirmed subscriber of its lists who may be emailed is in its segment."]
        : ["It has recipients", "Its lists have no confirmed subscribers who may be emailed: import people.", "Imports"]
      : ["It has recipients", "Its segment has no valid addresses that may be emailed.", "Segments"],
    domains: ["You may send from its domain", null, "Accounts"],
    cap: [
      "It is within your daily limit",
      `You may send ${(cap?.remaining ?? 0).toLocaleString()} more emails today: send it after midnight UTC, or to fewer people. An admin can raise the limit of your key “Console” under Keys.`,
      "Keys",
    ],
    complaints: [
      "Few complaints",
      "Too many people marked the team's emails as spam: only email people who asked for it.",
    ],
    credits: [
      "There are enough credits",
      `It needs ${(recipients?.eligible ?? 0).toLocaleString()} credits; ${credits.toLocaleString()} are left.`,
      "Usage",
    ],
  };
  return words;
}

const LOOKS = {
  true: ["good", "✓", "Met: "],
  false: ["wrong", "✗", "Not met: "],
  null: ["muted", "○", "Not checked yet: "],
} as const;

interface GateListProps {
  mail: Mail;
  report: GateReport;
}

function GateList({ mail: { type, id }, report }: GateListProps) {
  const { base, environment } = useWorkspace();
  const isAdmin = useRole("ADMIN");
  const words = wordsOf(type, useSettings(type, id).segment_id !== null, report);
  const met = report.gates.filter(({ is_met }) => is_met).length;
  const gates = report.gates.toSorted((a, b) => Number(a.is_met) - Number(b.is_met));
  return (
    <details open={met < report.gates.length}>
      <summary>
        What every send requires: {met} of {report.gates.length} met
      </summary>
      <ul className="steps" aria-label="Checks">
        {gates.map(({ gate, is_met, detail, message }) => {
          const [name, remedy, page] = words[gate];
          const [look, mark, said] = LOOKS[String(is_met) as keyof typeof LOOKS];
          return (
            <li key={gate}>
              <span className={look}>
                <span aria-hidden="true">{mark}</span> <span className="hidden">{said}</span>
                {name}
              </span>
              {is_met === false && (
                <p>
                  {gate === "permission" && environment === "test" ? "Choose Live at the top." : (remedy ?? message)}{" "}
                  {detail}{" "}
                  {page && (page !== "Keys" || isAdmin) && <Link to={`${base}/${page.toLowerCase()}`}>{page}</Link>}
                </p>
              )}
            </li>
          );
        })}
      </ul>
    </details>
  );
}
