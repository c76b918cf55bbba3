import type { Client, DataOf } from "../api.ts";
import { AddressList, useSearch } from "../parts/audience/address-list.tsx";
import { PersonLink } from "../parts/audience/people.tsx";
import { Lift, REASONS, Suppress } from "../parts/audience/suppressions.tsx";
import { Export } from "../parts/export.tsx";
import { ChoiceFilter, useFilters } from "../parts/filters.tsx";
import { PageHead, When } from "../parts/page.tsx";
import { useWorkspace } from "../session.tsx";

type Suppression = DataOf<Client["api"]["suppressions"]["retrieve"]["query"]>;

const EMPTY =
  "No suppressed addresses. Bounces, complaints and people who unsubscribe from all emails are added automatically; add others by hand.";

/** The addresses that the team does not mail. */
export function Page() {
  const { client, base } = useWorkspace();
  const [{ reason }] = useFilters();
  return (
    <>
      <PageHead title="Suppressions">
        <Export of="suppressions" />
        <Suppress />
      </PageHead>
      <AddressList<Suppression>
        search={useSearch("suppressions")}
        caption="Suppressions"
        queryKey={[base, "suppressions", reason]}
        read={(cursor) => client.api.suppressions.page.query({ query: { cursor, reason, sort: "created_at" } })}
        columns={[
          { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
          { name: "Reason", cell: ({ reason: why }) => REASONS[why] ?? why },
          { name: "Since", cell: ({ created_at }) => <When at={created_at} /> },
          { name: "Actions", cell: (suppression) => <Lift {...suppression} /> },
        ]}
        empty={reason ? "No addresses have this reason." : EMPTY}
      >
        <ChoiceFilter name="reason" label="Reason" any="all" choices={REASONS} />
      </AddressList>
    </>
  );
}
