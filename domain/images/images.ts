import { type RawBuilder, sql } from "kysely";
import type { Env } from "../../config/env.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { transaction } from "../../db/transaction.ts";
import type { FileStore } from "../../lib/file-store.ts";
import { ApiError, orNotFound } from "../errors.ts";
import { newId, suffixOfId } from "../ids.ts";
import { lockRecords } from "../teams/record-limit.ts";
import { cleanImage, IMAGE_TYPES } from "./clean.ts";
import { imageFile } from "./links.ts";

export type ImageLimits = Pick<Env, "MAX_IMAGES" | "MAX_IMAGE_MEGABYTES">;

const MEGABYTE = 1_000_000;

const imagesOf = (em: EntityManager, tenant: Tenant) =>
  kysely(em)
    .selectFrom("images")
    .where(ofTenant(tenant))
    .select(["id", "name", "file", "bytes", "width", "height"])
    .select(isoInstant(sql.ref("created_at")).as("created_at"));

export type StoredImage = NonNullable<Awaited<ReturnType<ReturnType<typeof imagesOf>["executeTakeFirst"]>>>;

/** The newest first. @param before the last id of the page before */
export const listImages = (
  em: EntityManager,
  tenant: Tenant,
  { before, limit }: { before?: string | undefined; limit: number },
): Promise<StoredImage[]> =>
  imagesOf(em, tenant)
    .where(before === undefined ? sql<boolean>`true` : sql<boolean>`id < ${before}`)
    .orderBy("id", "desc")
    .limit(limit)
    .execute();

export async function readImageUsage(
  em: EntityManager,
  tenant: Tenant,
  { MAX_IMAGES, MAX_IMAGE_MEGABYTES }: ImageLimits,
) {
  const used = await kysely(em)
    .selectFrom("images")
    .where(ofTenant(tenant))
    .select([sql<number>`count(*)::int`.as("count"), sql<number>`coalesce(sum(bytes), 0)::float8`.as("bytes")])
    .executeTakeFirstOrThrow();
  return { ...used, max_count: MAX_IMAGES, max_bytes: MAX_IMAGE_MEGABYTES * MEGABYTE };
}

/** @throws {ApiError} `resource_limit_reached` where there is no room for so many bytes */
async function requireRoom(em: EntityManager, tenant: Tenant, limits: ImageLimits, bytes: number): Promise<void> {
  const { count, max_count, bytes: used, max_bytes } = await readImageUsage(em, tenant, limits);
  const most = count >= max_count ? `${max_count} images` : `${max_bytes / MEGABYTE} MB of images`;
  if (count < max_count && used + bytes <= max_bytes) return;
  throw new ApiError("resource_limit_reached", `The team may have ${most}; delete some that no email shows.`);
}

/**
 * Stores an image without its metadata; one of the same content is stored once. The file is written before its row, and a row of
 * `unused_image_files` before it, so that a process that ends in between leaves none behind.
 * @param onStored is called in the transaction that stores a new one
 * @throws {ApiError} `validation_failed`, `resource_limit_reached`
 */
export async function addImage(
  em: EntityManager,
  store: FileStore,
  tenant: Tenant,
  limits: ImageLimits,
  { name, content }: { name: string; content: Buffer },
  onStored: (em: EntityManager, id: string) => Promise<void>,
): Promise<StoredImage> {
  const { ending, bytes, width, height } = cleanImage(content);
  // In a thread of its own: other requests do not wait.
  const digest = await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>);
  const sha256 = Buffer.from(digest).toString("hex");
  const find = (in_: EntityManager) => imagesOf(in_, tenant).where("sha256", "=", sha256).executeTakeFirst();
  const known = await find(em);
  if (known) return known;
  await requireRoom(em, tenant, limits, bytes.length);
  const id = newId("image");
  const file = imageFile(tenant.teamId, id, ending);
  const due_at = sql<string>`now() + interval '1 hour'`;
  await kysely(em).insertInto("unused_image_files").values({ file, due_at }).execute();
  await store.put(file, IMAGE_TYPES[ending], bytes).catch((cause) => {
    throw new ApiError("service_unavailable", "The image cannot be stored at present.", { cause });
  });
  return transaction(em, async (tx) => {
    await lockRecords(tx, tenant, "images");
    const other = await find(tx);
    if (other) return other;
    await requireRoom(tx, tenant, limits, bytes.length);
    const db = kysely(tx);
    const isOwn = await db
      .deleteFrom("unused_image_files")
      .where("file", "=", file)
      .where("attempts", "=", 0)
      .executeTakeFirst();
    // This process was suspended for an hour, and the file is being deleted.
    if (isOwn.numDeletedRows === 0n) throw new ApiError("service_unavailable");
    const { teamId: team_id, environment } = tenant;
    const facts = { name, bytes: bytes.length, width, height };
    await db
      .insertInto("images")
      .values({ id, team_id, environment, sha256, file, ...facts })
      .execute();
    await onStored(tx, id);
    return orNotFound(await find(tx));
  });
}

const STORE_ANSWER_MS = 5_000;

/**
 * Every process has to reach the same images, and the newest one proves it: each machine's own folder would lack those of the others.
 * @throws {ApiError} `service_unavailable`; its cause names the settings and the file
 */
export async function requireSharedStore(em: EntityManager, store: FileStore): Promise<void> {
  const newest = () => kysely(em).selectFrom("images").select("file").orderBy("id", "desc").limit(1).executeTakeFirst();
  const image = await newest();
  if (!image) return;
  const found = await store.get(image.file, AbortSignal.timeout(STORE_ANSWER_MS)).catch((cause) => {
    throw new ApiError("service_unavailable", "The images cannot be reached at present.", { cause });
  });
  found?.content.destroy();
  // One that is deleted meanwhile has lost its file.
  if (found || (await newest())?.file !== image.file) return;
  const cause = new Error(
    `this process does not reach the newest image, ${image.file}: let all API and maintenance processes share IMAGES_DIRECTORY, set IMAGES_S3_URL to a bucket, or bring back the file`,
  );
  const message = "Images cannot be stored at present: ask the operator of the service to look at its store of images.";
  throw new ApiError("service_unavailable", message, { cause });
}

/** Of the mails whose body shows an image: the newest of each kind, and so many that it finds. */
const SEARCHED_MAILS = 2_000;
const FOUND_MAILS = 100;

const isLogo = async (em: EntityManager, { teamId }: Tenant, imageId: string): Promise<boolean> => {
  const logo = sql<boolean>`strpos(logo_url, ${suffixOfId("image", imageId)}) > 0`;
  return Boolean(
    await kysely(em).selectFrom("teams").select("id").where("id", "=", teamId).where(logo).executeTakeFirst(),
  );
};

/** The mails that show an image, each with its status. */
async function findUses(em: EntityManager, tenant: Tenant, imageId: string): Promise<{ status: string }[]> {
  const newest = (mails: RawBuilder<unknown>) => sql`
    select id, status from (${mails} limit ${sql.lit(SEARCHED_MAILS)}) m
    where strpos(body, ${suffixOfId("image", imageId)}) > 0`;
  const drafts = (table: "newsletters" | "campaigns") => sql`
    select id, status, body from ${sql.table(table)} where ${ofTenant(tenant)} order by updated_at desc`;
  const { rows } = await sql<{ status: string }>`
    ${newest(drafts("newsletters"))} union ${newest(drafts("campaigns"))} union ${newest(sql`
      select c.id, c.status, v.body from campaigns c join sequence_step_versions v on v.campaign_id = c.id
      where ${ofTenant(tenant, "c")} order by v.created_at desc`)} union ${newest(sql`
      select id, 'DRAFT' as status, coalesce(body, blocks::text) as body from templates where ${ofTenant(tenant)}`)} union ${newest(sql`
      select record_id as id, coalesce(data->>'status', 'DRAFT') as status, data::text as body from bin_rows where ${ofTenant(tenant)}`)}
    limit ${sql.lit(FOUND_MAILS)}`.execute(kysely(em));
  return rows;
}

/**
 * Deletes an image; maintenance deletes its file a moment later.
 * @param evenUsed also one that is the logo, or that a mail shows: its readers see a gap, also where it was sent
 * @throws {ApiError} `not_found`; `resource_state_invalid` for one that is used
 */
export async function deleteImage(em: EntityManager, tenant: Tenant, id: string, evenUsed: boolean): Promise<void> {
  orNotFound(await imagesOf(em, tenant).where("id", "=", id).executeTakeFirst());
  if (!evenUsed && (await isLogo(em, tenant, id))) {
    throw new ApiError("resource_state_invalid", "It is the logo of the team's brand: choose another one there first.");
  }
  const uses = evenUsed ? [] : await findUses(em, tenant, id);
  if (uses.length > 0) {
    const sent = uses.filter(({ status }) => status !== "DRAFT").length;
    const mails = `${uses.length === FOUND_MAILS ? "Many" : uses.length} of the newest mails show this image`;
    const message = `${mails}, and ${sent} of them are no drafts: their readers would see a gap in its place.`;
    throw new ApiError("resource_state_invalid", message);
  }
  await kysely(em).deleteFrom("images").where(ofTenant(tenant)).where("id", "=", id).execute();
}

/** Deletes files that are due; one that could not be deleted is due again later. @returns number of files that were due */
export async function deleteUnusedFiles(em: EntityManager, store: FileStore, limit: number): Promise<number> {
  const db = kysely(em);
  const { rows } = await sql<{ file: string }>`
    update unused_image_files set attempts = attempts + 1, due_at = now() + least(attempts + 1, 60) * interval '1 minute'
    where file = any(array(
      select file from unused_image_files where due_at <= now() order by due_at limit ${limit} for update skip locked))
    returning file`.execute(db);
  for (const { file } of rows) {
    await store.delete(file);
    await db.deleteFrom("unused_image_files").where("file", "=", file).execute();
  }
  return rows.length;
}
