import { useNavigate } from "@tanstack/react-router";
import { useWorkspace } from "../session.tsx";
import { Act } from "./act.tsx";

const DRAFT = "The new draft has the same content, sender and recipients.";
const NOTES = {
  ...{ newsletter: DRAFT, campaign: DRAFT },
  sequence: "The new draft has the same steps, sender and list or segment, and no people yet.",
  segment: "The new segment has the same conditions.",
  template: "The new template has the same content.",
};

/** Makes another one of it, and opens that. @param name of one in a list */
export function Duplicate({ type, id, name }: { type: keyof typeof NOTES; id: string; name?: string }) {
  const { client, base } = useWorkspace();
  const navigate = useNavigate();
  return (
    <Act
      title={name === undefined ? "Duplicate" : `Duplicate ${name}`}
      short="Duplicate"
      submit="Duplicate"
      note={NOTES[type]}
      act={async (_, context) => {
        const { data } = await client.app.content.duplicate.mutate({ body: { type, id } }, { context });
        // Templates have no pages of their own.
        if (type !== "template") await navigate({ to: `${base}/${type}s/${data.id}` });
      }}
    />
  );
}
