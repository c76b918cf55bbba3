import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Act } from "../parts/act.tsx";
import { FilterBar, SearchFilter, useFilters, When } from "../parts/filters.tsx";
import { Empty, Loading, PageHead, Problem } from "../parts/page.tsx";
import { Table } from "../parts/table.tsx";
import { type Role, useRole, useWorkspace } from "../session.tsx";

const ROLES: Record<Role, string> = {
  VIEWER: "Viewer: reads everything but keys and members",
  EDITOR: "Editor: also writes newsletters, lists, segments and imports, but sends nothing",
  ADMIN: "Admin: also sends, and manages accounts, domains, webhooks, keys and members",
  OWNER: "Owner: also makes and changes owners",
};

/** The members of a team. */
export function Page() {
  const mayManage = useRole("ADMIN");
  if (mayManage) return <Members />;
  return (
    <>
      <PageHead title="Members" />
      <Empty>
        <p>An ADMIN or an OWNER of the team sees its members and adds new ones.</p>
      </Empty>
    </>
  );
}

function Members() {
  const { client, team } = useWorkspace();
  const queries = useQueryClient();
  const isOwner = useRole("OWNER");
  const [{ q = "" }] = useFilters();
  const query = useQuery({ queryKey: [team, "members"], queryFn: () => client.app.team.members.query({}) });
  const changed = () =>
    Promise.all([
      queries.invalidateQueries({ queryKey: [team, "members"] }),
      queries.invalidateQueries({ queryKey: ["session"] }),
    ]);
  const { OWNER, ...others } = ROLES;
  const choices = isOwner ? { ...others, OWNER } : others;
  const { invite, changeRole, removeMember } = client.app.team;
  const found = (query.data?.data ?? []).filter(({ name, email }) =>
    `${name} ${email}`.toLowerCase().includes(q.toLowerCase()),
  );
  return (
    <>
      <PageHead title="Members">
        <Act
          title="Invite a member"
          kind="primary"
          submit="Invite"
          inputs={[
            ["name", "Name", { required: true, maxLength: 200 }],
            ["email", "Address", { type: "email", required: true, maxLength: 320 }],
            ["role", "Role", { choices }],
          ]}
          act={async ({ name = "", email = "", role }) => {
            await invite.mutate({ body: { name, email, role: role as Role } });
            await changed();
          }}
        >
          <p className="muted">They get a mail with the address of this console, where they sign in.</p>
        </Act>
      </PageHead>
      <FilterBar>
        <SearchFilter name="q" label="Name or address" />
      </FilterBar>
      {query.isPending && <Loading />}
      <Problem error={query.error} />
      {query.data && found.length === 0 && (
        <Empty>
          <p>No member has this in their name or address.</p>
        </Empty>
      )}
      {found.length > 0 && (
        <Table
          caption="Members"
          rows={found}
          keyOf={({ id }) => id}
          columns={[
            { name: "Name", cell: ({ name, is_you }) => (is_you ? `${name} (you)` : name) },
            { name: "Address", cell: ({ email }) => email },
            { name: "Role", cell: ({ role }) => role },
            { name: "Keys", isNumber: true, cell: ({ working_keys }) => working_keys },
            { name: "Added", cell: ({ created_at }) => <When at={created_at} /> },
            {
              name: "",
              cell: ({ id, name, role, working_keys }) =>
                (isOwner || role !== "OWNER") && (
                  <div className="actions">
                    <Act
                      title={`Change role of ${name}`}
                      short="Change role"
                      inputs={[["role", "Role", { choices }]]}
                      values={{ role }}
                      act={async ({ role: next }) => {
                        await changeRole.mutate({ body: { member_id: id, role: next as Role } });
                        await changed();
                      }}
                    >
                      <p className="muted">Their sessions and keys follow at once.</p>
                    </Act>
                    <Act
                      title={`Remove ${name}`}
                      short="Remove"
                      kind="danger"
                      act={async () => {
                        await removeMember.mutate({ body: { member_id: id } });
                        await changed();
                      }}
                    >
                      <p>
                        {name} can no longer open this team.{" "}
                        {working_keys === 0
                          ? "They have no key that works."
                          : `Their keys stop working at once: ${working_keys}.`}
                      </p>
                    </Act>
                  </div>
                ),
            },
          ]}
        />
      )}
    </>
  );
}
