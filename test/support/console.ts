import { createTRPCClient, httpLink, TRPCClientError } from "@trpc/client";
import type { ConsoleRouter } from "../../api/console/router.ts";
import type { Role } from "../../db/entities/team.ts";
import { makeLink, signInUrl } from "../../domain/access/sessions.ts";
import { backdoor, makeMember, type TestTeam } from "./factories.ts";
import { stack } from "./stack.ts";

/** The cookies of a browser. */
export type Cookies = Record<string, string>;

/**
 * A request to the console as a browser makes it: with its cookies, which the answer changes, and the page's origin.
 * @param at where the API listens; the stack's unless given
 */
export async function consoleFetch(
  cookies: Cookies,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
  at?: string,
): Promise<Response> {
  const { origin } = await stack();
  const response = await fetch(`${at ?? origin}/console${path}`, {
    method,
    headers: {
      cookie: Object.entries(cookies)
        .map(([name, value]) => `${name}=${value}`)
        .join("; "),
      origin,
      ...(body !== undefined && { "content-type": "application/json" }),
      ...headers,
    },
    ...(body !== undefined && {
      body: typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body),
    }),
    redirect: "manual",
  });
  for (const set of response.headers.getSetCookie()) {
    const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(set) ?? [];
    if (value === "") delete cookies[name];
    else cookies[name] = value;
  }
  return response;
}

/** The part of a link of `member:link` behind `#`. */
export async function linkFor(memberId: string): Promise<string> {
  const { orm, vault } = await backdoor();
  const { origin } = await stack();
  return new URL(signInUrl(vault, origin, await makeLink(orm.em.fork(), memberId))).hash.slice(1);
}

/** A browser that is signed in as a member. */
export async function signIn(memberId: string): Promise<Cookies> {
  const link = await linkFor(memberId);
  const cookies: Cookies = {};
  const { status } = await consoleFetch(cookies, "POST", "/session", { link });
  if (status !== 200) throw new Error(`the link was answered ${status}`);
  return cookies;
}

/** Calls the console's procedures with a browser's cookies, for a team. */
export async function consoleClient(
  cookies: Cookies,
  teamId: string,
  environment: "LIVE" | "TEST" = "LIVE",
): Promise<ReturnType<typeof createTRPCClient<ConsoleRouter>>> {
  const { origin } = await stack();
  return createTRPCClient<ConsoleRouter>({
    links: [
      httpLink({
        url: `${origin}/console/trpc`,
        headers: ({ op }) => {
          const { dryRun, idempotencyKey, began } = op.context as {
            dryRun?: boolean;
            idempotencyKey?: string;
            began?: string;
          };
          return {
            origin,
            cookie: Object.entries(cookies)
              .map(([name, value]) => `${name}=${value}`)
              .join("; "),
            "mailkeel-team": teamId,
            "mailkeel-environment": environment,
            ...(dryRun && { "mailkeel-dry-run": "true" }),
            ...(idempotencyKey && { "idempotency-key": idempotencyKey }),
            ...(began && { "mailkeel-began": began }),
          };
        },
      }),
    ],
  });
}

/** The code of the refusal of a call; "answered" when it is none. */
export const refusalCodeOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => "answered",
    (error) => {
      if (error instanceof TRPCClientError) return (error.data as { code?: string } | null)?.code ?? error.message;
      throw error;
    },
  );

/** The console of a new member of a team. */
export const clientAs = async ({ em, team }: Pick<TestTeam, "em" | "team">, role: Role) =>
  consoleClient(await signIn((await makeMember(em, team.id, role)).id), team.id);

/** The console of a new member of a team. */
export async function clientNamed(
  { em, team }: Pick<TestTeam, "em" | "team">,
  name: string,
  role: Role,
): Promise<Awaited<ReturnType<typeof consoleClient>>> {
  const member = await makeMember(em, team.id, role);
  member.name = name;
  await em.flush();
  return consoleClient(await signIn(member.id), team.id);
}
