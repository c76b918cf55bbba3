import { Found, PersonLink } from "../parts/audience/people.tsx";
import { Lift, REASONS, Suppress } from "../parts/audience/suppressions.tsx";
import { Export } from "../parts/export.tsx";
import { ChoiceFilter, FilterBar, SearchFilter, useFilters, When } from "../parts/filters.tsx";
import { PageHead } from "../parts/page.tsx";
import { type Column, List } from "../parts/table.tsx";
import { useWorkspace } from "../session.tsx";

interface Suppression {
  id: string;
  email: string;
  reason: string;
  created_at: string;
}

const COLUMNS: readonly Column<Suppression>[] = [
  { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
  { name: "Reason", cell: ({ reason }) => REASONS[reason] ?? reason },
  { name: "Since", cell: ({ created_at }) => <When at={created_at} /> },
  { name: "Actions", cell: (suppression) => <Lift {...suppression} /> },
];

/** The addresses that the team does not mail. */
export function Page() {
  const { client, base } = useWorkspace();
  const [{ q, reason }] = useFilters();
  return (
    <>
      <PageHead title="Suppressions">
        <Export of="suppressions" />
        <Suppress />
      </PageHead>
      <FilterBar>
        <SearchFilter name="q" label="Address begins with" />
        {!q && <ChoiceFilter name="reason" label="Reason" any="all" choices={REASONS} />}
      </FilterBar>
      {q ? (
        <Found kind="suppressions" text={q} caption="Suppressions" columns={COLUMNS} />
      ) : (
        <List<Suppression>
          caption="Suppressions"
          queryKey={[base, "suppressions", reason]}
          read={(cursor) => client.api.suppressions.page.query({ query: { cursor, reason, sort: "created_at" } })}
          keyOf={({ id }) => id}
          columns={COLUMNS}
          empty={
            <p>
              {reason
                ? "No address has this reason."
                : "No address is stopped. Bounces, complaints and people who unsubscribe from all mail come here by themselves; stop others by hand."}
            </p>
          }
        />
      )}
    </>
  );
}
