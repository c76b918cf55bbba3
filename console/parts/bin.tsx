import { useMutation } from "@tanstack/react-query";
import { type Client, type DataOf, refusalOf } from "../api.ts";
import { useWorkspace } from "../session.tsx";
import { toast } from "./toast.tsx";

/** Of a record that is about to be deleted. */
export const RESTORABLE = "You can restore it for 30 days.";

export const restoredText = ({ name, gone }: DataOf<Client["app"]["bin"]["restore"]["mutate"]>) =>
  `“${name}” restored${gone.length > 0 ? `, without ${gone.join(", ")}` : ""}`;

/** Takes the deletion of a record back. */
export function useUndo() {
  const { restore } = useWorkspace().client.app.bin;
  const { mutate } = useMutation({
    mutationFn: (recordId: string) => restore.mutate({ params: { recordId } }),
    // Of the mutation: the page of the record is left by then.
    onSuccess: ({ data }) => toast(restoredText(data)),
    onError: (error) => toast(refusalOf(error).message),
  });
  return (id: string) => () => mutate(id);
}
