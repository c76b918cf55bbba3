import { useNavigate, useSearch } from "@tanstack/react-router";

/** A search parameter of the page's URL, and a function that sets it, or takes it away. */
export function useParameter(name: string): [string | undefined, (value: string | undefined) => void] {
  const search = useSearch({ strict: false }) as Record<string, string | undefined>;
  const navigate = useNavigate();
  const set = (value: string | undefined) =>
    void navigate({
      to: ".",
      search: ((before: object) => ({ ...before, [name]: value || undefined })) as never,
      replace: true,
      resetScroll: false,
    });
  return [search[name], set];
}
