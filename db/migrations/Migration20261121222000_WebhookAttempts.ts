import { Migration } from "@mikro-orm/migrations";

export class Migration20261121222000_WebhookAttempts extends Migration {
  override name = "Migration20261121222000_WebhookAttempts";

  override up(): void {
    // A column of its own, not the status: an index that named the status would have to be written, with every other index
    // of the row, at each outcome of an attempt.
    this.addSql(`alter table "webhook_deliveries" add column "blocked_at_once" boolean not null default false;`);
    this.addSql(
      `update "webhook_deliveries" set "group_id" = null, "blocked_at_once" = true where "group_id" = "id" and "status" = 'BLOCKED' and "updated_at" = "created_at";`,
    );
    this.addSql(`drop index "webhook_deliveries_waiting";`);
    // Deliveries that wait for a workflow, by endpoint and age.
    this.addSql(
      `create index "webhook_deliveries_waiting" on "webhook_deliveries" ("webhook_id", "id") where "group_id" is null and not "blocked_at_once";`,
    );

    this.addSql(`alter table "webhook_groups" rename column "rung" to "attempt";`);
    this.addSql(`update "webhook_groups" set "attempt" = "attempt" + 1;`);
    this.addSql(`alter table "webhook_groups" alter column "attempt" set default 1;`);
    this.addSql(`update "webhook_groups" set "phase" = 'RETRYING' where "phase" = 'CLIMBING';`);
  }
}
