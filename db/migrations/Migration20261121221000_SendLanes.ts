import { Migration } from "@mikro-orm/migrations";

export class Migration20261121221000_SendLanes extends Migration {
  override name = "Migration20261121221000_SendLanes";

  override up(): void {
    this.addSql(
      `create table "send_lanes" ("send_id" text not null, "account_id" text not null, "epoch" int not null default 0, "dispatching" boolean not null default false, "after_seq" int not null default 0, primary key ("send_id", "account_id"));`,
    );
    this.addSql(
      `insert into "send_lanes" ("send_id", "account_id", "epoch", "dispatching") select "id", "account_id", "epoch", "dispatching" from "sends";`,
    );
    this.addSql(`alter table "sends" drop column "epoch", drop column "dispatching";`);
    this.addSql(`alter table "send_recipients" rename column "subscriber_id" to "member_id";`);
    this.addSql(`alter table "send_recipients" alter column "list_id" drop not null;`);
    this.addSql(`alter table "send_recipients" add "account_id" text null;`);
  }
}
