import { useQueryClient } from "@tanstack/react-query";
import { Link, Navigate, Outlet, useNavigate, useParams } from "@tanstack/react-router";
import { useMemo } from "react";
import { clientOf, refusalOf, request } from "./api.ts";
import { Select } from "./parts/form.tsx";
import { Loading, Problem } from "./parts/page.tsx";
import { useSession, WorkspaceProvider } from "./session.tsx";

/** The pages of a team, in the order of the navigation. */
const PAGES = [
  ["", "Overview"],
  ["newsletters", "Newsletters"],
  ["campaigns", "Campaigns"],
  ["sequences", "Sequences"],
  ["templates", "Templates"],
  ["lists", "Lists"],
  ["subscribers", "Subscribers"],
  ["contacts", "Contacts"],
  ["segments", "Segments"],
  ["imports", "Imports"],
  ["fields", "Fields"],
  ["suppressions", "Suppressions"],
  ["accounts", "Accounts"],
  ["domains", "Domains"],
  ["providers", "Providers"],
  ["webhooks", "Webhooks"],
  ["keys", "Keys"],
  ["members", "Members"],
  ["usage", "Usage"],
  ["settings", "Settings"],
  ["brand", "Brand"],
] as const;

/** Navigation and the team's choice around every page of a team. */
export function Frame() {
  const { team = "", environment = "" } = useParams({ strict: false }) as { team?: string; environment?: string };
  const session = useSession();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const place = { team, environment: environment === "test" ? ("test" as const) : ("live" as const) };
  const client = useMemo(() => {
    const lookAgain = () => void queries.invalidateQueries({ queryKey: ["session"] });
    return clientOf({ team, environment: place.environment }, lookAgain);
  }, [team, place.environment, queries]);

  if (session.isPending) return <Loading />;
  const hasEnded = session.error !== null && refusalOf(session.error).status === 401;
  // The page keeps its unsaved text, also while the member signs in elsewhere.
  const here = window.location.pathname + window.location.search;
  if (!session.data && hasEnded) return <Navigate to="/sign-in" state={{ page: here }} />;
  if (!session.data) return <Problem error={session.error} />;
  const current = session.data.teams.find(({ id }) => id === team);
  if (!current || (environment !== "live" && environment !== "test")) return <Navigate to="/" />;
  const base = `/${team}/${environment}`;

  const signOut = async (everywhere: boolean) => {
    await request("DELETE", `/session${everywhere ? "?everywhere=true" : ""}`);
    queries.clear();
    await navigate({ to: "/sign-in" });
  };
  return (
    <WorkspaceProvider value={{ ...place, client, current, base }}>
      <a className="skip" href="#page">
        Skip to the page
      </a>
      <header className="top">
        <strong>Mailkeel</strong>
        <Select
          aria-label="Team"
          value={team}
          choices={Object.fromEntries(session.data.teams.map(({ id, name }) => [id, name]))}
          onChange={(chosen) => navigate({ to: `/${chosen}/${environment}` })}
        />
        <Select
          aria-label="Environment"
          value={environment}
          choices={{ live: "Live", test: "Test" }}
          onChange={(chosen) => navigate({ to: `/${team}/${chosen}` })}
        />
        <details className="menu">
          <summary>{session.data.email}</summary>
          <div>
            <p className="muted">{current.role}</p>
            <button type="button" onClick={() => signOut(false)}>
              Sign out
            </button>
            <button type="button" onClick={() => signOut(true)}>
              Sign out everywhere
            </button>
          </div>
        </details>
      </header>
      <div className="body">
        <nav aria-label="Pages">
          <ul>
            {PAGES.map(([path, name]) => (
              <li key={name}>
                <Link to={path === "" ? base : `${base}/${path}`} activeOptions={{ exact: path === "" }}>
                  {name}
                </Link>
              </li>
            ))}
          </ul>
        </nav>
        <main id="page" key={base}>
          {hasEnded && (
            <p className="problem" role="alert">
              Your session has ended.{" "}
              <Link to="/sign-in" target="_blank">
                Sign in again in another tab
              </Link>
              , then go on here.
            </p>
          )}
          {environment === "test" && <p className="notice">Test environment: nothing is mailed from here.</p>}
          <Outlet />
        </main>
      </div>
    </WorkspaceProvider>
  );
}
