import type { Readable } from "node:stream";
import { type Info, parse } from "csv-parse";
import type { FieldValues } from "../db/entities/contact.ts";
import { normaliseAddress, type StoredAddress, storedAddress } from "./address.ts";
import { type FieldTypes, fieldProblem, valueOfText } from "./audience/field-values.ts";
import { hasControlCharacter, MAX_PERSON_NAME_LENGTH } from "./audience/rules.ts";

/** Without a limit, a quote that is never closed would read the rest of the file into memory. */
const MAX_RECORD_BYTES = 64 * 1024;
/** A decoder puts this in place of bytes that are no UTF-8. */
const NOT_UTF8 = "\u{FFFD}";

const COLUMNS = ["email", "first_name", "last_name"] as const;
type Column = (typeof COLUMNS)[number];

/** Columns of a file in order: one of `COLUMNS`, a custom field, or undefined for one that is not imported. */
type Header = readonly (string | undefined)[];

/** The file cannot be imported at all; the message says why. */
export class ImportError extends Error {
  override name = "ImportError";
}

/** A person, as a row of a file describes them. */
export interface PersonRow extends StoredAddress {
  line: number;
  firstName: string | null;
  lastName: string | null;
  fields: FieldValues;
}

/** A record that describes no person, with the rule that it breaks. */
export interface RefusedRow {
  line: number;
  problem: string;
}

/** The texts of a record. */
interface TextRow {
  line: number;
  texts: string[];
}

/**
 * Reads the people of a CSV file (RFC 4180, UTF-8 with or without a byte order mark) below its header row, in the file's
 * order.
 * @param types custom fields that the file may have columns for
 * @param onIgnoredColumn called with each column that is not imported
 * @throws {ImportError} when the file has no usable header, or a record does not end within the limit
 */
export async function* readPeople(
  input: Readable,
  types: FieldTypes,
  onIgnoredColumn?: (name: string) => void,
): AsyncGenerator<PersonRow | RefusedRow> {
  let header: Header | undefined;
  for await (const record of readRecords(input)) {
    if (header) {
      yield "problem" in record ? record : readPerson(header, types, record);
      continue;
    }
    if ("problem" in record) throw new ImportError(`The header row cannot be read: ${record.problem}.`);
    header = readHeader(record.texts, types, onIgnoredColumn);
  }
  if (!header) throw new ImportError("The file is empty; its first row must name the columns, `email` among them.");
}

/** A record as RFC 4180 writes it: quotes stand around a whole field or not at all, and those inside are doubled. */
const WELL_QUOTED = /^(?:"(?:[^"]|"")*"|[^",]*)(?:,(?:"(?:[^"]|"")*"|[^",]*))*[\r\n]*$/;

const countBreaks = (text: string): number => text.match(/\r\n|\n|\r/g)?.length ?? 0;

/**
 * Reads the records of a file in order; a record that breaks a rule of CSV is refused.
 * @throws {ImportError} when a record does not end within the limit
 */
async function* readRecords(input: Readable): AsyncGenerator<TextRow | RefusedRow> {
  let unclosed: RefusedRow | undefined;
  const parser = parse({
    bom: true,
    info: true,
    raw: true,
    // All three, for files that were pasted together; without this the parser keeps to the first one it finds.
    record_delimiter: ["\r\n", "\n", "\r"],
    relax_column_count: true,
    // A stray quote is refused below: the parser would take the lines after it for quoted text.
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
  input.once("error", (error) => parser.destroy(error));
  input.pipe(parser);
  for await (const item of parser as AsyncIterable<{ info: Info; record: string[]; raw: string }>) {
    const { info, record, raw } = item;
    // The parser counts the lines it has read; the record began that many breaks earlier.
    const line = info.lines - record.reduce((sum, field) => sum + countBreaks(field), 0);
    if (raw.includes('"') && !WELL_QUOTED.test(raw.replace(/^[\r\n]+/, ""))) {
      yield { line, problem: "a quote stands where none may stand" };
    } else yield { line, texts: record };
  }
  if (unclosed) yield unclosed;
}

/** `First Name`, `first-name` and `FIRST_NAME` are all `first_name`. */
const columnKey = (name: string): string => name.toLowerCase().replace(/[\s_-]/g, "");

function readHeader(names: string[], types: FieldTypes, onIgnoredColumn?: (name: string) => void): Header {
  if (names.some((name) => name.includes(NOT_UTF8))) throw new ImportError("The file is not UTF-8.");
  const known = [...COLUMNS, ...types.keys()];
  const columns = names.map(
    (name) => known.find((column) => column === name) ?? known.find((column) => columnKey(column) === columnKey(name)),
  );
  for (const [i, column] of columns.entries()) {
    if (column !== undefined && columns.indexOf(column) !== i) {
      throw new ImportError(`The header names the column ${column} twice.`);
    }
  }
  if (!columns.includes("email")) {
    const hint = names.length === 1 && /[;\t]/.test(names[0] ?? "") ? " Columns are separated by commas." : "";
    throw new ImportError(`The header row names no column \`email\`.${hint}`);
  }
  for (const [i, name] of names.entries()) if (columns[i] === undefined) onIgnoredColumn?.(name.trim());
  return columns;
}

function readPerson(header: Header, types: FieldTypes, { line, texts }: TextRow): PersonRow | RefusedRow {
  const refused = (problem: string): RefusedRow => ({ line, problem });
  if (texts.length !== header.length) {
    return refused(`${texts.length} fields where the header names ${header.length}`);
  }
  if (texts.some((text) => text.includes(NOT_UTF8))) return refused("not valid UTF-8");
  const values: Record<Column, string> = { email: "", first_name: "", last_name: "" };
  const fields: FieldValues = {};
  const problems: string[] = [];
  for (const [i, column] of header.entries()) {
    const text = (texts[i] ?? "").trim();
    if (column === undefined || text === "") continue;
    const type = types.get(column);
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
  if (normaliseAddress(values.email) === undefined) return refused("email is not an email address");
  for (const column of ["first_name", "last_name"] as const) {
    if (values[column].length > MAX_PERSON_NAME_LENGTH) {
      return refused(`${column} is longer than ${MAX_PERSON_NAME_LENGTH}`);
    }
    if (hasControlCharacter(values[column])) return refused(`${column} holds a control character`);
  }
  if (problems.length > 0) return refused(problems.join("; "));
  return {
    line,
    ...storedAddress(values.email),
    firstName: values.first_name || null,
    lastName: values.last_name || null,
    fields,
  };
}
