import { once } from "node:events";
import { createReadStream, createWriteStream } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { type Command, Option } from "commander";
import { forTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { type ImportReport, importContacts, importSubscribers, type ReadingOptions } from "../../domain/csv-import.ts";
import { withTenant } from "../options.ts";
import { progressLine } from "../output.ts";
import type { Session } from "../session.ts";
import { type Run, type TenantOptions, tenantOf } from "../session.ts";

const STDIN = "-";

interface ImportCommandOptions extends TenantOptions {
  contacts?: boolean;
  list?: string;
  confirmed?: boolean;
  report?: string;
}

/** Subscribers or contacts from CSV. */
export function importCommand(program: Command, run: Run): void {
  withTenant(program.command("import"))
    .description("import people from a CSV file with a header row: email, first_name, last_name")
    .argument("<file>", "CSV (RFC 4180) in UTF-8; - reads standard input")
    .addOption(
      new Option("--contacts", "make contacts instead of subscribers, with a column for each custom field").conflicts([
        "list",
        "confirmed",
      ]),
    )
    .option("--list <id>", "subscribe every address of the file to this list")
    .option("--confirmed", "the people have consented: confirm them even where the list asks for double opt-in")
    .option("--report <file>", "write the refused lines to this CSV file; standard error unless given")
    .action((file: string, options: ImportCommandOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        const startedAt = performance.now();
        const { report, ignored } = await importFile(session, tenant, file, options);
        const seconds = (performance.now() - startedAt) / 1_000;
        const notes = ignored.map((name) => `Ignored the column ${JSON.stringify(name)}`);
        return { text: [...notes, describe(report, seconds)].join("\n"), data: toJson(report, ignored, seconds) };
      }),
    );
}

async function importFile(
  { orm, vault, terminal }: Session,
  tenant: Tenant,
  file: string,
  { contacts = false, list, confirmed, report: reportFile }: ImportCommandOptions,
): Promise<{ report: ImportReport; ignored: string[] }> {
  const input: Readable = file === STDIN ? terminal.stdin : createReadStream(file);
  if (file !== STDIN) await once(input, "open");
  const output: Writable = reportFile === undefined ? terminal.stderr : createWriteStream(reportFile);
  const progress = progressLine();
  const ignored: string[] = [];
  try {
    if (reportFile !== undefined) {
      await once(output, "open");
      output.write("line,reason\r\n");
    }
    const reading: ReadingOptions = {
      onRefused: async (line, reason) => {
        const text = reportFile === undefined ? `line ${line}: ${reason}\n` : `${line},${JSON.stringify(reason)}\r\n`;
        if (!output.write(text)) await once(output, "drain");
      },
      onIgnoredColumn: (name) => ignored.push(name),
      onProgress: ({ phase, done, total }) =>
        progress.show(`${phase} ${done.toLocaleString("en")}${total ? ` of ${total.toLocaleString("en")}` : ""}`),
    };
    // Once: a stream cannot be read again after a conflict.
    const report = await transaction(
      forTenant(orm.em, tenant),
      (em) =>
        contacts
          ? importContacts(em, vault, tenant, input, reading)
          : importSubscribers(em, vault, tenant, input, { ...reading, listId: list, confirmed }),
      { attempts: 1 },
    );
    return { report, ignored };
  } finally {
    progress.clear();
    input.destroy();
    if (reportFile !== undefined) await new Promise((resolve) => output.end(() => resolve(undefined)));
  }
}

function describe(report: ImportReport, seconds: number): string {
  const { rows, refused, duplicates, created, updated, unchanged, list } = report;
  const lines = [
    `${rows} rows in ${seconds.toFixed(1)} s: ${created} created, ${updated} updated, ${unchanged} unchanged, ` +
      `${duplicates} repeated, ${refused} refused`,
  ];
  if (list) {
    lines.push(
      `On the list: ${list.added} added, ${list.confirmed} confirmed, ${list.alreadySubscribed} were there, ` +
        `${list.optedOut} opted out and left alone`,
    );
  }
  return lines.join("\n");
}

function toJson({ list, ...counts }: ImportReport, ignored: string[], seconds: number) {
  return {
    ...counts,
    list: list && {
      added: list.added,
      confirmed: list.confirmed,
      already_subscribed: list.alreadySubscribed,
      opted_out: list.optedOut,
    },
    ignored_columns: ignored,
    seconds: Math.round(seconds * 1_000) / 1_000,
  };
}
