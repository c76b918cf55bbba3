import { People } from "../parts/audience/people.tsx";

/** The people whom segments select, and campaigns mail. */
export function Page() {
  return (
    <People
      kind="contacts"
      empty={
        <p>
          No contact yet. Segments select contacts, and campaigns mail them: make one here, or import many from a file.
        </p>
      }
    />
  );
}
