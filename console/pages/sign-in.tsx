import { Link, Navigate, useLocation } from "@tanstack/react-router";
import { useState } from "react";
import { refusalOf, request } from "../api.ts";
import { Form } from "../parts/form.tsx";
import { Brand, Loading, Problem } from "../parts/page.tsx";
import { ROLES, useSession } from "../session.tsx";

/** The page to return to. The link of the mail opens a tab of its own. */
const PAGE = "mailkeel-page";

/** Asks for a link, or uses the one in the URL: at a press, because programs that scan mails open links too. */
export function SignIn() {
  const link = useLocation({ select: ({ hash }) => hash });
  return (
    <main className="alone">
      <Brand />
      <h1>Sign in</h1>
      {link === "" ? <AskForLink /> : <UseLink link={link} />}
    </main>
  );
}

function AskForLink() {
  const page = useLocation({ select: ({ state }) => state.page });
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
    >
      {page && <p>You are not signed in, or your session has ended. Sign in to return to your page.</p>}
    </Form>
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
