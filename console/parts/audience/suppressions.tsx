import { useRole, useWorkspace } from "../../session.tsx";
import { Act } from "../act.tsx";
import { Remove } from "../remove.tsx";

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

/** A button that stops mail to addresses. @param email the only one; a field asks for some unless given */
export function Suppress({ email }: { email?: string }) {
  const { suppressions } = useWorkspace().client.api;
  if (!useRole("EDITOR")) return null;
  const stop = async (text: string) => {
    const emails = text.split(/[\s,;]+/).filter(Boolean);
    const { added, already_suppressed: present } = (await suppressions.create.mutate({ body: { emails } })).data;
    return email ? undefined : `Suppressed: ${added.length}. Already suppressed: ${present.length}.`;
  };
  return (
    <Act
      title={email ? "Suppress this address" : "Suppress addresses"}
      submit="Suppress"
      kind={email ? "danger" : "primary"}
      note={NOTE}
      inputs={
        email ? [] : [["emails", "Addresses", { rows: 8, required: true, hint: "One on each line, at most 100." }]]
      }
      act={({ emails = email ?? "" }) => stop(emails)}
    >
      {email && <p>{email}</p>}
    </Act>
  );
}
