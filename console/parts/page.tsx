import { useQueryErrorResetBoundary } from "@tanstack/react-query";
import { CatchBoundary, type ErrorComponentProps, Link } from "@tanstack/react-router";
import { type ReactNode, Suspense, useEffect, useState } from "react";
import { capitalized, fieldOf, Kept, refusalOf } from "../api.ts";

/** The title of a page, and its actions beside it. */
export function PageHead({ title, children }: { title: string; children?: ReactNode }) {
  useEffect(() => {
    document.title = `${title} · Mailkeel`;
  }, [title]);
  return (
    <div className="head">
      <h1>
        <bdi>{title}</bdi>
      </h1>
      <div className="actions">{children}</div>
    </div>
  );
}

/** A drawing of lines, without a meaning of its own. */
export const Icon = ({ path, className }: { path: string; className?: string }) => (
  <svg viewBox="0 0 24 24" aria-hidden="true" className={className}>
    <path d={path} />
  </svg>
);

/** The product's mark, a mail with a keel, and its name. */
export const Brand = () => (
  <span className="brand">
    <Icon className="mark" path="M5 7h14l-2.5 9h-9zm0 0 7 5 7-5m-7 9v3" />
    <span>Mailkeel</span>
  </span>
);

/** Keeps the room of what is being read: a title with a table, a table, or a card. */
export const Loading = ({ like = "card" }: { like?: "page" | "table" | "card" | undefined }) => (
  <div role="status">
    <span className="hidden">Loading…</span>
    {like === "page" && <div className="skeleton page" />}
    <div className={`skeleton ${like === "card" ? "" : "table"}`} />
  </div>
);

/** In the place of a page, or a part of one, that could not be read. */
export function Failed({ error, reset }: ErrorComponentProps) {
  const failed = useQueryErrorResetBoundary();
  useEffect(() => failed.reset(), [failed]);
  return (
    <div className="stack">
      <Problem error={error} />
      <button type="button" onClick={reset}>
        Try again
      </button>
    </div>
  );
}

/** A part of a page that waits for its own reads, and fails by itself. */
export const Part = ({ children }: { children: ReactNode }) => (
  <CatchBoundary getResetKey={() => 0} errorComponent={Failed}>
    <Suspense fallback={<Loading />}>{children}</Suspense>
  </CatchBoundary>
);

/** The effect of an act; nothing without a text. */
export const Notice = ({ children }: { children?: ReactNode }) =>
  children && (
    <p className="notice" role="status">
      {children}
    </p>
  );

/** A refusal, with the request's id to copy. @param form whose fields show their own refusals */
export function Problem({ error, form }: { error: unknown; form?: HTMLFormElement | null }) {
  if (!error || error instanceof Kept) return null;
  const { message, param, problems, requestId } = refusalOf(error);
  const names = Object.keys(problems ?? { [param ?? ""]: "" });
  if (form && names.every((name) => name && form.elements.namedItem(fieldOf(name)))) return null;
  return (
    <div className="problem" role="alert">
      <p>{message}</p>
      {requestId && <Copy text={requestId} name="the id of the request" />}
    </div>
  );
}

/** A text with a button that copies it. @param name of the text, for screen readers @param isLink to a page of the web */
export function Copy({ text, name, isLink }: { text: string; name: string; isLink?: boolean }) {
  const [isCopied, setCopied] = useState(false);
  const link = isLink ? { href: text, target: "_blank", rel: "noreferrer" } : undefined;
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return (
    <span className="copy">
      <code>{link ? <a {...link}>{text}</a> : text}</code>
      {/* Browsers have it for https and localhost alone. */}
      {navigator.clipboard && (
        <button type="button" aria-label={`Copy ${name}`} onClick={copy}>
          {isCopied ? "Copied" : "Copy"}
        </button>
      )}
    </span>
  );
}

export interface FactsProps {
  /** Those that are missing (`null`, `undefined`, `false`) are left out. */
  of: readonly (readonly [name: string, fact: ReactNode])[];
  /** Numbers stand in columns. */
  className?: "facts" | "figures";
}

export const Facts = ({ of, className = "facts" }: FactsProps) => (
  <dl className={className}>
    {of
      .filter(([, fact]) => fact !== null && fact !== undefined && fact !== false)
      .map(([name, fact]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{fact}</dd>
        </div>
      ))}
  </dl>
);

/** The words of a state by its code, and their colour. */
export type States<Name extends string = string> = Readonly<
  Record<Name, readonly [text: string, colour: "good" | "warn" | "wrong" | "muted" | "accent"]>
>;

export function State({ of, is }: { of: States; is: string }) {
  const [text, colour] = of[is] ?? [is, "muted"];
  return <span className={`state ${colour}`}>{capitalized(text)}</span>;
}

/** Choices of a filter by states. */
export const choicesOf = <Name extends string>(states: Readonly<Record<Name, readonly [text: string, ...string[]]>>) =>
  Object.fromEntries(Object.entries<readonly string[]>(states).map(([name, [text]]) => [name, text])) as Record<
    Name,
    string
  >;

export const DAY_MS = 86_400_000;
const UNITS = [
  ["day", DAY_MS, 2],
  ["hour", 3_600_000, 2],
  ["minute", 60_000, 0],
] as const;
/** "in 3 days", "10 hours ago". */
export function relativeText(at: number): string {
  const aheadMs = at - Date.now();
  const [unit, ms] = UNITS.find(([, ms, least]) => Math.abs(aheadMs) >= least * ms) ?? UNITS[2];
  return new Intl.RelativeTimeFormat("en", { numeric: "auto" }).format(Math.round(aheadMs / ms), unit);
}

interface WhenProps {
  at: string | null;
  /** Without the time of day. */
  isShort?: boolean;
  /** By its distance while that is a month at most; the rest is seen below the pointer. */
  isAgo?: boolean;
}

/** "30 Nov 2026, 02:36", or the date alone, as the reader's browser writes it, in their own time zone unless one is given. */
export const instantText = (at: string, parts: Pick<Intl.DateTimeFormatOptions, "timeStyle" | "timeZone"> = {}) =>
  new Date(at).toLocaleString(undefined, { dateStyle: "medium", ...parts });

/** An instant in the reader's own time zone. */
export function When({ at, isShort = false, isAgo = false }: WhenProps) {
  if (!at) return null;
  const text = (timeStyle?: "short") => instantText(at, { timeStyle });
  const isNear = Math.abs(Date.parse(at) - Date.now()) < 31 * DAY_MS;
  return (
    <time dateTime={at} title={isAgo ? text("short") : undefined}>
      {isAgo && isNear ? relativeText(Date.parse(at)) : text(isShort || isAgo ? undefined : "short")}
    </time>
  );
}

/** "12:03", in the reader's own time zone. */
export const timeText = (at: Date) => at.toLocaleTimeString(undefined, { timeStyle: "short" });

export function NotFound() {
  return (
    <main className="alone">
      <h1>Page not found</h1>
      <p>
        <Link to="/">Go to the start page</Link>
      </p>
    </main>
  );
}
