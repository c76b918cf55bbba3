import { Migration } from "@mikro-orm/migrations";

export class Migration20261121222000_SendDaysNumbers extends Migration {
  override name = "Migration20261121222000_SendDaysNumbers";

  override up(): void {
    this.addSql(`alter table "newsletters" alter "send_days" drop default,
      alter "send_days" type smallint[] using "send_days"::smallint[],
      alter "send_days" set default '{}';`);
  }
}
