import { Readable } from "node:stream";
import { type Info, parse } from "csv-parse";
import type { ConsentStatus, SuppressionReason } from "../../db/entities/audience.ts";
import type { FieldValues } from "../../db/entities/contact.ts";
import { originalText } from "../../lib/csv.ts";
import { normaliseAddress, type StoredAddress, storedAddress } from "../address.ts";
import { type FieldTypes, fieldProblem, valueOfText } from "../audience/field-values.ts";
import { charactersIn, hasControlCharacter, MAX_PERSON_NAME_LENGTH } from "../audience/rules.ts";
import {
  COLUMNS,
  type Column,
  type Consent,
  columnKey,
  EXCLUSIONS,
  isMaybeAddress,
  isRefusal,
  likelyConsent,
  OWN_NAMES,
  REFUSAL_COLUMN,
  readConsent,
  readTracking,
  usualColumn,
  usualConsent,
} from "./columns.ts";
import { readText } from "./text.ts";

/** A quote that is never closed would read the rest of the file into memory. */
const MAX_RECORD_BYTES = 64 * 1024;
const NOT_DECODED = "\u{FFFD}";
const MAX_QUOTED_LENGTH = 100;
const MAX_QUOTED_NAMES = 20;

interface Header {
  /** One of `COLUMNS` or a custom field; undefined for one that is not imported. */
  columns: readonly (string | undefined)[];
  consent: readonly { at: number; name: string; key: string; yes: Consent; isMaybeAddress: boolean }[];
  /** Not imported although no caller said so. */
  unread: readonly { at: number; name: string }[];
}

export interface ColumnOptions {
  /** Columns of consent besides those with a usual name. */
  statusColumns?: readonly string[] | undefined;
  ignoreColumns?: readonly string[] | undefined;
  /** The use of each column, in the file's order. With it no column is found by its name. */
  uses?: readonly ColumnUse[] | undefined;
}

/** `none` is not imported, `ignored` neither, and is about something else than consent; `consent` states it. Else a name. */
export type ColumnUse = "none" | "ignored" | "consent" | (string & {});

export interface FileOptions extends ColumnOptions {
  /** They come before the usual names of other columns. */
  fields: FieldTypes;
  /** Every row is to be suppressed: one that states consent is refused, and a value that states nothing is no problem. */
  isBlockList?: boolean;
}

export interface FileNotes {
  ignoredColumns: string[];
  statusColumns: string[];
  /** Read so because they are not UTF-8. */
  windows1252Lines: number;
}

export class ImportError extends Error {
  override name = "ImportError";
}

const isBlank = (text: string): boolean => text.trim() === "";
/** Whether a line has more than separators and empty quotes. */
const hasText = (line: string): boolean => /[^\s,;"]/.test(line);

/** A file that is no text must not fill the screen. */
export function quoted(text: string): string {
  const start = text.trim().slice(0, MAX_QUOTED_LENGTH);
  return JSON.stringify(start.replace(/[\p{C}\u{FFFD}]/gu, "?"));
}

function quotedNames(names: string[]): string {
  const named = names.filter((name) => !isBlank(name));
  return [...named.slice(0, MAX_QUOTED_NAMES).map(quoted), ...(named.length > MAX_QUOTED_NAMES ? ["…"] : [])].join(
    ", ",
  );
}

const unclearConsent = (what: string, { uses }: ColumnOptions): ImportError =>
  new ImportError(
    uses
      ? `${what}. Choose "consent" for a column that says whether the person may be mailed, and "about something else" for any other.`
      : `${what}. Say --ignore-column NAME for a column that is about something else, and --status-column NAME for one that says whether the person may be mailed.`,
  );

export interface PersonRow extends StoredAddress {
  line: number;
  firstName: string | null;
  lastName: string | null;
  fields: FieldValues;
  /** Null where the file says nothing against the person. */
  exclusion: SuppressionReason | null;
  /** Null where the file does not say it. */
  tracking: ConsentStatus | null;
}

export interface RefusedRow {
  line: number;
  problem: string;
  /** As the column of addresses has it; missing where the row could not be read. */
  address?: string;
  /** As the file has them; missing where a quote is never closed. */
  cells?: string[];
}

interface TextRow {
  line: number;
  texts: string[];
}

/**
 * Reads the people of a CSV file (RFC 4180; commas, semicolons or tabs) in the file's order. A line `sep=;` may come before
 * the header. As spreadsheets write rows: cells may be missing at the end of one, which are empty, and further ones be empty.
 * @param notes is filled meanwhile @throws {ImportError}
 */
export async function* readPeople(
  input: Readable,
  options: FileOptions,
  notes: FileNotes,
): AsyncGenerator<PersonRow | RefusedRow> {
  let header: Header | undefined;
  const unnamed = new Set<number>();
  const texts = readText(input, (lines) => (notes.windows1252Lines += lines));
  for await (const record of readRecords(texts)) {
    if (header) {
      if ("problem" in record) {
        yield record;
        continue;
      }
      const read = readPerson(header, options, record);
      yield "problem" in read ? { ...read, cells: record.texts } : read;
      for (const at of unnamed) {
        if (isBlank(record.texts[at] ?? "")) continue;
        notes.ignoredColumns.push("");
        unnamed.delete(at);
      }
      continue;
    }
    if ("problem" in record) throw new ImportError(`The header row cannot be read: ${record.problem}.`);
    header = readHeader(record.texts, options);
    const { columns, consent } = header;
    notes.statusColumns.push(...consent.map(({ name }) => name));
    for (const [at, name] of record.texts.map((text) => text.trim()).entries()) {
      if (columns[at] !== undefined || notes.statusColumns.includes(name)) continue;
      // One without a name is a column only if a row has a text there.
      if (name === "") unnamed.add(at);
      else notes.ignoredColumns.push(name);
    }
  }
  if (!header) throw new ImportError("The file is empty; its first row must name the columns, `email` among them.");
}

/**
 * The header and the rows after it as they are; rows that cannot be read are left out, and the last columns, if they have
 * neither a name nor a text in those rows. @throws {ImportError}
 */
export async function readStart(input: Readable, rows: number): Promise<{ names: string[]; rows: string[][] }> {
  const read: string[][] = [];
  for await (const record of readRecords(readText(input, () => {}))) {
    if ("texts" in record) read.push(record.texts);
    if (read.length > rows) break;
  }
  const [names = [], ...others] = read;
  const columns = Math.max(0, ...read.map((texts) => texts.findLastIndex((text) => !isBlank(text)) + 1));
  return { names: names.slice(0, columns), rows: others };
}

function separatorOf(line: string): string {
  const bare = line.replace(/"[^"]*"/g, "");
  const [most = ","] = [",", ";", "\t"].toSorted((a, b) => bare.split(b).length - bare.split(a).length);
  return most;
}

/** Quotes stand around a whole field or not at all, and those inside are doubled. */
function wellQuoted(separator: string): RegExp {
  const field = `(?:"(?:[^"]|"")*"|[^"${separator}]*)`;
  return new RegExp(`^${field}(?:[${separator}]${field})*\n*$`);
}

const countBreaks = (text: string): number => text.split("\n").length - 1;

/**
 * A record that breaks a rule of CSV is refused, and one whose fields are all empty is none.
 * @param texts with `\n` between lines @throws {ImportError}
 */
async function* readRecords(texts: AsyncGenerator<string>): AsyncGenerator<TextRow | RefusedRow> {
  let head = "";
  while (!head.split("\n").slice(0, -1).some(hasText) && head.length < MAX_RECORD_BYTES) {
    const { value, done } = await texts.next();
    if (done) break;
    head += value;
  }
  const firstLine = head.split("\n").find(hasText) ?? "";
  const stated = /^"?sep=([,;\t])"?$/i.exec(firstLine)?.[1];
  const separator = stated ?? separatorOf(firstLine);
  // The line stays, empty, for the numbers of those that follow.
  const start = stated === undefined ? head : head.replace(firstLine, "");

  let unclosed: RefusedRow | undefined;
  const parser = parse({
    delimiter: separator,
    info: true,
    raw: true,
    record_delimiter: "\n",
    relax_column_count: true,
    // Refused below: the parser would take the lines after a stray quote for quoted text.
    relax_quotes: true,
    skip_empty_lines: true,
    skip_records_with_error: true,
    max_record_size: MAX_RECORD_BYTES,
    on_skip: (error, raw = "") => {
      const last = Number(error?.["lines"] ?? 0);
      const line = Math.max(1, last - countBreaks(raw.trim()));
      if (error?.code !== "CSV_QUOTE_NOT_CLOSED") {
        const why = `line ${line} begins a record longer than ${MAX_RECORD_BYTES} bytes; is a quote not closed there?`;
        parser.destroy(new ImportError(`The file cannot be read: ${why}`));
        return undefined;
      }
      const lost = last > line ? `; lines ${line} to ${last} are lost to it` : "";
      unclosed = { line, problem: `a quote is opened and never closed${lost}` };
      return undefined;
    },
  });
  const whole = Readable.from(
    (async function* () {
      yield start;
      yield* texts;
    })(),
  );
  whole.once("error", (error) => parser.destroy(error));
  whole.pipe(parser);
  const rule = wellQuoted(separator);
  for await (const item of parser as AsyncIterable<{ info: Info; record: string[]; raw: string }>) {
    const { info, record, raw } = item;
    // The record began that many breaks before the line that the parser has read.
    const line = info.lines - record.reduce((sum, field) => sum + countBreaks(field), 0);
    if (raw.includes('"') && !rule.test(raw.replace(/^\n+/, ""))) {
      yield { line, problem: "a quote stands where none may stand", cells: record };
    } else if (!record.every(isBlank)) yield { line, texts: record };
  }
  if (unclosed) yield unclosed;
}

function readHeader(names: string[], options: FileOptions): Header {
  const { isBlockList = false, statusColumns = [], ignoreColumns = [] } = options;
  const keys = names.map(columnKey);
  const usedAs = (use: ColumnUse) => [...names.keys()].filter((at) => options.uses?.[at] === use);
  const positions = (given: readonly string[]) =>
    given.flatMap((name) => {
      const found = [...keys.keys()].filter((at) => keys[at] === columnKey(name));
      if (found.length > 0) return found;
      throw new ImportError(`The header names no column ${quoted(name)}; it names ${quotedNames(names)}.`);
    });
  const refusals = options.uses ? [] : [...keys.keys()].filter((at) => keys[at] === columnKey(REFUSAL_COLUMN));
  const ignored = [...positions(ignoreColumns), ...usedAs("ignored"), ...refusals];
  const status = [...positions(statusColumns), ...usedAs("consent")];
  const known = knownColumns(options);
  const isFree = (i: number) => !ignored.includes(i) && !status.includes(i);
  const columns = names.map((name, i) => {
    if (options.uses) return known.find((column) => column === options.uses?.[i]);
    // A custom field with a usual name of consent is filled also when it is said to state none.
    if (status.includes(i) || (ignored.includes(i) && !usualConsent(keys[i] ?? ""))) return undefined;
    return known.find((column) => column === name) ?? known.find((column) => columnKey(column) === keys[i]);
  });
  for (const [i, key] of keys.entries()) {
    const usual = usualColumn(key);
    if (options.uses || usual === undefined || columns[i] !== undefined || columns.includes(usual)) continue;
    if (isFree(i) && known.includes(usual)) columns[i] = usual;
  }
  const missing = options.uses?.find(
    (use, at) => at < names.length && columns[at] === undefined && !OWN_NAMES.has(use),
  );
  if (missing !== undefined) {
    throw new ImportError(
      `There is no field ${quoted(missing)}. Choose another field for its column, and check the file again.`,
    );
  }
  for (const [i, column] of columns.entries()) {
    if (column !== undefined && columns.indexOf(column) !== i) {
      throw new ImportError(
        options.uses
          ? `Two columns are to be ${column}: choose one of them, and another field for the other.`
          : `The header names the column ${column} twice.`,
      );
    }
  }
  if (!columns.includes("email")) {
    if (options.uses) throw new ImportError("Choose the column that holds the addresses.");
    throw new ImportError(
      names.some((name) => name.includes("@"))
        ? "The first row names no columns: it holds an address. Put a row above it that names the column `email`."
        : `The header row names no column \`email\`; it names ${quotedNames(names)}. Rename the column of the addresses.`,
    );
  }
  const consent: Header["consent"][number][] = [];
  const unread: Header["unread"][number][] = [];
  const unclear: string[] = [];
  for (const [at, name] of names.entries()) {
    if (ignored.includes(at)) continue;
    const key = keys[at] ?? "";
    const isStatus = status.includes(at) || (isBlockList && key === "reason");
    const yes = isStatus ? (likelyConsent(key) ?? "agreed") : usualConsent(key);
    const isRead = columns[at] !== undefined;
    // A caller who says what each column is has read its name.
    if (isRead ? yes && !options.uses : !yes && likelyConsent(key)) unclear.push(name);
    else if (yes && !isRead)
      consent.push({ at, name: name.trim(), key, yes, isMaybeAddress: !isStatus && isMaybeAddress(key) });
    else if (!isRead) unread.push({ at, name });
  }
  if (unclear.length > 0 && !isBlockList) {
    throw unclearConsent(`The file may say who must not be mailed, in ${quotedNames(unclear)}`, options);
  }
  return { columns, consent, unread };
}

/** Only the address is read of a person who is to be suppressed. A field that has the name of a use is no column. */
const knownColumns = ({ fields, isBlockList = false }: FileOptions): string[] =>
  isBlockList ? ["email"] : [...COLUMNS, ...[...fields.keys()].filter((name) => !OWN_NAMES.has(name))];

/** The use of each column by its name, as far as that is clear. */
export function findUses(names: readonly string[], options: FileOptions): ColumnUse[] {
  const known = knownColumns(options);
  const uses: ColumnUse[] = [];
  for (const name of names) {
    const key = columnKey(name);
    if (key === columnKey(REFUSAL_COLUMN)) {
      uses.push("ignored");
      continue;
    }
    const found =
      known.find((column) => columnKey(column) === key) ?? known.find((column) => column === usualColumn(key));
    if (found !== undefined && !uses.includes(found) && !usualConsent(key)) uses.push(found);
    else uses.push(usualConsent(key) || (options.isBlockList && key === "reason") ? "consent" : "none");
  }
  return uses;
}

function readPerson(header: Header, options: FileOptions, { line, texts }: TextRow): PersonRow | RefusedRow {
  const { columns } = header;
  const types = options.fields;
  const values: Record<Column, string> = { email: "", first_name: "", last_name: "", tracking_consent: "" };
  const refused = (problem: string): RefusedRow => ({ line, problem, address: values.email });
  if (!texts.slice(columns.length).every(isBlank)) {
    return refused(`${texts.length} fields where the header names ${columns.length}`);
  }
  if (texts.some((text) => text.includes(NOT_DECODED))) return refused("a character that cannot be decoded");
  const fields: FieldValues = {};
  const problems: string[] = [];
  for (const [i, column] of columns.entries()) {
    const text = originalText((texts[i] ?? "").trim());
    if (column === undefined || text === "") continue;
    const type = OWN_NAMES.has(column) ? undefined : types.get(column);
    if (type === undefined) {
      values[column as Column] = text;
      continue;
    }
    const value = valueOfText(type, text);
    fields[column] = value;
    const problem = fieldProblem(types, column, value);
    if (problem !== undefined) problems.push(`${column} ${problem}`);
  }
  if (values.email === "") return refused("no email address");
  if (values.email.includes("*")) return refused("email is a pattern, not one address");
  if (normaliseAddress(values.email) === undefined) return refused("email is not an email address");
  for (const column of ["first_name", "last_name"] as const) {
    if (charactersIn(values[column]) > MAX_PERSON_NAME_LENGTH) {
      return refused(`${column} is longer than ${MAX_PERSON_NAME_LENGTH}`);
    }
    if (hasControlCharacter(values[column])) return refused(`${column} holds a control character`);
  }
  const tracking = readTracking(values.tracking_consent);
  if (tracking === undefined) return refused("tracking_consent says neither yes nor no");
  if (problems.length > 0) return refused(problems.join("; "));
  const exclusion = readExclusion(header, { line, texts }, options);
  if (exclusion !== null && typeof exclusion === "object") return refused(exclusion.problem);
  return {
    line,
    ...storedAddress(values.email),
    firstName: values.first_name || null,
    lastName: values.last_name || null,
    fields,
    exclusion,
    tracking,
  };
}

/**
 * One refusal among the columns is enough.
 * @throws {ImportError} for an unknown value that may be part of an address, and for a refusal in an unread column
 */
function readExclusion(
  { consent, unread }: Header,
  { line, texts }: TextRow,
  options: FileOptions,
): SuppressionReason | null | RefusedRow {
  const { isBlockList = false } = options;
  const read = consent.map((column) => {
    const text = (texts[column.at] ?? "").trim();
    // A block list of people who once subscribed may say when they did.
    return { ...column, text, value: readConsent(isBlockList ? "" : column.key, column.yes, text) };
  });
  const gravest = EXCLUSIONS.find((reason) => read.some(({ value }) => value === reason));
  const unknown = read.find(({ value }) => value === undefined);
  if (isBlockList) {
    const hasConsent = read.some(({ yes, value }) => value === "agreed" && (yes === "agreed" || !unknown));
    return hasConsent && !gravest
      ? { line, problem: "the row says that the person may be mailed" }
      : (gravest ?? "MANUAL");
  }
  const refusal = unread.find(({ at }) => isRefusal(texts[at] ?? ""));
  if (refusal) {
    throw unclearConsent(
      `Line ${line}: ${quoted(texts[refusal.at] ?? "")} in the column ${quoted(refusal.name)} may be a refusal`,
      options,
    );
  }
  if (!unknown) return gravest ?? null;
  const problem = `${quoted(unknown.text)} in the column ${quoted(unknown.name)} is neither a consent nor a refusal`;
  if (!unknown.isMaybeAddress) return { line, problem };
  throw unclearConsent(`Line ${line}: ${problem}`, options);
}
