import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, tenantOf } from "../db/orm.ts";
import { isoInstant } from "../db/sql.ts";
import { ApiError } from "./errors.ts";
import { ID_PREFIX, type IdKind } from "./ids.ts";

/** A write of a member in the console. */
export interface Edit {
  memberId: string;
  /** The record that it replaces, with the `updated_at` that the member has seen; absent where it replaces nothing. */
  began?: { id: string; updatedAt: string } | undefined;
}

/** The last change of a record. */
export interface LastEdit {
  /** The member's name; null where it was no save of a member in the console. */
  by: string | null;
  /** ISO 8601. */
  at: string;
}

/** The record has changed since the member began. The console alone can meet it: no other caller names what it has seen. */
export class EditedMeanwhile extends ApiError {
  readonly edited: LastEdit;
  constructor(edited: LastEdit) {
    super(
      "resource_state_invalid",
      `${edited.by ?? "Someone else"} has changed this since you opened it. Look at it again, then save.`,
    );
    this.edited = edited;
  }
}

const TABLES: Partial<Record<IdKind, string>> = {
  newsletter: "newsletters",
  campaign: "campaigns",
  template: "templates",
  segment: "segments",
  list: "lists",
  form: "forms",
  account: "email_accounts",
  webhook: "webhook_endpoints",
  team: "teams",
};
const tableOf = (id: string) =>
  Object.entries(TABLES).find(([kind]) => id.startsWith(`${ID_PREFIX[kind as IdKind]}_`))?.[1];

/**
 * Notes the member who changes records in this transaction, and locks the record that they have seen. One that others lock
 * in another order may be a deadlock, after which `transaction` begins again.
 * @param em with the tenant's filter @param steps the version is that of a sequence's steps
 * @throws {EditedMeanwhile} when it has changed since; a record that does not exist is left to the caller
 */
export async function noteEdit(em: EntityManager, edit: Edit | null, { steps = false } = {}): Promise<void> {
  if (!edit) return;
  const note = sql`set_config('mailkeel.member', ${edit.memberId}, true)`;
  const table = edit.began && (steps ? "sequences" : tableOf(edit.began.id));
  if (!edit.began || !table) return void (await sql`select ${note}`.execute(kysely(em)));
  const { id, updatedAt } = edit.began;
  const tenant = tenantOf(em);
  const isRecord: RawBuilder<unknown> =
    table === "teams"
      ? sql`r.id = ${tenant.teamId}`
      : sql`${sql.ref(steps ? "r.campaign_id" : "r.id")} = ${id} and ${ofTenant(tenant, "r")}`;
  const { rows } = await sql<LastEdit & { isSeen: boolean }>`
    select ${note}, r.updated_at = ${updatedAt}::timestamptz as "isSeen", ${isoInstant(sql`r.updated_at`)} as at,
      (select m.name from members m where m.id = r.updated_by) as by
    from ${sql.table(table)} r where ${isRecord} for no key update of r`.execute(kysely(em));
  const [last] = rows;
  if (last && !last.isSeen) throw new EditedMeanwhile({ by: last.by, at: last.at });
}
