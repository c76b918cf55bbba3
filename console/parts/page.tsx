import { Link } from "@tanstack/react-router";
import { type ReactNode, useEffect } from "react";
import { refusalOf } from "../api.ts";

/** The title of a page, and its actions beside it. */
export function PageHead({ title, children }: { title: string; children?: ReactNode }) {
  useEffect(() => {
    document.title = `${title} · Mailkeel`;
  }, [title]);
  return (
    <div className="head">
      <h1>{title}</h1>
      <div className="actions">{children}</div>
    </div>
  );
}

export const Loading = () => (
  <p className="muted" role="status">
    Loading…
  </p>
);

/** A refusal, with the request's id to copy. @param fields names of those that show their own refusals */
export function Problem({ error, fields = [] }: { error: unknown; fields?: readonly string[] }) {
  if (!error) return null;
  const { message, param, requestId } = refusalOf(error);
  if (param !== undefined && fields.includes(param)) return null;
  return (
    <div className="problem" role="alert">
      <p>{message}</p>
      {requestId && (
        <p className="muted">
          Request <code>{requestId}</code>{" "}
          {navigator.clipboard && (
            <button type="button" className="plain" onClick={() => navigator.clipboard.writeText(requestId)}>
              Copy
            </button>
          )}
        </p>
      )}
    </div>
  );
}

/** Shows that there is nothing, and what to do. */
export const Empty = ({ children }: { children: ReactNode }) => <div className="empty">{children}</div>;

export function NotFound() {
  return (
    <main className="alone">
      <h1>There is no such page</h1>
      <p>
        <Link to="/">To the start</Link>
      </p>
    </main>
  );
}
