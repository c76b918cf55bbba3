import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useRole, useWorkspace } from "../../session.tsx";
import { Dialog } from "../dialog.tsx";
import { Field, Form } from "../form.tsx";
import { Remove } from "../remove.tsx";

export const REASONS: Readonly<Record<string, string>> = {
  MANUAL: "by the team",
  UNSUBSCRIBED: "unsubscribed from all mail",
  "bounce:hard": "bounced: the address does not work",
  "bounce:soft": "bounced several times",
  "bounce:complaint": "complained about a mail",
};

/** A button that lets an address be mailed again, for those who may. */
export function Lift({ id, reason, email }: { id: string; reason: string; email: string }) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  if (!useRole("ADMIN")) return null;
  return (
    <Remove
      title="Allow mail again"
      act={(context) =>
        client.api.suppressions.remove.mutate({ params: { suppressionId: id } }, { context: { ...context } })
      }
      onDone={() => queries.invalidateQueries({ queryKey: [base] })}
    >
      <p>
        Mail to {email} is stopped: {REASONS[reason] ?? reason}.{" "}
        {reason === "MANUAL" ? "" : "Allow mail again if the person asked for it, or the address was mended: "}
        Opt-outs from single lists still hold, and another bounce or complaint stops mail again.
      </p>
    </Remove>
  );
}

interface SuppressProps {
  label: string;
  /** The only address; a field asks for some unless given. */
  email?: string;
}

/** A button that stops mail to addresses. */
export function Suppress({ label, email }: SuppressProps) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  const [isOpen, setOpen] = useState(false);
  const [done, setDone] = useState<string>();
  const stop = async ({ emails: text = email ?? "" }: Record<string, string>) => {
    const emails = text.split(/[\s,;]+/).filter(Boolean);
    const { data } = await client.api.suppressions.create.mutate({ body: { emails } });
    await queries.invalidateQueries({ queryKey: [base] });
    if (email) return setOpen(false);
    const { added, already_suppressed: present } = data;
    setDone(`Mail to ${added.length} addresses is stopped; to ${present.length} it was before.`);
  };
  if (!useRole("EDITOR")) return null;
  return (
    <>
      <button type="button" className={email ? "danger" : "primary"} onClick={() => setOpen(true)}>
        {label}
      </button>
      {isOpen && (
        <Dialog title={label} onClose={() => setOpen(false)}>
          <p>
            Nothing is mailed to a stopped address, by any newsletter or campaign. Only an admin can allow it again.
          </p>
          <Form fields={[]} submit="Stop mail" onSubmit={stop}>
            {() =>
              email ? (
                <p>{email}</p>
              ) : (
                <Field
                  label="Addresses"
                  name="emails"
                  hint="One on each line, at most 100."
                  control={(id, describedBy) => (
                    <textarea id={id} name="emails" rows={8} required aria-describedby={describedBy} />
                  )}
                />
              )
            }
          </Form>
          {done && (
            <p className="notice" role="status">
              {done}
            </p>
          )}
        </Dialog>
      )}
    </>
  );
}
