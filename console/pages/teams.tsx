import { Link, Navigate } from "@tanstack/react-router";
import { refusalOf } from "../api.ts";
import { Brand, Loading, Problem } from "../parts/page.tsx";
import { ROLES, useSession } from "../session.tsx";

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
