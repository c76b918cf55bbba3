import { Migration } from "@mikro-orm/migrations";

export class Migration20261121170500_SendReview extends Migration {
  override name = "Migration20261121170500_SendReview";

  override up(): void {
    this.addSql(`alter table "sends" add "review_until" timestamptz(3) null;`);
    // What the reconciler walks each minute: the few sends that should have a workflow, out of all there ever were.
    this.addSql(`create index "sends_open" on "sends" ("id") where "status" in ('SCHEDULED', 'SENDING', 'PAUSED')
      or "settled_at" is null or "review_until" is not null;`);
  }
}
