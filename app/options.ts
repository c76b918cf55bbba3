import { domainToASCII } from "node:url";
import { InvalidArgumentError } from "commander";
import { normaliseAddress, normaliseDomain } from "../domain/address.ts";
import { charactersIn, hasControlCharacter, MAX_CONSENT_WORDS, MAX_NAME_LENGTH } from "../domain/audience/rules.ts";
import { ApiError } from "../domain/errors.ts";
import type { EventName } from "../domain/webhooks/catalogue.ts";
import { eventProblems, resolveEvents } from "../domain/webhooks/subscription.ts";
import { isLoopback } from "../lib/address-guard.ts";

/** One of a fixed set of words, in any case. */
export const oneOf =
  <T extends string>(words: readonly T[]) =>
  (text: string): T => {
    const word = words.find((known) => known.toLowerCase() === text.toLowerCase());
    if (word === undefined) throw new InvalidArgumentError(`It is one of: ${words.join(", ")}.`);
    return word;
  };

/** The description and the values of an option: some of a fixed set of words, one at least, comma-separated, in any case. */
export const listOf = <T extends string>(known: readonly T[]) => {
  const parse = (text: string): T[] => {
    const named = words(text);
    if (named.length === 0) throw new InvalidArgumentError(`Name one at least, of: ${known.join(", ")}.`);
    return named.map(oneOf(known));
  };
  return [`comma-separated, of ${known.join(", ")}`, parse] as const;
};

export const wholeNumber =
  (min: number, max = Number.MAX_SAFE_INTEGER) =>
  (text: string): number => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) throw new InvalidArgumentError(`It is a whole number from ${min} to ${max}.`);
    return value;
  };

export const NONE = "none";

export const numberOrNone =
  (min: number, max: number) =>
  (text: string): number | typeof NONE => {
    if (text === NONE) return NONE;
    try {
      return wholeNumber(min, max)(text);
    } catch {
      throw new InvalidArgumentError(`It is a whole number from ${min} to ${max}, or ${NONE}.`);
    }
  };

/** @param refusal a sentence for a text that is no JSON */
export function parseJson(text: string, refusal: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError("validation_failed", refusal);
  }
}

/** An email address, in its stored spelling. */
export function address(text: string): string {
  const normalised = normaliseAddress(text);
  if (normalised === undefined) throw new InvalidArgumentError("It is not an email address.");
  return normalised;
}

/** Domain names, comma-separated, in their stored spelling. */
export const domains = (text: string): string[] =>
  words(text).map((name) => {
    const normalised = normaliseDomain(name);
    if (normalised === undefined) throw new InvalidArgumentError(`"${name}" is not a domain name.`);
    return normalised;
  });

/** A domain name, in ASCII, as DNS has it. */
export function asciiDomain(text: string): string {
  const [domain, ...more] = domains(text);
  if (domain === undefined || more.length > 0) throw new InvalidArgumentError("It is one domain name.");
  return domainToASCII(domain);
}

/** A text that is not empty, as of an unset variable of the shell. */
export function nonEmpty(text: string): string {
  if (text.trim() === "") throw new InvalidArgumentError("It is empty.");
  return text;
}

const MAX_REASON_CHARS = 500;

/** A text in which an operator gives a reason. */
export function reasonText(text: string): string {
  if (text.trim() === "" || text.length > MAX_REASON_CHARS) {
    throw new InvalidArgumentError(`It has 1 to ${MAX_REASON_CHARS} characters.`);
  }
  return text;
}

const lineOf =
  (max: number) =>
  (text: string): string => {
    const line = text.trim();
    if (line === "" || charactersIn(line) > max || hasControlCharacter(line)) {
      throw new InvalidArgumentError(`It has one line and 1 to ${max} characters.`);
    }
    return line;
  };

/** The name of a record, trimmed, under the rules that the API has for it; and the words of a consent. */
export const recordName = lineOf(MAX_NAME_LENGTH);
export const consentWords = lineOf(MAX_CONSENT_WORDS);

/** A text that may be given several times. */
export const collect = (text: string, others: string[] = []): string[] => [...others, text];

/** Words, comma-separated. */
export const words = (text: string): string[] =>
  text
    .split(",")
    .map((word) => word.trim())
    .filter((word) => word !== "");

const instantWhere =
  (which: string, isAllowed: (at: Date) => boolean, example = "2026-01-31T12:00:00Z") =>
  (text: string): Date => {
    const at = new Date(text);
    // Postgres does not read a year of five digits.
    if (!(at.getUTCFullYear() < 10_000 && isAllowed(at))) {
      throw new InvalidArgumentError(`It is a point in time${which}, such as ${example}.`);
    }
    return at;
  };

/** Points in time, ISO 8601. */
export const pastInstant = instantWhere(" that has passed", (at) => at <= new Date());
export const futureInstant = instantWhere(" to come", (at) => at > new Date(), "2030-01-31T12:00:00Z");

export function absoluteUrl(text: string): string {
  if (!URL.canParse(text)) throw new InvalidArgumentError("It is not a URL.");
  return text;
}

/** An http URL whose host is this machine. */
export function localUrl(text: string): string {
  const { protocol, hostname } = new URL(absoluteUrl(text));
  const host = hostname.replace(/^\[|\]$/g, "");
  if (/^https?:$/.test(protocol) && (host === "localhost" || isLoopback(host))) return text;
  throw new InvalidArgumentError("Give a URL of this machine, such as http://localhost:4000/hooks.");
}

/** Webhook events, comma-separated, or * for all. */
export function eventNames(text: string): EventName[] {
  const names = words(text);
  const [problem] = eventProblems(names);
  if (problem) throw new InvalidArgumentError(`${names[problem.index]} ${problem.message}.`);
  if (names.length === 0) throw new InvalidArgumentError("Name one event at least.");
  return resolveEvents(names);
}
