import { type Client, capitalized, type DataOf } from "../api.ts";
import { Act } from "../parts/act.tsx";
import { AddressList, useSearch } from "../parts/audience/address-list.tsx";
import { PersonLink } from "../parts/audience/people.tsx";
import { Export } from "../parts/export.tsx";
import { ChoiceFilter, useFilters } from "../parts/filters.tsx";
import { More } from "../parts/more.tsx";
import { PageHead, When } from "../parts/page.tsx";
import { Remove } from "../parts/remove.tsx";
import { useRole, useWorkspace } from "../session.tsx";

type Suppression = DataOf<Client["api"]["suppressions"]["retrieve"]["query"]>;

const EMPTY =
  "No suppressed addresses. Bounces, complaints and people who unsubscribe from all emails are added automatically; add others by hand.";

/** The addresses that the team does not mail. */
export function Page() {
  const { client, base } = useWorkspace();
  const [{ reason }] = useFilters();
  const isAdmin = useRole("ADMIN");
  return (
    <>
      <PageHead title="Suppressions">
        <Export of="suppressions" />
        <Suppress />
      </PageHead>
      <p className="muted">{NOTE}</p>
      <AddressList<Suppression>
        search={useSearch("suppressions")}
        caption="Suppressions"
        queryKey={[base, "suppressions", reason]}
        read={async (cursor) => {
          const [page, count] = await Promise.all([
            client.api.suppressions.page.query({ query: { cursor, reason, sort: "created_at" } }),
            cursor ? undefined : client.app.audience.suppressed.query({ query: { reason } }),
          ]);
          return { ...page, meta: { ...page.meta, ...count?.data } };
        }}
        countText={(_, { total, has_more: hasMore }) =>
          typeof total === "number"
            ? `${total.toLocaleString()}${hasMore ? " or more" : ""} suppressed ${total === 1 ? "address" : "addresses"}`
            : undefined
        }
        columns={[
          { name: "Address", cell: ({ email }) => <PersonLink email={email} /> },
          { name: "Reason", cell: ({ reason: why }) => capitalized(REASONS[why] ?? why) },
          { name: "Since", cell: ({ created_at }) => <When at={created_at} /> },
          {
            name: "Actions",
            cell: (suppression) =>
              isAdmin && (
                <More of={suppression.email}>
                  <Lift {...suppression} />
                </More>
              ),
          },
        ]}
        empty={reason ? "No addresses have this reason." : EMPTY}
      >
        <ChoiceFilter name="reason" label="Reason" any="All" choices={REASONS} />
      </AddressList>
    </>
  );
}

export const REASONS: Readonly<Record<string, string>> = {
  MANUAL: "added by the team",
  UNSUBSCRIBED: "unsubscribed from all emails",
  "bounce:hard": "bounced: the address does not work",
  "bounce:soft": "bounced several times",
  "bounce:complaint": "marked an email as spam",
};

/** A button that lets an address be mailed again, for those who may. */
export function Lift({ id: suppressionId, reason, email }: { id: string; reason: string; email: string }) {
  const { suppressions } = useWorkspace().client.api;
  if (!useRole("ADMIN")) return null;
  return (
    <Remove
      title="Allow email again"
      act={(options) => suppressions.remove.mutate({ params: { suppressionId } }, options)}
    >
      {email} is suppressed: {REASONS[reason] ?? reason}.{" "}
      {reason !== "MANUAL" && "Allow email again only if the person asked for it, or the address was fixed. "}
      They stay unsubscribed from lists they left, and another bounce or complaint suppresses the address again.
    </Remove>
  );
}

const NOTE = "A suppressed address gets no newsletters, campaigns or sequences. Only an admin can allow email again.";

/** A button that stops mail to addresses. @param given a field asks for some unless given */
export function Suppress({ emails: given, onDone }: { emails?: readonly string[]; onDone?: () => void }) {
  const { suppressions } = useWorkspace().client.api;
  if (!useRole("EDITOR")) return null;
  const stop = async (text: string) => {
    const emails = given ? [...given] : text.split(/[\s,;]+/).filter(Boolean);
    const { added, already_suppressed: present } = (await suppressions.create.mutate({ body: { emails } })).data;
    onDone?.();
    return given?.length === 1 ? undefined : `Suppressed: ${added.length}. Already suppressed: ${present.length}.`;
  };
  return (
    <Act
      title={given?.length === 1 ? "Suppress this address" : "Suppress addresses"}
      submit="Suppress"
      kind={given ? "danger" : "primary"}
      note={NOTE}
      inputs={
        given ? [] : [["emails", "Addresses", { rows: 8, required: true, hint: "One on each line, at most 100." }]]
      }
      act={({ emails = "" }) => stop(emails)}
    >
      {given && <p>{given.join(", ")}</p>}
    </Act>
  );
}
