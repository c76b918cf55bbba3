import { Migration } from "@mikro-orm/migrations";

export class Migration20261121160736_Webhooks extends Migration {
  override name = "Migration20261121160736_Webhooks";

  override up(): void {
    this.addSql(
      `create table "webhook_endpoints" ("id" text not null, "team_id" text not null, "environment" text not null, "origin" text not null, "name" text not null, "description" text null, "url" text not null, "events" text[] not null, "active" boolean not null default true, "encrypted_secret" text not null, "previous_encrypted_secret" text null, "previous_secret_expires_at" timestamptz(3) null, "encrypted_headers" text null, "header_names" text[] not null default '{}', "api_version" text not null, "disabled_at" timestamptz(3) null, "disabled_reason" text null, "enabled_at" timestamptz(3) not null default now(), "notice_due_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(
      `create index "webhook_endpoints_team_id_environment_updated_at_id_index" on "webhook_endpoints" ("team_id", "environment", "updated_at", "id");`,
    );
    this.addSql(
      `create table "webhook_health" ("webhook_id" text not null, "consecutive_failures" int not null default 0, "last_success_at" timestamptz(3) null, "last_failure_at" timestamptz(3) null, primary key ("webhook_id"));`,
    );
    this.addSql(
      `create table "webhook_outbox" ("seq" bigserial primary key, "team_id" text not null, "environment" text not null, "type" text not null, "objects" text not null, "created_at" timestamptz(3) not null default now());`,
    );
    this.addSql(
      `create table "webhook_events" ("id" text not null, "team_id" text not null, "environment" text not null, "type" text not null, "object" text not null, "created_at" timestamptz(3) not null, "kept_until" timestamptz(3) not null, primary key ("id"));`,
    );
    this.addSql(`create index "webhook_events_kept_until_index" on "webhook_events" ("kept_until");`);
    this.addSql(
      `create table "webhook_deliveries" ("id" text not null, "team_id" text not null, "environment" text not null, "webhook_id" text not null, "event_id" text not null, "event_type" text not null, "group_id" text null, "attempt" smallint not null default 1, "status" text not null default 'PENDING', "response_status" smallint null, "response_body" text null, "error_message" text null, "duration_ms" int null, "is_replay" boolean not null default false, "replay_of_id" text null, "next_attempt_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(
      `create index "webhook_deliveries_webhook_id_created_at_id_index" on "webhook_deliveries" ("webhook_id", "created_at", "id");`,
    );
    this.addSql(`create index "webhook_deliveries_group_id_index" on "webhook_deliveries" ("group_id");`);
    this.addSql(
      `create table "webhook_groups" ("id" text not null, "team_id" text not null, "environment" text not null, "webhook_id" text not null, "size" smallint not null, "phase" text not null default 'FIRST', "rung" smallint not null default 0, "epoch" int not null default 0, "attempting" boolean not null default false, "begun_at" timestamptz(3) null, "slot_until" timestamptz(3) null, "due_at" timestamptz(3) not null default now(), "created_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(`create index "webhook_groups_webhook_id_phase_index" on "webhook_groups" ("webhook_id", "phase");`);
    this.addSql(
      `create table "deleted_webhooks" ("webhook_id" text not null, "deleted_at" timestamptz(3) not null default now(), primary key ("webhook_id"));`,
    );

    this.addSql(
      `create table "webhook_replays" ("id" text not null, "team_id" text null, "webhook_id" text null, "statuses" text[] not null, "since" timestamptz(3) not null, "until" timestamptz(3) not null, "per_second" int not null, "total" int not null, "replayed" int not null default 0, "after_webhook_id" text not null default '', "after_created_at" timestamptz(3) null, "after_id" text not null default '', "started_at" timestamptz(3) null, "completed_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );

    // What the entities cannot say.

    this.addSql(
      `create trigger "webhook_endpoints_touch" before update on "webhook_endpoints" for each row execute function touch_updated_at();`,
    );
    for (const [table, column, target] of [
      ["webhook_endpoints", "team_id", "teams"],
      ["webhook_health", "webhook_id", "webhook_endpoints"],
    ]) {
      this.addSql(
        `alter table "${table}" add constraint "${table}_${column}_fk" foreign key ("${column}") references "${target}" ("id") on delete cascade;`,
      );
    }
    // Deliveries that wait for a workflow, by endpoint and age.
    this.addSql(
      `create index "webhook_deliveries_waiting" on "webhook_deliveries" ("webhook_id", "id") where "group_id" is null;`,
    );
    this.addSql(
      `create index "webhook_deliveries_replay_of" on "webhook_deliveries" ("replay_of_id") where "replay_of_id" is not null;`,
    );
    // Room for the outcome: a status stands in no index, so writing it stays within the page.
    this.addSql(`alter table "webhook_deliveries" set (fillfactor = 80);`);
    this.addSql(
      `create index "webhook_endpoints_notice_due" on "webhook_endpoints" ("notice_due_at") where "notice_due_at" is not null;`,
    );
    this.addSql(`create index "webhook_groups_unstarted" on "webhook_groups" ("created_at") where "begun_at" is null;`);
    // A group whose workflow is lost is found by this.
    this.addSql(`create index "webhook_groups_due_at" on "webhook_groups" ("due_at");`);
  }
}
