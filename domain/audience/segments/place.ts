import { isDate } from "../field-values.ts";
import { charactersIn, hasControlCharacter, MAX_FIELD_TEXT_LENGTH } from "../rules.ts";

/** About a hundred years. */
export const MAX_DAYS = 36_500;

/** Of an unknown property that a message repeats. */
const MAX_SHOWN_LENGTH = 40;

/** An instant in ISO 8601, with its offset and at most milliseconds, as the database has them. */
const INSTANT = /^(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,3})?)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/;

/** Its message begins with the JSON path of the part. */
export class ConditionProblem extends Error {
  override name = "ConditionProblem";
}

/** A value within conditions, with its JSON path. Reading a value of another kind throws a `ConditionProblem`. */
export class Place {
  readonly path: string;
  readonly value: unknown;

  /** @param path such as `conditions.all[0].value` */
  constructor(path: string, value: unknown) {
    this.path = path;
    this.value = value;
  }

  /** @param rule the rest of a sentence whose subject is this place */
  problem(rule: string): ConditionProblem {
    return new ConditionProblem(`${this.path} ${rule}`);
  }

  keys(): string[] {
    return Object.keys(this.#object());
  }

  /** Its value is undefined where it is left out. */
  at(key: string): Place {
    const object = this.#object();
    return new Place(`${this.path}.${key}`, Object.hasOwn(object, key) ? object[key] : undefined);
  }

  /** A misspelt property would be ignored. */
  refuseBeside(...known: readonly string[]): void {
    const other = this.keys().find((key) => !known.includes(key));
    if (other === undefined) return;
    throw this.problem(`takes ${known.join(", ")}, and not ${JSON.stringify(other.slice(0, MAX_SHOWN_LENGTH))}`);
  }

  elements(): Place[] {
    const { path, value } = this;
    if (!Array.isArray(value) || value.length === 0) throw this.problem("must be a list that is not empty");
    return value.map((element: unknown, i) => new Place(`${path}[${i}]`, element));
  }

  word<T extends string>(words: readonly T[]): T {
    const word = words.find((known) => known === this.value);
    if (word === undefined) throw this.problem(`must be one of ${words.join(", ")}`);
    return word;
  }

  choice<T>(choices: Readonly<Record<string, T>>): T {
    const word = this.word(Object.keys(choices));
    const choice = choices[word];
    if (choice === undefined) throw new Error(`there is no ${word}`);
    return choice;
  }

  /** Of one line. */
  text(): string {
    const { value } = this;
    const isText =
      typeof value === "string" && charactersIn(value) <= MAX_FIELD_TEXT_LENGTH && !hasControlCharacter(value);
    // Postgres stores no half of a surrogate pair.
    if (isText && value.isWellFormed()) return value;
    throw this.problem(`must be a text of one line and at most ${MAX_FIELD_TEXT_LENGTH} characters`);
  }

  boolean(): boolean {
    if (typeof this.value === "boolean") return this.value;
    throw this.problem("must be true or false");
  }

  number(): number {
    if (typeof this.value === "number" && Number.isFinite(this.value)) return this.value;
    throw this.problem("must be a number");
  }

  days(least: number): number {
    const { value } = this;
    if (typeof value === "number" && Number.isInteger(value) && value >= least && value <= MAX_DAYS) return value;
    throw this.problem(`must be a whole number of days from ${least} to ${MAX_DAYS}`);
  }

  /** `YYYY-MM-DD`, or the distance from today; undefined for another value. */
  day(): string | number | undefined {
    const { value } = this;
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      this.refuseBeside("days_from_today");
      return this.at("days_from_today").days(-MAX_DAYS);
    }
    return typeof value === "string" && isDate(value) ? value : undefined;
  }

  /** In UTC; undefined for another value. */
  instant(): string | undefined {
    const { value } = this;
    const [, day = ""] = (typeof value === "string" && INSTANT.exec(value)) || [];
    if (typeof value !== "string" || !isDate(day)) return undefined;
    const instant = new Date(value).toISOString();
    // Postgres and ISO 8601 write the years 1 to 9999 alike.
    return /^(?!0000)\d{4}-/.test(instant) ? instant : undefined;
  }

  #object(): Readonly<Record<string, unknown>> {
    const { value } = this;
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw this.problem("must be an object");
    return value as Record<string, unknown>;
  }
}
