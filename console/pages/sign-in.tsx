import { useSuspenseQuery } from "@tanstack/react-query";
import { Link, Navigate, useLocation } from "@tanstack/react-router";
import { useState } from "react";
import type { SignInWays } from "../../api/console/http.ts";
import type { ShownProblem } from "../../api/console/oidc.ts";
import { HttpRefusal, refusalOf, request } from "../api.ts";
import { Form } from "../parts/form.tsx";
import { Brand, Loading, Problem } from "../parts/page.tsx";
import { ROLES, useSession } from "../session.tsx";

/** The page to return to. The link of the mail opens a tab of its own. */
const PAGE = "mailkeel-page";

/** Why a sign-in at the provider was refused, and the way on. */
const PROBLEMS: Readonly<Record<ShownProblem, string>> = {
  expired: "This sign-in was used, took more than 10 minutes, or began in another browser or tab. Sign in again.",
  refused: "The sign-in was cancelled, or its answer could not be verified. Sign in again.",
  unverified: "Your account has no verified email address. Verify one there, then sign in again.",
  unknown: "No team has a member with the address of your account. Ask an admin of your team to add it.",
  bound:
    "Your account had another address when you first signed in, or another account had this one. Ask your operator to unbind it.",
  unavailable: "Signing in does not work at the moment. Try again in a minute; if it fails again, tell your operator.",
  limited: "Too many sign-ins came from your network. Wait a minute, then sign in again.",
};

/** A part of the link, also where other text was copied with it. */
const LINK = /link_\w+\.[\w-]+/;

/** Offers the ways to sign in, or uses the link in the URL: at a press, because programs that scan mails open links too. */
export function SignIn() {
  const link = useLocation({ select: ({ hash }) => LINK.exec(hash)?.[0] ?? hash });
  return (
    <main className="alone">
      <Brand />
      <h1>Sign in</h1>
      {link === "" ? <Ways /> : <UseLink link={link} />}
    </main>
  );
}

function Ways() {
  const page = useLocation({ select: ({ state }) => state.page });
  const search = useLocation({ select: ({ search }) => search as { problem?: string } });
  const queryFn = () => request<SignInWays>("GET", "/sign-in/ways");
  const { data } = useSuspenseQuery({ queryKey: ["ways to sign in"], queryFn, staleTime: "static" });
  const message = Object.entries(PROBLEMS).find(([code]) => code === search.problem)?.[1];
  return (
    <>
      {message && <Problem error={new HttpRefusal({ message })} />}
      {page && <p>You are not signed in, or your session has ended. Sign in to return to your page.</p>}
      {data.provider && (
        <p>
          <a className="button primary" href={`/console/sign-in/oidc?${new URLSearchParams({ page: page ?? "" })}`}>
            Continue with {data.provider}
          </a>
        </p>
      )}
      {data.by_link && <AskForLink page={page} />}
    </>
  );
}

function AskForLink({ page }: { page: string | undefined }) {
  const [sentTo, setSentTo] = useState<string>();
  if (sentTo !== undefined) {
    return (
      <div role="status">
        <p>
          If {sentTo} belongs to a team member, a sign-in link is on its way. Open it in this browser within 15 minutes.
          If you got one in the last 10 minutes, use that one: no new link is sent.
        </p>
        <button type="button" onClick={() => setSentTo(undefined)}>
          Use another address
        </button>
      </div>
    );
  }
  return (
    <Form
      inputs={[["email", "Your address", { type: "email", autoComplete: "email", required: true }]]}
      submit="Send me a link"
      onSubmit={async ({ email = "" }) => {
        await request("POST", "/sign-in", { email });
        if (page) localStorage.setItem(PAGE, page);
        else localStorage.removeItem(PAGE);
        setSentTo(email);
      }}
    />
  );
}

function UseLink({ link }: { link: string }) {
  return (
    <>
      <Form
        submit="Sign in"
        onSubmit={async () => {
          await request("POST", "/session", { link });
          const page = localStorage.getItem(PAGE) ?? "/console/";
          localStorage.removeItem(PAGE);
          window.location.replace(page);
        }}
      >
        <p>Press the button to sign in with the link from your email.</p>
      </Form>
      <p>
        <Link to="/sign-in" hash="">
          Request a new link
        </Link>
      </p>
    </>
  );
}

/** The choice of a team, for a member of several. */
export function Teams() {
  const session = useSession();
  if (session.isPending) return <Loading />;
  if (session.error) {
    if (refusalOf(session.error).status === 401) return <Navigate to="/sign-in" />;
    return <Problem error={session.error} />;
  }
  const { teams } = session.data;
  const [only] = teams;
  if (only && teams.length === 1) return <Navigate to={`/${only.id}/live`} />;
  return (
    <main className="alone">
      <Brand />
      <h1>Your teams</h1>
      <ul className="plain">
        {teams.map(({ id, name, role }) => (
          <li key={id}>
            <Link to={`/${id}/live`}>
              <bdi>{name}</bdi> <span className="muted">{ROLES[role]}</span>
            </Link>
          </li>
        ))}
      </ul>
    </main>
  );
}
