import type { Request, Response } from "express";
import { SESSION_DAYS } from "../../domain/access/sessions.ts";

const DAY_MS = 86_400_000;

/** Cookies of the console: that of the session, and that of the browser which asked for a link. */
export type ConsoleCookie = "session" | "sign_in";

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
  else res.cookie(name, value, { ...options, maxAge: SESSION_DAYS * DAY_MS });
}
