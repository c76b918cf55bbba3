import { Migration } from "@mikro-orm/migrations";

export class Migration20261121100621_SendDispatching extends Migration {
  override name = "Migration20261121100621_SendDispatching";

  override up(): void {
    this.addSql(`alter table "sends" add "dispatching" boolean not null default false;`);
  }
}
