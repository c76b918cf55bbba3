import { Migration } from "@mikro-orm/migrations";

export class Migration20261121221500_IdempotencyPayload extends Migration {
  override name = "Migration20261121221500_IdempotencyPayload";

  override up(): void {
    this.addSql(`truncate "idempotency_records";`);
    this.addSql(
      `alter table "idempotency_records" drop column "body", drop column "body_kind", add column "request_id" text null, add column "payload" text null, add column "payload_kind" text null;`,
    );
  }
}
