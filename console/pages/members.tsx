import { Act } from "../parts/act.tsx";
import { More } from "../parts/more.tsx";
import { PageHead, State, type States, When } from "../parts/page.tsx";
import { All } from "../parts/table.tsx";
import { ROLES, type Role, useData, useRole, useWorkspace } from "../session.tsx";

const RIGHTS: Record<Role, string> = {
  VIEWER: "can view everything except keys and members",
  EDITOR: "can also edit newsletters, lists, segments and imports, but not send",
  ADMIN: "can also send, and manage accounts, domains, webhooks, keys and members",
  OWNER: "can also add and change owners",
};
const CHOICES = Object.fromEntries(
  Object.entries(RIGHTS).map(([role, text]) => [role, `${ROLES[role as Role]}: ${text}`]),
);
const STATES: States = Object.fromEntries(Object.entries(ROLES).map(([role, name]) => [role, [name, "muted"]]));

/** The members of a team. Members who are no admins see the service's refusal. */
export function Page() {
  const { client } = useWorkspace();
  const isAdmin = useRole("ADMIN");
  const isOwner = useRole("OWNER");
  const { invite, changeRole, removeMember } = client.app.team;
  const members = useData(["members"], () => client.app.team.members.query({}));
  const { OWNER: _, ...others } = CHOICES;
  const choices = isOwner ? CHOICES : others;
  return (
    <>
      <PageHead title="Members">
        {isAdmin && (
          <Act
            title="Invite a member"
            kind="primary"
            submit="Invite"
            note="They get an email with a link to this console, where they sign in."
            inputs={[
              ["name", "Name", { required: true, maxLength: 200 }],
              ["email", "Address", { type: "email", required: true, maxLength: 320 }],
              ["role", "Role", { choices }],
            ]}
            act={({ name = "", email = "", role }) => invite.mutate({ body: { name, email, role: role as Role } })}
          />
        )}
      </PageHead>
      <All
        caption="Members"
        rows={members}
        search={["Name or address", ({ name, email }) => `${name} ${email}`]}
        keyOf={({ id }) => id}
        columns={[
          { name: "Name", cell: ({ name, is_you }) => (is_you ? `${name} (you)` : name) },
          { name: "Address", cell: ({ email }) => email },
          { name: "Role", cell: ({ role }) => <State of={STATES} is={role} /> },
          { name: "Keys", isNumber: true, cell: ({ working_keys }) => working_keys },
          { name: "Added", cell: ({ created_at }) => <When at={created_at} /> },
          {
            name: "Actions",
            cell: ({ id, name, role, working_keys }) =>
              (isOwner || role !== "OWNER") && (
                <More of={name}>
                  <Act
                    title={`Change role of ${name}`}
                    short="Change role"
                    note="This applies to their sessions and keys at once."
                    inputs={[["role", "Role", { choices }]]}
                    values={{ role }}
                    act={({ role: next }) => changeRole.mutate({ body: { member_id: id, role: next as Role } })}
                  />
                  <Act
                    title={`Remove ${name}`}
                    short="Remove"
                    kind="danger"
                    note={`${name} will lose access to this team. ${working_keys === 0 ? "They have no active keys." : `Their active keys stop working at once: ${working_keys}.`}`}
                    act={() => removeMember.mutate({ body: { member_id: id } })}
                  />
                </More>
              ),
          },
        ]}
      />
    </>
  );
}
