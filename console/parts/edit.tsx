import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { type CallContext, Kept, type Refusal, refusalOf } from "../api.ts";
import { Dialog } from "./dialog.tsx";
import { LineDiff } from "./line-diff.tsx";
import { When } from "./page.tsx";

/** A record as an editor sees it; its fields have the names of those that are saved. */
export interface Version {
  updated_at: string;
}

/** The record of an editor. */
export interface Edited<Record extends Version = Version> {
  id: string;
  record: Record;
  read: () => Promise<{ data: Record }>;
}

/**
 * Saves fields at the version that the member began with. Once others have changed them, the member decides between the two.
 * @param body the fields @param write the call of the service
 * @throws {Kept} also a refusal, also when the member decides nothing
 */
type SaveFrom = <Answer>(
  began: Version,
  body: object,
  write: (options: { context: CallContext }) => Promise<Answer>,
) => Promise<Answer>;

interface Difference {
  name: string;
  theirs: string;
  yours: string;
}
interface Question {
  edited: NonNullable<Refusal["edited"]>;
  differences: readonly Difference[];
  decide: (choice: "theirs" | "yours" | undefined) => void;
}

const textOf = (value: unknown = "") =>
  typeof value === "string" ? value : value === null ? "" : JSON.stringify(value, null, 2);

/** The fields that the other one has changed, and not to what is saved now. */
function differencesOf(began: Version, now: Version, body: object, by: string | null): Difference[] {
  const texts = (of: object, name: string) => textOf((of as Record<string, unknown>)[name]);
  return Object.keys(body).flatMap((name) => {
    const [theirs, yours] = [texts(now, name), texts(body, name)];
    // A member may have changed what no record shows, as a password; the service itself changes none of it.
    if (!(name in now))
      return by === null ? [] : [{ name: name.replaceAll("_", " "), theirs: "(not shown)", yours: "(not shown)" }];
    if (theirs === texts(began, name) || theirs === yours) return [];
    return [{ name: name.replaceAll("_", " "), theirs, yours }];
  });
}

/** Saves of a record that others may edit, too; `dialog` is to be shown. */
export function useEdit(of: Pick<Edited, "id" | "read"> | undefined) {
  const queries = useQueryClient();
  const [question, setQuestion] = useState<Question>();
  const saveFrom: SaveFrom = async (began, body, write) => {
    if (!of) return write({ context: {} });
    for (let seen = began; ; ) {
      try {
        return await write({ context: { began: { id: of.id, updated_at: seen.updated_at } } });
      } catch (refused) {
        const { edited } = refusalOf(refused);
        if (!edited) throw refused;
        const { data: now } = await of.read();
        const differences = differencesOf(seen, now, body, edited.by);
        // The change may be one of other fields, or of none that an editor sees.
        if (differences.length > 0) {
          const choice = await new Promise((decide: Question["decide"]) =>
            setQuestion({ edited, differences, decide }),
          );
          setQuestion(undefined);
          if (choice === undefined) throw refused;
          if (choice === "theirs") {
            await queries.invalidateQueries();
            throw new Kept();
          }
        }
        seen = now;
      }
    }
  };
  return { saveFrom, dialog: question && <Decision {...question} /> };
}

function Decision({ edited: { by, at }, differences, decide }: Question) {
  return (
    <Dialog title={`${by ?? "Someone else"} has changed this`} onClose={() => decide(undefined)}>
      <p>
        It was changed at <When at={at} />, after you had opened it. Keep that change, or save yours over it. Lines with
        − are theirs alone, and lines with + yours.
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
          Save yours over it
        </button>
      </div>
    </Dialog>
  );
}
