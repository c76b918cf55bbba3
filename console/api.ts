import { createTRPCClient, httpLink, TRPCClientError } from "@trpc/client";
import type { ConsoleRouter } from "../api/console/router.ts";
import { refusedHere } from "./check.ts";

/** The team and the environment that a page is about; they stand in its URL. */
export interface Place {
  team: string;
  environment: "live" | "test";
}

export type CallContext = {
  /** Changes nothing, and answers the impact. */
  dryRun?: boolean;
  /** One for each intended effect: a retry under the same key has no second effect. */
  idempotencyKey?: string;
  /** The record that a save replaces and the version that it began with: the save is refused once that has changed. */
  began?: { id: string; updated_at: string };
};

const headersOf = ({ team, environment }: Place) => ({
  "mailkeel-team": team,
  "mailkeel-environment": environment.toUpperCase(),
});

/**
 * The procedures of the API (`api.*`) and of the app alone (`app.*`), for one team and environment.
 * @param onEnded called when the session has ended
 */
export const clientOf = (place: Place, onEnded: () => void) =>
  createTRPCClient<ConsoleRouter>({
    links: [
      httpLink({
        url: "/console/trpc",
        fetch: async (url, init) => {
          const response = (await refusedHere(url, init?.body)) ?? (await reach(url, init as RequestInit));
          // A gateway before the service answers by itself.
          if (!response.headers.get("content-type")?.includes("json")) throw new Unreached();
          if (response.status === 401) onEnded();
          return response;
        },
        headers: ({ op }) => {
          const { dryRun, idempotencyKey, began } = op.context as CallContext;
          return {
            ...headersOf(place),
            ...(dryRun && { "mailkeel-dry-run": "true" }),
            ...(idempotencyKey && { "idempotency-key": idempotencyKey }),
            ...(began && { "mailkeel-began": `${began.id} ${began.updated_at}` }),
          };
        },
      }),
    ],
  });

export type Client = ReturnType<typeof clientOf>;

/** The data of a procedure's answer. */
export type DataOf<Read extends (...args: never[]) => Promise<{ data: unknown }>> = Awaited<ReturnType<Read>>["data"];

/** A refusal of the service, as the API answers it. */
export interface Refusal {
  message: string;
  code?: string | undefined;
  status?: number | undefined;
  /** The field that it is about. */
  param?: string | undefined;
  /** Of each field with one, its problem: a sentence that begins with the field's name, or without it. */
  problems?: Readonly<Record<string, string>> | undefined;
  requestId?: string | undefined;
  /** Another has changed the record since: a member by name, or null for someone else. */
  edited?: { by: string | null; at: string } | undefined;
}

/** A sentence for programs. The console makes a new key by itself. */
const ABOUT_KEYS = / Then use a new Idempotency-Key:.*$/;

/** The service did not answer. */
class Unreached extends Error {
  override message = "The service did not answer.";
}

/** @throws {Unreached} */
export const reach = (url: string | URL | Request, init: RequestInit): Promise<Response> =>
  fetch(url, init).catch((error) => {
    throw init.signal?.aborted ? error : new Unreached();
  });

const UNREACHABLE = "The service cannot be reached. Check your connection, then try again.";
const OFFLINE = "You are offline. Your changes are kept: try again when you are back online.";

export function refusalOf(error: unknown): Refusal {
  if (error instanceof HttpRefusal) return error.refusal;
  const call = error instanceof TRPCClientError ? error : undefined;
  if (call?.data) return { message: call.message.replace(ABOUT_KEYS, ""), ...call.data };
  const cause = call?.cause ?? error;
  if (cause instanceof Unreached)
    return { message: (navigator as { onLine?: boolean }).onLine === false ? OFFLINE : UNREACHABLE };
  return {
    message: `Something went wrong on this page. Reload it; if it fails again, report this to an operator: ${cause}`,
    requestId: (call?.meta?.["response"] as Response | undefined)?.headers.get("x-request-id") ?? undefined,
  };
}

/** The field of a form for a value, or for one of a list: `sites[0]` is a line of `sites`. */
export const fieldOf = (param: string): string => param.replace(/\[.*/, "");

/** The refusal's words for a field, or for another value, that it names. */
export function problemOf(error: unknown, name: string): string | undefined {
  const { param = "", message = "", problems = { [param]: message } }: Partial<Refusal> = error ? refusalOf(error) : {};
  const [path = "", given] = Object.entries(problems).find(([path]) => path === name || fieldOf(path) === name) ?? [];
  return given && capitalized(given.startsWith(path) ? given.slice(path.length).replace(/^:? /, "") : given);
}

export const capitalized = (text: string) => text.slice(0, 1).toUpperCase() + text.slice(1);

/** Nothing was saved: the member keeps what another one has saved, and the pages show that. */
export class Kept extends Error {}

export class HttpRefusal extends Error {
  readonly refusal: Refusal;
  constructor(refusal: Refusal) {
    super(refusal.message);
    this.refusal = refusal;
  }
}

/** A request beside the procedures, such as a sign-in. @param place of a body of bytes @throws {HttpRefusal} */
export async function request<T>(method: string, path: string, body?: object, place?: Place): Promise<T> {
  const json = { headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const bytes = { headers: place && headersOf(place), body: body as Blob };
  const sent = body && (body instanceof Blob ? bytes : json);
  const response = await reach(`/console${path}`, { method, ...(sent as RequestInit) });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer as T;
  const { error = {}, meta } = answer as { error?: Partial<Refusal>; meta?: { request_id?: string } };
  const message = error.message ?? `The service answered ${response.status}.`;
  throw new HttpRefusal({ ...error, message, status: response.status, requestId: meta?.request_id });
}
