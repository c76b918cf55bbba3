import { useRole, useWorkspace } from "../../session.tsx";
import { Act } from "../act.tsx";
import { Remove } from "../remove.tsx";

export const REASONS: Readonly<Record<string, string>> = {
  MANUAL: "by the team",
  UNSUBSCRIBED: "unsubscribed from all mail",
  "bounce:hard": "bounced: the address does not work",
  "bounce:soft": "bounced several times",
  "bounce:complaint": "complained about a mail",
};

/** A button that lets an address be mailed again, for those who may. */
export function Lift({ id: suppressionId, reason, email }: { id: string; reason: string; email: string }) {
  const { suppressions } = useWorkspace().client.api;
  if (!useRole("ADMIN")) return null;
  return (
    <Remove
      title="Allow mail again"
      act={(options) => suppressions.remove.mutate({ params: { suppressionId } }, options)}
    >
      Mail to {email} is stopped: {REASONS[reason] ?? reason}.{" "}
      {reason !== "MANUAL" && "Allow mail again if the person asked for it, or the address was mended. "}
      Opt-outs from single lists still hold, and another bounce or complaint stops mail again.
    </Remove>
  );
}

const NOTE = "Nothing is mailed to a stopped address, by any newsletter or campaign. Only an admin can allow it again.";

/** A button that stops mail to addresses. @param email the only one; a field asks for some unless given */
export function Suppress({ email }: { email?: string }) {
  const { suppressions } = useWorkspace().client.api;
  if (!useRole("EDITOR")) return null;
  const stop = async (text: string) => {
    const emails = text.split(/[\s,;]+/).filter(Boolean);
    const { added, already_suppressed: present } = (await suppressions.create.mutate({ body: { emails } })).data;
    return email ? undefined : `Stopped: ${added.length}. Stopped before: ${present.length}.`;
  };
  return (
    <Act
      title={email ? "Stop all mail" : "Stop mail to addresses"}
      submit="Stop mail"
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
