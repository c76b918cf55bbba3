import { useQueryClient } from "@tanstack/react-query";
import type { CallContext } from "../../api.ts";
import { useRole, useWorkspace } from "../../session.tsx";
import { Remove } from "../remove.tsx";

interface SubscriptionActionsProps {
  listId: string;
  subscriberId: string;
  status: string;
  /** Of the person or the list, in the buttons' dialogs. */
  name: string;
}

/** Buttons that end a subscription. An opt-out stays as the record of it. */
export function SubscriptionActions({ listId, subscriberId, status, name }: SubscriptionActionsProps) {
  const { client, base } = useWorkspace();
  const queries = useQueryClient();
  const params = { listId, subscriberId };
  const onDone = () => queries.invalidateQueries({ queryKey: [base] });
  if (!useRole("EDITOR") || status === "UNSUBSCRIBED") return null;
  return (
    <div className="actions">
      <Remove
        title="Unsubscribe"
        act={(context: CallContext) =>
          client.api.lists.updateMember.mutate(
            { params, body: { status: "UNSUBSCRIBED" } },
            { context: { ...context } },
          )
        }
        onDone={onDone}
      >
        <p>{name}: records that the person does not want these mails. Only they can undo it, by a confirmation.</p>
      </Remove>
      <Remove
        title="Remove"
        act={(context: CallContext) => client.api.lists.removeMember.mutate({ params }, { context: { ...context } })}
        onDone={onDone}
      >
        <p>{name}: takes the person off the list. They stay in the audience, and can be added again.</p>
      </Remove>
    </div>
  );
}
