import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { Refusal } from "../api.ts";
import { Dialog } from "./dialog.tsx";
import { LineDiff } from "./line-diff.tsx";
import { When } from "./page.tsx";
import { type Choice, type Difference, type Edited, saverOf } from "./save-from.ts";

interface Question {
  edited: NonNullable<Refusal["edited"]>;
  differences: readonly Difference[];
  decide: (choice: Choice) => void;
}

/** Saves of a record that others may edit, too; `dialog` is to be shown. */
export function useEdit(of: Omit<Edited, "record"> | undefined) {
  const queries = useQueryClient();
  const [question, setQuestion] = useState<Question>();
  const saveFrom = saverOf(of, async (edited, differences) => {
    const choice = await new Promise((decide: Question["decide"]) => setQuestion({ edited, differences, decide }));
    setQuestion(undefined);
    if (choice === "theirs") await queries.invalidateQueries();
    return choice;
  });
  return { saveFrom, dialog: question && <Decision {...question} /> };
}

function Decision({ edited: { by, at }, differences, decide }: Question) {
  return (
    <Dialog title={`${by ?? "Someone else"} has changed this`} onClose={() => decide(undefined)}>
      <p>
        It was changed at <When at={at} />, after you opened it. Keep that change, or overwrite it with yours. Lines
        with − are only in theirs, and lines with + only in yours.
      </p>
      {differences.map(({ name, theirs, yours }) => (
        <section key={name}>
          <h3>The {name}</h3>
          <LineDiff from={theirs} to={yours} />
        </section>
      ))}
      <div className="actions">
        <button type="button" className="primary" onClick={() => decide("theirs")}>
          Keep theirs
        </button>
        <button type="button" className="danger" onClick={() => decide("yours")}>
          Overwrite with yours
        </button>
      </div>
    </Dialog>
  );
}
