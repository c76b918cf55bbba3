import { Migration } from "@mikro-orm/migrations";

export class Migration20261121111900_UnsubscribeOnce extends Migration {
  override name = "Migration20261121111900_UnsubscribeOnce";

  override up(): void {
    // One row per person and mailing, however often the link is pressed.
    this.addSql(`create unique index "unsubscribes_once" on "unsubscribes"
      ("team_id", "environment", "campaign_id", "email") where "campaign_id" is not null;`);
  }
}
