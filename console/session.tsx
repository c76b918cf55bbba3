import { useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { createContext, use } from "react";
import type { Session } from "../api/console/http.ts";
import { type Client, type Place, refusalOf, request } from "./api.ts";

type Team = Session["teams"][number];
export type Role = Team["role"];

export const useSession = () =>
  useQuery({ queryKey: ["session"], queryFn: () => request<Session>("GET", "/session"), retry: false });

/** The team, environment and client of every page below a team. */
export interface Workspace extends Place {
  client: Client;
  current: Team;
  /** The start of the links of this team and environment: `/team_…/live`. */
  base: string;
}

const WorkspaceContext = createContext<Workspace | null>(null);
export const WorkspaceProvider = WorkspaceContext.Provider;

export function useWorkspace(): Workspace {
  const workspace = use(WorkspaceContext);
  if (!workspace) throw new Error("outside of a team's pages");
  return workspace;
}

interface Reading<Data> {
  /** The time until it is read again. */
  poll?: (data: Data) => number | false;
  staleTime?: number | "static";
  gcTime?: number;
}

/** Options of a query that is read again after a time. */
export const polling = <Data,>(poll: Reading<Data>["poll"]) => ({
  refetchInterval: ({ state: { data: last, error } }: { state: { data: Data | undefined; error: Error | null } }) =>
    // Not on without a session: many wrong ones count against the network.
    (last !== undefined && (!error || refusalOf(error).status !== 401) && poll?.(last)) || false,
  refetchIntervalInBackground: false,
});

/** The answer of a procedure for the team in this environment. The page, or its part, waits for it, and fails with it. */
export function useData<Data>(
  key: readonly unknown[],
  read: (client: Client) => Promise<{ data: Data }>,
  { poll, ...options }: Reading<Data> = {},
): Data {
  const { base, client } = useWorkspace();
  const { data } = useSuspenseQuery({
    queryKey: [base, ...key],
    queryFn: async () => (await read(client)).data,
    ...polling(poll),
    ...options,
  });
  return data;
}

/** The names of the roles; each may do more than the one before. */
export const ROLES: Record<Role, string> = { VIEWER: "Viewer", EDITOR: "Editor", ADMIN: "Admin", OWNER: "Owner" };
const RANK = Object.keys(ROLES);
/** Whether a role is at least another. The server decides; this hides what it would refuse. */
export const isAtLeast = (role: Role, least: Role): boolean => RANK.indexOf(role) >= RANK.indexOf(least);
/** Whether the member has at least this role. */
export const useRole = (least: Role): boolean => isAtLeast(useWorkspace().current.role, least);
