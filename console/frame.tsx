import { useQueryClient } from "@tanstack/react-query";
import { Link, Navigate, Outlet, useLocation, useNavigate, useParams } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import { clientOf, refusalOf, request } from "./api.ts";
import { Select } from "./parts/form.tsx";
import { More, Opener } from "./parts/more.tsx";
import { Brand, Failed, Icon, Loading } from "./parts/page.tsx";
import { isAtLeast, ROLES, useSession, WorkspaceProvider } from "./session.tsx";

type Page = readonly [path: string, name: string, icon: string];

/** The pages of a team by their groups, in the order of the navigation, with the paths of their icons. */
const GROUPS: Readonly<Record<string, readonly Page[]>> = {
  Results: [
    ["", "Overview", "M5 20v-8M12 20V4m7 16v-5M2 20h20"],
    ["usage", "Usage", "M4 18a9 9 0 1 1 16 0m-8-4 4-5"],
  ],
  Write: [
    ["newsletters", "Newsletters", "M3 5h18v14H3zm0 2 9 6 9-6"],
    ["campaigns", "Campaigns", "M4 9v5h3l9 5V4L7 9zm3 6 1 5h3m9-10v3"],
    ["sequences", "Sequences", "M4 4h5v5H4zm11 11h5v5h-5zM9 6.5h4a3 3 0 0 1 3 3V15M4 17.5h8"],
    ["templates", "Templates", "M4 4h16v16H4zm0 5h16M10 9v11"],
    ["brand", "Brand", "M12 3s7 7 7 11a7 7 0 0 1-14 0c0-4 7-11 7-11zM9 14a3 3 0 0 0 3 3"],
  ],
  Audience: [
    ["lists", "Lists", "M8 6h13M8 12h13M8 18h13M3 6h.01M3 12h.01M3 18h.01"],
    ["forms", "Forms", "M4 3h16v18H4zm4 5h8v3H8zm0 7h5"],
    ["people", "People", "M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zm-7 10c0-4 3-6 7-6s7 2 7 6m0-10 2 2 4-4"],
    ["segments", "Segments", "M11 4a8.5 8.5 0 1 0 9 9h-9zm4-1a8 8 0 0 1 6 6h-6z"],
    ["imports", "Imports", "M12 16V4M7 9l5-5 5 5M4 16v4h16v-4"],
    ["fields", "Fields", "M3 12V3h9l9 9-9 9zm4.5-4.5h.01"],
    ["suppressions", "Suppressions", "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM6 6l12 12"],
  ],
  Settings: [
    ["accounts", "Accounts", "M21 3 3 10l7 4 4 7zM10 14 21 3"],
    ["domains", "Domains", "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM3 12h18M12 3c5 5 5 13 0 18-5-5-5-13 0-18"],
    ["providers", "Providers", "M9 7V3m6 4V3M6 8h12v4a6 6 0 0 1-12 0zm6 10v3"],
    ["webhooks", "Webhooks", "m8 8-4 4 4 4m8-8 4 4-4 4M13 5l-2 14"],
    ["keys", "Keys", "M12 10h10v3h-2v3h-3v-3h-5a4.5 4.5 0 1 1 0-3zm-4 1.5h.01"],
    [
      "members",
      "Members",
      "M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM2 21c0-4 3-6 7-6s7 2 7 6m0-18a4 4 0 0 1 0 7m3 5q3 1 3 6",
    ],
    ["audit", "Audit log", "M4 3h16v18H4zm4 5h8m-8 4h8m-8 4h5"],
    ["deleted", "Recently deleted", "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13m-8 4v6m4-6v6"],
    ["settings", "Settings", "M3 7h11m5 0h2M3 17h2m5 0h11M14 5h5v4h-5zm-9 10h5v4H5z"],
  ],
};

/** Shows the present page's link where the navigation scrolls, focuses another page, and closes the menu of a phone. */
function useNavigation(isShown: boolean) {
  const nav = useRef<HTMLElement>(null);
  const [isOpen, setOpen] = useState(false);
  const path = useLocation({ select: ({ pathname }) => pathname });
  const focused = useRef(path);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another path has another link
  useEffect(() => {
    const isOther = path !== focused.current && !document.activeElement?.closest("main, select");
    if (isOther) document.getElementById("page")?.focus();
    focused.current = path;
    setOpen(false);
    const link = nav.current?.querySelector<HTMLElement>("[aria-current]");
    if (!link || !nav.current) return;
    nav.current.scrollTo(0, link.offsetTop - nav.current.clientHeight / 2);
  }, [path, isShown]);
  return { nav, isOpen, setOpen };
}

/** From the page of one thing to the page of all. @param base the path of the team's pages */
function WayBack({ base }: { base: string }) {
  const path = useLocation({ select: ({ pathname }) => pathname });
  const [section, ...rest] = path.slice(path.indexOf(base) + base.length + 1).split("/");
  const page = Object.values(GROUPS)
    .flat()
    .find(([name]) => name === section);
  if (!page || rest.length === 0) return null;
  return (
    <Link className="way-back" to={`${base}/${section}`}>
      ‹ {page[1]}
    </Link>
  );
}

/** Others are refused them. */
const OF_ADMINS: readonly string[] = ["providers", "keys", "members"];

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

  const { nav, isOpen, setOpen } = useNavigation(session.isSuccess);
  if (session.isPending)
    return (
      <main className="alone">
        <Loading />
      </main>
    );
  const hasEnded = session.error !== null && refusalOf(session.error).status === 401;
  // The page keeps its unsaved text, also while the member signs in elsewhere.
  const here = window.location.pathname + window.location.search;
  if (!session.data && hasEnded) return <Navigate to="/sign-in" state={{ page: here }} />;
  if (!session.data)
    return (
      <main className="alone">
        <Failed error={session.error} reset={session.refetch} />
      </main>
    );
  const current = session.data.teams.find(({ id }) => id === team);
  if (!current || (environment !== "live" && environment !== "test")) return <Navigate to="/" />;
  const base = `/${team}/${environment}`;

  const isShown = ([path]: Page) => !OF_ADMINS.includes(path) || isAtLeast(current.role, "ADMIN");
  const signOut = async (everywhere: boolean) => {
    await request("DELETE", `/session${everywhere ? "?everywhere=true" : ""}`);
    queries.clear();
    await navigate({ to: "/sign-in", ignoreBlocker: true });
  };
  return (
    <WorkspaceProvider value={{ ...place, client, current, base }}>
      <a className="skip" href="#page">
        Skip to content
      </a>
      <div className="body">
        <header className="side">
          <Brand />
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
          <button type="button" className="pages" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            Menu
          </button>
          <nav ref={nav} className={isOpen ? "open" : undefined} aria-label="Pages">
            {Object.entries(GROUPS).map(([group, pages]) => (
              <section key={group} aria-label={group}>
                <h2>{group}</h2>
                <ul>
                  {pages.filter(isShown).map(([path, name, icon]) => (
                    <li key={name}>
                      <Link to={path === "" ? base : `${base}/${path}`} activeOptions={{ exact: path === "" }}>
                        <Icon path={icon} />
                        {name}
                      </Link>
                    </li>
                  ))}
                </ul>
              </section>
            ))}
          </nav>
          <bdi className="account">
            {session.data.email} <span className="muted">{ROLES[current.role]}</span>
          </bdi>
          <More of={session.data.email}>
            <Opener title="Sign out" onOpen={() => signOut(false)} />
            <Opener title="Sign out everywhere" onOpen={() => signOut(true)} />
          </More>
        </header>
        <main id="page" key={base} tabIndex={-1}>
          {hasEnded && (
            <p className="problem" role="alert">
              Your session has ended.{" "}
              <Link to="/sign-in" target="_blank">
                Sign in again in another tab
              </Link>
              , then continue here.
            </p>
          )}
          {environment === "test" && <p className="notice">Test environment: no emails are sent from here.</p>}
          <WayBack base={base} />
          <Outlet />
        </main>
      </div>
    </WorkspaceProvider>
  );
}
