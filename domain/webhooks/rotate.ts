import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { notFound } from "../errors.ts";
import type { Vault } from "../secrets/crypto.ts";
import { newSecret, sealSecret } from "./secrets.ts";

export const DEFAULT_OVERLAP_HOURS = 24;
export const MAX_OVERLAP_HOURS = 24 * 30;

export interface RotatedSecret {
  secret: string;
  /** Until when the one before signs too; null when it stopped at once. */
  previousExpiresAt: Date | null;
}

/** The secret before signs beside the new one for so long; one older still stops at once. @throws {ApiError} `not_found` */
export async function rotateSecret(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  webhookId: string,
  overlapHours: number,
): Promise<RotatedSecret> {
  const secret = newSecret();
  const overlaps = overlapHours > 0;
  const row = await kysely(em)
    .updateTable("webhook_endpoints")
    .set({
      encrypted_secret: sealSecret(vault, webhookId, secret),
      previous_encrypted_secret: overlaps ? sql<string>`encrypted_secret` : null,
      previous_secret_expires_at: overlaps ? sql<string>`now() + make_interval(hours => ${overlapHours}::int)` : null,
    })
    .where("id", "=", webhookId)
    .where(ofTenant(tenant))
    .returning("previous_secret_expires_at")
    .executeTakeFirst();
  if (!row) throw notFound();
  const { previous_secret_expires_at: expires } = row;
  return { secret, previousExpiresAt: expires === null ? null : new Date(expires) };
}
