import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useId } from "react";
import { type CallContext, capitalized } from "../api.ts";
import { Act } from "./act.tsx";
import { Loading, Problem } from "./page.tsx";

interface RemoveProps {
  /** Of the button and of the dialog: "Delete this list". */
  title: string;
  /** The button's text, where its row says the rest of the title. */
  short?: string;
  /** Makes the call; with `dryRun` it changes nothing and answers its impact. */
  act: (options: { context: CallContext }) => Promise<{ meta: Record<string, unknown> }>;
  /** The effect of the act, in words. */
  children?: ReactNode;
  /** May leave the page of the deleted record. */
  onDone?: () => unknown;
  undo?: (() => unknown) | undefined;
}

/** A button for a destructive act: it shows the impact of a dry run before it acts. */
export const Remove = ({ title, short, act, children, onDone, undo }: RemoveProps) => (
  <Act
    title={title}
    short={short}
    kind="danger"
    undo={undo}
    act={async (_, context) => {
      await act({ context });
      await onDone?.();
    }}
  >
    <p>{children}</p>
    <Impact act={act} />
  </Act>
);

const WORDS: Record<string, string> = {
  would_create: "To be created",
  would_update: "Records to be changed",
  would_delete: "To be deleted",
};

function Impact({ act }: Pick<RemoveProps, "act">) {
  // A key of its own: the answer of another dialog may still be under way.
  const query = useQuery({
    queryKey: ["impact", useId()],
    queryFn: () => act({ context: { dryRun: true } }),
    staleTime: "static",
    retry: false,
    gcTime: 0,
  });
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} />;
  const impact = Object.entries((query.data.meta["impact"] ?? {}) as Record<string, unknown>);
  return (
    <ul>
      {impact
        // The text says how the record itself changes.
        .filter(([name, value]) => Number(value) > (name === "would_update" ? 1 : 0) && name !== "affected_count")
        .map(([name, value]) => (
          <li key={name}>
            {WORDS[name] ?? capitalized(name.replaceAll("_", " "))}: {Number(value).toLocaleString()}
          </li>
        ))}
    </ul>
  );
}
