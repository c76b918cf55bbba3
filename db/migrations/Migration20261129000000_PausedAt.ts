import { Migration } from "@mikro-orm/migrations";

/** Since when a send is paused. It has no default: no row is written. */
export class Migration20261129000000_PausedAt extends Migration {
  override name = "Migration20261129000000_PausedAt";

  override up(): void {
    this.addSql(`alter table "sends" add column "paused_at" timestamptz(3) null`);
  }
}
