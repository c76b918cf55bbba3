import { People } from "../parts/audience/people.tsx";

/** The people on the team's lists, who get newsletters. */
export function Page() {
  return (
    <People
      kind="subscribers"
      empty={
        <p>
          No subscriber yet. Subscribers are on lists and get newsletters: make one here, or import many from a file.
        </p>
      }
    />
  );
}
