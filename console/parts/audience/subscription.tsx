import { useRole, useWorkspace } from "../../session.tsx";
import { More } from "../more.tsx";
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
  const { lists } = useWorkspace().client.api;
  const params = { listId, subscriberId };
  if (!useRole("EDITOR") || status === "UNSUBSCRIBED") return null;
  return (
    <More of={name}>
      <Remove
        title="Unsubscribe"
        act={(options) => lists.updateMember.mutate({ params, body: { status: "UNSUBSCRIBED" } }, options)}
      >
        {name}: the person no longer gets these emails. Only they can undo it, by confirming.
      </Remove>
      <Remove title="Remove" act={(options) => lists.removeMember.mutate({ params }, options)}>
        {name}: the person is removed from the list. They stay in the audience, and can be added again.
      </Remove>
    </More>
  );
}
