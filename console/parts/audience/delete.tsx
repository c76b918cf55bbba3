import { useQueryClient } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useWorkspace } from "../../session.tsx";
import { Remove } from "../remove.tsx";

interface DeleteProps {
  title: string;
  /** A procedure of the API that has a dry run. */
  call: (options: { context: Record<string, unknown> }) => Promise<{ meta: Record<string, unknown> }>;
  children: ReactNode;
}

/** A button for a destructive act of the API; the pages read again what they show after it. */
export function Delete({ title, call, children }: DeleteProps) {
  const { base } = useWorkspace();
  const queries = useQueryClient();
  return (
    <Remove
      title={title}
      act={(context) => call({ context: { ...context } })}
      onDone={() => queries.invalidateQueries({ queryKey: [base] })}
    >
      <p>{children}</p>
    </Remove>
  );
}
