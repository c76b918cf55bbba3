import type { Client } from "../api.ts";
import { type DataOf, FOUND_NOTE, findByAddress, NONE_FOUND, PersonLink } from "../parts/audience/people.tsx";
import { Lift, REASONS, Suppress } from "../parts/audience/suppressions.tsx";
import { Export } from "../parts/export.tsx";
import { ChoiceFilter, FilterBar, SearchFilter, useFilters } from "../parts/filters.tsx";
import { PageHead, When } from "../parts/page.tsx";
import { List } from "../parts/table.tsx";
import { useWorkspace } from "../session.tsx";

type Suppression = DataOf<Client["api"]["suppressions"]["retrieve"]["query"]>;

const EMPTY =
  "No address is stopped. Bounces, complaints and people who unsubscribe from all mail come here by themselves; stop others by hand.";

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
      {q && <p className="muted">{FOUND_NOTE}</p>}
      <List<Suppression>
        caption="Suppressions"
        queryKey={[base, "suppressions", q, reason]}
        read={(cursor) =>
          q
            ? findByAddress<Suppression>(client, "suppressions", q)
            : client.api.suppressions.page.query({ query: { cursor, reason, sort: "created_at" } })
        }
        keyOf={({ id }) => id}
        columns={[
          { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
          { name: "Reason", cell: ({ reason: why }) => REASONS[why] ?? why },
          { name: "Since", cell: ({ created_at }) => <When at={created_at} /> },
          { name: "Actions", cell: (suppression) => <Lift {...suppression} /> },
        ]}
        empty={q ? NONE_FOUND : reason ? "No address has this reason." : EMPTY}
      />
    </>
  );
}
