import { type RawBuilder, sql } from "kysely";
import { JsonText } from "../../db/json.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { orNotFound } from "../errors.ts";
import type { SendResource } from "../sends/resource.ts";

/** A place in the order by clickers, then by id. */
export interface LinkPlace {
  clickers: number;
  id: string;
}

interface LinkPage<T> {
  /** SQL: the JSON of a link, from the alias of its row. */
  record: (row: string) => RawBuilder<T>;
  order: "asc" | "desc";
  limit: number;
  /** Undefined for the first page. */
  after?: LinkPlace | undefined;
}

/** A mail has some hundred links at most. @returns `next` as `after` takes it @throws {ApiError} `not_found` */
export async function pageLinks<T>(
  em: EntityManager,
  tenant: Tenant,
  { type, id }: SendResource,
  { record, order, limit, after }: LinkPage<T>,
): Promise<{ records: JsonText<T>[]; next: LinkPlace | undefined }> {
  const owner = kysely(em).selectFrom(`${type}s`).select("id").where(ofTenant(tenant)).where("id", "=", id);
  orNotFound(await owner.executeTakeFirst());
  const direction = sql.raw(order);
  const beyond = sql`(l.clickers, l.id) ${sql.raw(order === "asc" ? ">" : "<")} (${after?.clickers}::int, ${after?.id})`;
  const { rows } = await sql<LinkPlace & { record: string }>`
    select l.clickers, l.id, ${record("l")} as record from tracked_links l
    where ${ofTenant(tenant, "l")} and l.resource_id = ${id} ${after ? sql`and ${beyond}` : sql``}
    order by l.clickers ${direction}, l.id ${direction} limit ${limit + 1}`.execute(kysely(em));
  const shown = rows.slice(0, limit);
  return {
    records: shown.map((row) => new JsonText(row.record)),
    next: rows.length > limit ? shown.at(-1) : undefined,
  };
}
