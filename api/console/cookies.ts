import type { Request, Response } from "express";
import { SESSION_DAYS } from "../../domain/access/sessions.ts";

/** How long a sign-in at the provider may take. */
export const OIDC_MINUTES = 10;
const MINUTE_MS = 60_000;

/** How long the cookies are kept: that of the session, of the browser which asked for a link, and of a sign-in at the provider. */
const MINUTES = { session: SESSION_DAYS * 1_440, sign_in: SESSION_DAYS * 1_440, oidc: OIDC_MINUTES };
export type ConsoleCookie = keyof typeof MINUTES;

/** Behind https the name says that no other host has set it (`__Host-`). */
const nameOf = (cookie: ConsoleCookie, isSecure: boolean): string => `${isSecure ? "__Host-" : ""}mailkeel_${cookie}`;

export function readCookie({ headers }: Pick<Request, "headers">, cookie: ConsoleCookie, isSecure: boolean) {
  const name = nameOf(cookie, isSecure);
  const pairs = (headers.cookie ?? "").split(";").map((pair) => pair.trim().split("="));
  return pairs.find(([given]) => given === name)?.[1] || undefined;
}

/** Sets a cookie; deletes it for undefined. */
export function setCookie(res: Response, cookie: ConsoleCookie, value: string | undefined, isSecure: boolean): void {
  const options = { httpOnly: true, sameSite: "lax", path: "/", secure: isSecure } as const;
  const name = nameOf(cookie, isSecure);
  if (value === undefined) res.clearCookie(name, options);
  else res.cookie(name, value, { ...options, maxAge: MINUTES[cookie] * MINUTE_MS });
}
