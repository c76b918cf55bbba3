import { Migration } from "@mikro-orm/migrations";

export class Migration20261121221500_PauseReason extends Migration {
  override up(): void {
    this.addSql(`alter table "sends" rename column "trouble" to "pause_reason";`);
  }
}
