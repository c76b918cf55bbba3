import { ENVIRONMENTS } from "../db/entities/shared.ts";
import { oneOf, wholeNumber } from "./options.ts";
import type { Outcome, Session } from "./session.ts";

/** Reads a value; of one that is repeated, `previous` is that of those before. */
type Parse<T> = (text: string, previous?: T) => T;

/** An argument or an option of a command: the key of `maxConnections` is `--max-connections`. */
export interface Parameter<T> {
  kind: "argument" | "option";
  /** What the help shows as its value; a switch has none. */
  value?: string;
  description: string;
  parse?(text: string, previous?: T): T;
  fallback?: T;
  isRequired?: boolean;
  /** The name of the option where it is not its key. */
  name?: string;
  /** Keys of options that may not stand beside it. */
  conflicts?: string[];
}

type Parameters = Readonly<Record<string, Parameter<unknown>>>;
type Values<P extends Parameters> = { [Key in keyof P]: P[Key] extends Parameter<infer T> ? T : never };

/** A command of the command line. */
export interface AppCommand {
  description: string;
  parameters: Parameters;
  /** Whether the database must admit the command with its keys, as it does every process; yes unless given. */
  isAdmitted?: boolean;
  /** @returns undefined when it has printed its result itself */
  run(session: Session, values: object): Promise<Outcome | undefined>;
}

export type Commands = Readonly<Record<string, AppCommand>>;

/** @param run gets the values of the parameters by their keys */
export const command = <P extends Parameters>(
  description: string,
  parameters: P,
  run: (session: Session, values: Values<P>) => Promise<Outcome | undefined>,
): AppCommand => ({ description, parameters, run: (session, values) => run(session, values as Values<P>) });

/** An argument; a command has them in the order of their keys. */
export function argument(description: string): Parameter<string>;
export function argument<T>(description: string, parse: Parse<T>): Parameter<T>;
export function argument<T>(description: string, parse?: Parse<T>): Parameter<T> {
  return { kind: "argument", description, ...(parse && { parse }) };
}

/** An option. @param value what the help shows as its value, such as `<id>` */
export function option(value: string, description: string): Parameter<string | undefined>;
export function option<T>(value: string, description: string, parse: Parse<T>): Parameter<T | undefined>;
export function option<T>(value: string, description: string, parse: Parse<T>, fallback: T): Parameter<T>;
export function option<T>(value: string, description: string, parse?: Parse<T>, fallback?: T): Parameter<unknown> {
  return { kind: "option", value, description, ...(parse && { parse }), ...(fallback !== undefined && { fallback }) };
}

export function required(value: string, description: string): Parameter<string>;
export function required<T>(value: string, description: string, parse: Parse<T>): Parameter<T>;
export function required<T>(value: string, description: string, parse?: Parse<T>): Parameter<unknown> {
  return { kind: "option", value, description, ...(parse && { parse }), isRequired: true };
}

/** An option without a value. */
export const flag = (description: string): Parameter<boolean> => ({ kind: "option", description });

const TEAM = "the team; the demo team of a running stack unless given";

/** The team of a command, for `teamOf`. */
export const OF_TEAM = { team: option("<id>", TEAM) };

/** The team and its environment, for `tenantOf`. */
export const OF_TENANT = {
  ...OF_TEAM,
  environment: option("<name>", "live or test", oneOf(ENVIRONMENTS), "LIVE"),
};

/** Of a command that lists records of all teams. */
export const OF_ANY_TEAM = { team: option("<id>", "of one team; all unless given") };

export const LIMIT = { limit: option("<number>", "so many at most", wholeNumber(1, 10_000), 50) };
