import { useNavigate, useSearch } from "@tanstack/react-router";
import { Select } from "./form.tsx";

type Filters = Record<string, string | undefined>;

/** The search parameters of the page's URL, and how to change some of them. */
export function useFilters(): [Filters, (patch: Filters, options?: { ignoreBlocker: boolean }) => void] {
  const search = useSearch({ strict: false }) as Filters;
  const navigate = useNavigate();
  return [
    search,
    (patch, options) =>
      void navigate({ to: ".", search: { ...search, ...patch }, replace: true, resetScroll: false, ...options }),
  ];
}

/** The value of a filter, where it is one of the choices. */
export const choiceOf = <Choice extends string>(choices: Readonly<Record<Choice, unknown>>, value = "") =>
  value in choices ? (value as Choice) : undefined;

/** A search that begins with Enter or its button. @param placeholder in the place of its buttons */
export function SearchFilter({ name, label, placeholder }: { name: string; label: string; placeholder?: string }) {
  const [{ [name]: value = "" }, set] = useFilters();
  return (
    <search key={value}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          set({ [name]: String(new FormData(event.currentTarget).get(name)).trim() || undefined });
        }}
      >
        <label>
          <span className="muted">{label}</span>
          <input type="search" name={name} defaultValue={value} maxLength={320} placeholder={placeholder} />
        </label>
        {!placeholder && <button type="submit">Search</button>}
        {value && !placeholder && (
          <button type="button" className="plain" onClick={() => set({ [name]: undefined })}>
            Clear
          </button>
        )}
      </form>
    </search>
  );
}

interface ChoiceProps {
  name: string;
  label: string;
  /** The label of no choice. */
  any: string;
  /** Texts by values. */
  choices: Readonly<Record<string, string>>;
}

export function ChoiceFilter({ name, label, any, choices }: ChoiceProps) {
  const [{ [name]: value = "" }, set] = useFilters();
  return (
    <label>
      <span className="muted">{label}</span>
      <Select
        value={value}
        choices={{ "": any, ...choices }}
        onChange={(chosen) => set({ [name]: chosen || undefined })}
      />
    </label>
  );
}
