import { Menu } from "@base-ui/react/menu";
import { createContext, type ReactNode, use, useEffect, useId, useState } from "react";

interface Entry {
  /** Its name for screen readers. */
  title: string;
  /** Its text, where its row says the rest of the title. */
  short?: string | undefined;
  kind?: "primary" | "danger" | undefined;
  onOpen: () => void;
}

/** The entries of the menu around an opener. */
export const Entries = createContext<Map<string, Entry> | undefined>(undefined);

/** A button that opens something; inside of `More` an entry of its menu. */
export function Opener(entry: Entry) {
  const entries = use(Entries);
  const id = useId();
  // The menu reads them as it opens.
  useEffect(() => void entries?.set(id, entry));
  useEffect(() => () => void entries?.delete(id), [entries, id]);
  if (entries) return null;
  const { title, short = title, kind, onOpen } = entry;
  return (
    <button type="button" className={kind === "primary" ? kind : undefined} aria-label={title} onClick={onOpen}>
      {short}
    </button>
  );
}

/** A quiet menu of rare acts and of those that destroy, which stand last. @param of the name of their record, in a row */
export function More({ of, children }: { of?: string; children: ReactNode }) {
  const [entries] = useState(() => new Map<string, Entry>());
  // It opens inside of its page or dialog, which names it to screen readers.
  const [box, setBox] = useState<HTMLElement | null>(null);
  return (
    <Entries value={entries}>
      {children}
      <Menu.Root modal={false}>
        <Menu.Trigger className="icon" aria-label={of === undefined ? "More actions" : `More actions: ${of}`}>
          ⋯
        </Menu.Trigger>
        <span ref={setBox} />
        <Menu.Portal container={box}>
          <Menu.Positioner className="popup" align="end" positionMethod="fixed">
            <Menu.Popup className="options">
              <Items entries={entries} />
            </Menu.Popup>
          </Menu.Positioner>
        </Menu.Portal>
      </Menu.Root>
    </Entries>
  );
}

const Items = ({ entries }: { entries: ReadonlyMap<string, Entry> }) =>
  [...entries]
    .sort(([, a], [, b]) => Number(a.kind === "danger") - Number(b.kind === "danger"))
    .map(([id, { title, short = title, onOpen }]) => (
      <Menu.Item key={id} aria-label={title} onClick={onOpen}>
        {short}
      </Menu.Item>
    ));
