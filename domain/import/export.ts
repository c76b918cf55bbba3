import { type RawBuilder, sql } from "kysely";
import type { SubscriptionStatus } from "../../db/entities/audience.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { csvLine, withoutFormula } from "../../lib/csv.ts";
import { mapInSlices } from "../../lib/slices.ts";
import { readFields } from "../audience/contact-fields.ts";
import { listPeople, type PeopleFilter } from "../audience/listed-people.ts";
import { readList } from "../audience/lists.ts";
import { type LedgerPage, pageRecipients } from "../sends/ledger/recipients.ts";
import type { SendResource } from "../sends/resource.ts";

/** The process answers others beside, and a million people are fewer pages than a member may ask for in a minute. */
const PAGE_ROWS = 2_000;
/** Rows with 50 fields become text in some milliseconds. */
const SLICE_ROWS = 500;

/** Subscribers of a list, or all of one kind. @property status of their subscriptions: only those */
export type Exported = { listId: string; status?: SubscriptionStatus | undefined } | "contacts" | "suppressions";

export interface ExportPage {
  /** CSV; the first page begins with the header. */
  csv: string;
  rows: number;
  /** Of the last row; null at the end. */
  after: string | null;
}

interface Source {
  /** Names of the columns, and their values as text; those of `asIs` are no text that a person has chosen. */
  columns: Readonly<Record<string, RawBuilder<unknown>>>;
  asIs: readonly string[];
  from: RawBuilder<unknown>;
  id: RawBuilder<unknown>;
}

const day = (column: string) => sql`to_char(${sql.ref(column)} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`;
const spelled = (row: string) => sql`coalesce(${sql.ref(`${row}.email_spelling`)}, ${sql.ref(`${row}.email`)})`;

/** Those of the console's page. */
const IN_WORDS = sql`case s.status when 'CONFIRMED' then 'subscribed' when 'PENDING' then 'awaiting confirmation' else lower(s.status) end`;

async function sourceOf(em: EntityManager, tenant: Tenant, exported: Exported): Promise<Source> {
  if (exported === "suppressions") {
    return {
      columns: { email: spelled("p"), reason: sql`p.reason`, created_at: day("p.created_at") },
      asIs: ["reason", "created_at"],
      from: sql`suppressions p where ${ofTenant(tenant, "p")}`,
      id: sql`p.id`,
    };
  }
  const names = { first_name: sql`p.first_name`, last_name: sql`p.last_name` };
  const ofConsent = (value: RawBuilder<unknown>) =>
    sql`select ${value} from tracking_consents k where ${ofTenant(tenant, "k")} and k.email = p.email`;
  const consent = {
    tracking_consent: ofConsent(sql`lower(k.status)`),
    // Its proof. No import takes a column of such a name for a consent.
    tracking_answer_at: ofConsent(day("k.at")),
    tracking_answer_way: ofConsent(sql`lower(k.way)`),
    tracking_answer_words: ofConsent(sql`k.words`),
  };
  const fields = await readFields(em, tenant);
  const ofContact = (row: string) =>
    Object.fromEntries(fields.map(({ name }) => [name, sql`${sql.ref(`${row}.fields`)} ->> ${name}::text`]));
  const asIs = [
    "tracking_consent",
    "tracking_answer_at",
    ...fields.filter(({ type }) => type !== "text").map(({ name }) => name),
  ];
  if (exported === "contacts") {
    return {
      columns: { email: spelled("p"), ...names, ...consent, ...ofContact("p") },
      asIs,
      from: sql`contacts p where ${ofTenant(tenant, "p")}`,
      id: sql`p.id`,
    };
  }
  const { status } = exported;
  const { id } = await readList(em, exported.listId);
  return {
    columns: {
      ...{ email: spelled("p"), ...names, ...ofContact("c"), ...consent },
      ...{ status: IN_WORDS, unsubscribed_at: day("s.unsubscribed_at") },
      // The proof of a sign-up at a form.
      form_sign_up_at: day("s.form_at"),
      form_words: sql`select f.consent from form_texts f where ${ofTenant(tenant, "f")} and f.id = s.form_text_id`,
    },
    asIs: [...asIs, "status", "unsubscribed_at", "form_sign_up_at"],
    from: sql`subscriptions s join subscribers p on p.id = s.subscriber_id and ${ofTenant(tenant, "p")}
      left join contacts c on c.email = p.email and ${ofTenant(tenant, "c")}
      where ${ofTenant(tenant, "s")} and s.list_id = ${id} ${status ? sql`and s.status = ${status}` : sql``}`,
    id: sql`s.subscriber_id`,
  };
}

const OF_RECIPIENT = [
  ...["email", "first_name", "last_name", "status", "reason", "smtp_code", "updated_at"],
  ...["opened_at", "clicked_at", "unsubscribed"],
];

/** The next recipients of a send as CSV, with what they did: those of an activity, or of a link. @param after as of `exportPage` */
export async function exportRecipients(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  { after, ...chosen }: Pick<LedgerPage, "activity" | "linkId"> & { after: string },
): Promise<ExportPage> {
  const place = { order: "asc", limit: PAGE_ROWS, after: Number(after) || undefined } as const;
  const { records, next } = await pageRecipients(em, tenant, resource, { ...chosen, ...place, withEngagement: true });
  const lines = await mapInSlices(records, SLICE_ROWS, (record) => {
    const { has_unsubscribed: unsubscribed, ...facts } = record.toJSON() as Record<string, unknown>;
    const row: Record<string, unknown> = { ...facts, unsubscribed };
    return csvLine(OF_RECIPIENT.map((name) => withoutFormula(String(row[name] ?? ""))));
  });
  const csv = (after === "" ? csvLine(OF_RECIPIENT) : "") + lines.join("");
  return { csv, rows: records.length, after: next === undefined ? null : String(next) };
}

/** The people of the console's page, as `listPeople` does. @param after as of `exportPage` */
export async function exportPeople(
  em: EntityManager,
  tenant: Tenant,
  filter: PeopleFilter,
  after: string,
): Promise<ExportPage> {
  const names = ["email", "first_name", "last_name", "lists", "is_contact", "status", "created_at"] as const;
  const { people, next } = await listPeople(em, tenant, { ...filter, after, limit: SLICE_ROWS });
  const lines = people.map((one) => csvLine(names.map((name) => withoutFormula(String(one[name] ?? "")))));
  return { csv: (after === "" ? csvLine(names) : "") + lines.join(""), rows: lines.length, after: next };
}

/**
 * The next rows as CSV that an import reads back. Texts that a spreadsheet would run as a formula have an apostrophe in front.
 * @param after of the page before; "" for the first @throws {ApiError} `not_found` for the list
 */
export async function exportPage(
  em: EntityManager,
  tenant: Tenant,
  exported: Exported,
  after: string,
): Promise<ExportPage> {
  const { columns, asIs, from, id } = await sourceOf(em, tenant, exported);
  const names = Object.keys(columns);
  const { rows } = await sql<{ id: string; cells: (string | null)[] }>`
    select ${id} as id, json_build_array(${sql.join(Object.values(columns).map((value) => sql`(${value})::text`))}) as cells
    from ${from} and ${id} > ${after} order by ${id} limit ${PAGE_ROWS}`.execute(kysely(em));
  const lines = await mapInSlices(rows, SLICE_ROWS, ({ cells }) =>
    csvLine(cells.map((text, at) => (text === null || asIs.includes(names[at] ?? "") ? text : withoutFormula(text)))),
  );
  const last = rows.length === PAGE_ROWS ? rows.at(-1)?.id : undefined;
  return { csv: (after === "" ? csvLine(names) : "") + lines.join(""), rows: rows.length, after: last ?? null };
}
