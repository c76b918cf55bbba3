import { once } from "node:events";
import { createReadStream, createWriteStream } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { forTenant, type Tenant } from "../../db/orm.ts";
import { type FileNotes, quoted } from "../../domain/import/file.ts";
import {
  type ImportReport,
  importContacts,
  importSubscribers,
  importSuppressions,
  type ReadingOptions,
  type SuppressionReport,
} from "../../domain/import/import.ts";
import { argument, type Commands, command, flag, OF_TENANT, option } from "../command.ts";
import { collect, consentWords } from "../options.ts";
import { counted, csvLine, progressLine, toJson } from "../output.ts";
import { type Session, tenantOf } from "../session.ts";

const STDIN = "-";

const SUBSCRIBING = ["list", "confirmed", "ask"];

const IMPORT = command(
  "import people from a CSV file with a header row: email, first_name, last_name, custom fields, and a column such as status that says whether they may be mailed",
  {
    file: argument("CSV with commas, semicolons or tabs, in UTF-8, UTF-16 or Windows-1252; - reads standard input"),
    ...OF_TENANT,
    contacts: {
      ...flag("make contacts instead of subscribers"),
      conflicts: SUBSCRIBING,
    },
    suppressions: {
      ...flag("put every address of the file on the do-not-mail list"),
      conflicts: ["contacts", "enterSequences", ...SUBSCRIBING],
    },
    list: option("<id>", "subscribe every address of the file to this list"),
    confirmed: flag("the people have consented: confirm them even where the list asks for double opt-in"),
    ask: {
      ...flag(
        "a list with double opt-in asks new people by mail to confirm; without it or --confirmed such a file is refused",
      ),
      conflicts: ["confirmed"],
    },
    enterSequences: flag("let the people enter the sequences of the list, or of the segments that contacts come into"),
    statusColumn: option("<name>", "a column that says whether the person may be mailed; repeatable", collect),
    trackingWords: option(
      "<text>",
      "what the people were shown who say in the column tracking_consent if they may be tracked",
      consentWords,
    ),
    ignoreColumn: option("<name>", "a column that says nothing about that; repeatable", collect),
    report: option("<file>", "write the refused lines to this CSV file; standard error unless given"),
  },
  async (session, { file, ...options }) => {
    const tenant = await tenantOf(session, options);
    const startedAt = performance.now();
    const { report, lines } = await importFile(session, tenant, file, options);
    const seconds = Math.round(performance.now() - startedAt) / 1_000;
    const [first = "", ...others] = lines;
    const { notes, ...counts } = report;
    const text = [...describeNotes(notes), `${counts.rows} rows in ${seconds.toFixed(1)} s: ${first}`, ...others];
    return { text: text.join("\n"), data: toJson({ ...counts, ...notes, seconds }) };
  },
);

/** Subscribers, contacts or a block list from CSV. */
export const commands: Commands = { import: IMPORT };

interface ImportOptions {
  contacts: boolean;
  suppressions: boolean;
  list: string | undefined;
  confirmed: boolean;
  ask: boolean;
  enterSequences: boolean;
  statusColumn: string[] | undefined;
  ignoreColumn: string[] | undefined;
  trackingWords: string | undefined;
  report: string | undefined;
}

async function importFile(
  { orm, vault, terminal }: Session,
  tenant: Tenant,
  file: string,
  options: ImportOptions,
): Promise<{ report: ImportReport | SuppressionReport; lines: string[] }> {
  const { contacts, suppressions, list, confirmed, ask: asks, enterSequences, report: reportFile } = options;
  const input: Readable = file === STDIN ? terminal.stdin : createReadStream(file);
  if (file !== STDIN) await once(input, "open");
  const output: Writable = reportFile === undefined ? terminal.stderr : createWriteStream(reportFile);
  const progress = progressLine();
  let written = 0;
  try {
    if (reportFile !== undefined) {
      await once(output, "open");
      output.write("line,reason\r\n");
    }
    const reading: ReadingOptions = {
      onRefused: async (line, reason) => {
        const text = reportFile === undefined ? `line ${line}: ${reason}\n` : csvLine([line, reason]);
        if (!output.write(text)) await once(output, "drain");
      },
      statusColumns: options.statusColumn,
      ignoreColumns: options.ignoreColumn,
      trackingWords: options.trackingWords,
      onProgress: ({ phase, done, total }) => {
        if (phase === "writing") written = done;
        progress.show(`${phase} ${done.toLocaleString("en")}${total ? ` of ${total.toLocaleString("en")}` : ""}`);
      },
    };
    const em = forTenant(orm.em, tenant);
    if (suppressions) {
      const report = await importSuppressions(em, vault, tenant, input, reading);
      return { report, lines: describeBlockList(report) };
    }
    const writing = { ...reading, entersSequences: enterSequences };
    const report = contacts
      ? await importContacts(em, vault, tenant, input, writing)
      : await importSubscribers(em, vault, tenant, input, { ...writing, listId: list, confirmed, asks });
    return { report, lines: describePeople(report) };
  } catch (error) {
    progress.clear();
    const rest = `${counted(written, "row")} of the file imported, and kept; import the file again for the others\n`;
    if (written > 0) terminal.stderr.write(rest);
    throw error;
  } finally {
    progress.clear();
    input.destroy();
    if (reportFile !== undefined) await new Promise((resolve) => output.end(() => resolve(undefined)));
  }
}

function describeNotes({ windows1252Lines, statusColumns, ignoredColumns }: FileNotes): string[] {
  const encoding = `Read ${counted(windows1252Lines, "line")} as Windows-1252, because not UTF-8`;
  return [
    ...(windows1252Lines > 0 ? [encoding] : []),
    ...statusColumns.map((name) => `Read consent from the column ${quoted(name)}; --ignore-column leaves it out`),
    ...ignoredColumns.map(
      (name) => `Ignored ${name === "" ? "a column without a name" : `the column ${quoted(name)}`}`,
    ),
  ];
}

const describeBlockList = ({ suppressed, alreadySuppressed, refused }: SuppressionReport): string[] => [
  `${suppressed} suppressed, ${alreadySuppressed} were before, ${refused} refused`,
];

function describePeople(report: ImportReport): string[] {
  const { created, updated, unchanged, duplicates, refused, suppressed, list, fields } = report;
  const lines = [
    `${created} created, ${updated} updated, ${unchanged} unchanged, ${duplicates} repeated, ${refused} refused`,
  ];
  if (suppressed > 0) lines.push(`${suppressed} suppressed for what the file says of their consent`);
  if (list) {
    lines.push(
      `On the list: ${list.added} added${list.asked > 0 ? ` (${list.asked} asked by mail to confirm)` : ""}, ${list.confirmed} confirmed that were pending, ${list.alreadySubscribed} were there, ` +
        `${list.newlyOptedOut} opted out by the file, ${list.optedOut} had opted out before`,
    );
  }
  if (fields) {
    lines.push(
      `Custom fields: ${fields.contactsCreated} contacts created, ${fields.contactsUpdated} updated; not stored for ${fields.fieldsNotStored} who have not confirmed, or had opted out`,
    );
  }
  return lines;
}
