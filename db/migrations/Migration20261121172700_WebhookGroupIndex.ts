import { Migration } from "@mikro-orm/migrations";

export class Migration20261121172700_WebhookGroupIndex extends Migration {
  override name = "Migration20261121172700_WebhookGroupIndex";

  override up(): void {
    // Without the deliveries that wait for a group. The planner takes those to be few, from statistics of a quiet time, and
    // with them in here it read and sorted all of them at every look for an endpoint's first, instead of taking one step
    // along webhook_deliveries_waiting: 1,070 ms instead of 0.2 ms with 300,000 waiting.
    this.addSql(`drop index "webhook_deliveries_group_id_index";`);
    this.addSql(
      `create index "webhook_deliveries_group" on "webhook_deliveries" ("group_id") where "group_id" is not null;`,
    );
  }
}
