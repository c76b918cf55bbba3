import { Migration } from "@mikro-orm/migrations";

export class Migration20261121095321_Initial extends Migration {
  override name = "Migration20261121095321_Initial";

  override up(): void | Promise<void> {
    this.addSql(
      `create table "account_leases" ("account_id" text not null, "holder" text not null, "connections" int not null, "expires_at" timestamptz(3) not null, primary key ("account_id", "holder"));`,
    );

    this.addSql(
      `create table "account_usage" ("account_id" text not null, "window" text not null, "starts_at" timestamptz(3) not null, "used" int not null, primary key ("account_id", "window", "starts_at"));`,
    );

    this.addSql(
      `create table "api_keys" ("id" text not null, "team_id" text not null, "environment" text not null, "public_id" text not null, "name" text not null, "secret_hash" text not null, "member_id" text not null, "role_at_issue" text not null, "granted_scopes" text[] not null, "send_domains" text[] not null, "requires_approval" boolean not null default false, "daily_send_cap" int not null, "lineage_id" text not null, "api_version" text not null, "expires_at" timestamptz(3) null, "revoked_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(`alter table "api_keys" add constraint "api_keys_public_id_unique" unique ("public_id");`);
    this.addSql(`create index "api_keys_team_id_index" on "api_keys" ("team_id");`);
    this.addSql(`create index "api_keys_lineage_id_index" on "api_keys" ("lineage_id");`);

    this.addSql(
      `create table "credit_balances" ("team_id" text not null, "environment" text not null, "available" bigint not null, "reserved" bigint not null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("team_id", "environment"));`,
    );

    this.addSql(
      `create table "credit_entries" ("id" text not null, "team_id" text not null, "environment" text not null, "kind" text not null, "amount" bigint not null, "send_id" text null, "cause" text not null, "created_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(
      `create index "credit_entries_team_id_environment_index" on "credit_entries" ("team_id", "environment");`,
    );
    this.addSql(
      `alter table "credit_entries" add constraint "credit_entries_kind_send_id_cause_unique" unique ("kind", "send_id", "cause");`,
    );

    this.addSql(
      `create table "daily_send_usage" ("lineage_id" text not null, "day" date not null, "used" int not null, primary key ("lineage_id", "day"));`,
    );

    this.addSql(
      `create table "delivery_days" ("team_id" text not null, "environment" text not null, "day" date not null, "delivered" int not null default 0, "complaints" int not null default 0, primary key ("team_id", "environment", "day"));`,
    );

    this.addSql(
      `create table "email_accounts" ("id" text not null, "team_id" text not null, "environment" text not null, "email" text not null, "display_name" text not null, "provider" text not null, "status" text not null, "allowed_domains" text[] not null, "host" text not null, "port" int not null, "security" text not null, "username" text null, "encrypted_password" text null, "max_connections" int not null, "hourly_limit" int null, "daily_limit" int null, "last_checked_at" timestamptz(3) null, "last_error" text null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(
      `alter table "email_accounts" add constraint "email_accounts_team_id_environment_email_unique" unique ("team_id", "environment", "email");`,
    );

    this.addSql(
      `create table "idempotency_records" ("team_id" text not null, "environment" text not null, "key_hash" text not null, "fingerprint" text not null, "attempt" int not null, "locked_at" timestamptz(3) not null, "status" int null, "body" text null, "body_kind" text null, "expires_at" timestamptz(3) not null, primary key ("team_id", "environment", "key_hash"));`,
    );
    this.addSql(`create index "idempotency_records_expires_at_index" on "idempotency_records" ("expires_at");`);

    this.addSql(
      `create table "lists" ("id" text not null, "team_id" text not null, "environment" text not null, "name" text not null, "description" text null, "optin" text not null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(
      `create index "lists_team_id_environment_updated_at_id_index" on "lists" ("team_id", "environment", "updated_at", "id");`,
    );

    this.addSql(
      `create table "members" ("id" text not null, "team_id" text not null, "email" text not null, "name" text not null, "role" text not null, "removed_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(`create index "members_team_id_index" on "members" ("team_id");`);

    this.addSql(
      `create table "newsletters" ("id" text not null, "team_id" text not null, "environment" text not null, "name" text not null, "subject" text null, "from_email" text null, "from_name" text null, "body" text null, "status" text not null default 'DRAFT', "send_days" text[] not null default '{}', "send_id" text null, "send_at" timestamptz(3) null, "started_at" timestamptz(3) null, "completed_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(
      `create index "newsletters_team_id_environment_updated_at_id_index" on "newsletters" ("team_id", "environment", "updated_at", "id");`,
    );

    this.addSql(
      `create table "newsletter_lists" ("newsletter_id" text not null, "list_id" text not null, primary key ("newsletter_id", "list_id"));`,
    );
    this.addSql(`create index "newsletter_lists_list_id_index" on "newsletter_lists" ("list_id");`);

    this.addSql(
      `create table "sends" ("id" text not null, "team_id" text not null, "environment" text not null, "resource_type" text not null, "resource_id" text not null, "api_key_id" text not null, "account_id" text not null, "status" text not null, "recipients" int not null, "credits_reserved" int not null, "cap_limit" int not null, "cap_used_today" int not null, "send_at" timestamptz(3) not null, "epoch" int not null default 0, "started_at" timestamptz(3) null, "completed_at" timestamptz(3) null, "settled_at" timestamptz(3) null, "trouble" text null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(`create index "sends_status_index" on "sends" ("status");`);
    this.addSql(`create index "sends_resource_id_index" on "sends" ("resource_id");`);

    this.addSql(
      `create table "send_previews" ("id" text not null, "team_id" text not null, "environment" text not null, "resource_type" text not null, "resource_id" text not null, "api_key_id" text not null, "plan_digest" text not null, "total" int not null, "not_opted_in" int not null, "suppressed" int not null, "eligible" int not null, "credits_required" int not null, "cap_limit" int not null, "cap_used_today" int not null, "from_address" text not null, "account_address" text not null, "complaint_rate" double precision not null, "expires_at" timestamptz(3) not null, "used_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(`create index "send_previews_expires_at_index" on "send_previews" ("expires_at");`);

    this.addSql(
      `create table "send_recipients" ("send_id" text not null, "seq" int not null, "subscriber_id" text not null, "email" text not null, "first_name" text null, "last_name" text null, "list_id" text not null, "state" text not null default 'QUEUED', "epoch" int not null default 0, "attempts" smallint not null default 0, "first_deferred_at" timestamptz(3) null, "retry_at" timestamptz(3) null, "reason" text null, "updated_at" timestamptz(3) not null default now(), primary key ("send_id", "seq"));`,
    );

    this.addSql(
      `create table "subscribers" ("id" text not null, "team_id" text not null, "environment" text not null, "email" text not null, "first_name" text null, "last_name" text null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(
      `create index "subscribers_team_id_environment_updated_at_id_index" on "subscribers" ("team_id", "environment", "updated_at", "id");`,
    );
    this.addSql(
      `alter table "subscribers" add constraint "subscribers_team_id_environment_email_unique" unique ("team_id", "environment", "email");`,
    );

    this.addSql(
      `create table "subscriptions" ("list_id" text not null, "subscriber_id" text not null, "team_id" text not null, "environment" text not null, "status" text not null, "confirmed_at" timestamptz(3) null, "unsubscribed_at" timestamptz(3) null, "confirmation_due_at" timestamptz(3) null, "confirmation_sent_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("list_id", "subscriber_id"));`,
    );
    this.addSql(`create index "subscriptions_subscriber_id_index" on "subscriptions" ("subscriber_id");`);
    this.addSql(
      `create index "subscriptions_list_id_updated_at_subscriber_id_index" on "subscriptions" ("list_id", "updated_at", "subscriber_id");`,
    );

    this.addSql(
      `create table "suppressions" ("id" text not null, "team_id" text not null, "environment" text not null, "email" text not null, "reason" text not null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(
      `create index "suppressions_team_id_environment_updated_at_id_index" on "suppressions" ("team_id", "environment", "updated_at", "id");`,
    );
    this.addSql(
      `alter table "suppressions" add constraint "suppressions_team_id_environment_email_unique" unique ("team_id", "environment", "email");`,
    );

    this.addSql(
      `create table "teams" ("id" text not null, "name" text not null, "plan" text not null, "time_zone" text not null default 'UTC', "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );

    this.addSql(
      `create table "unsubscribes" ("id" text not null, "team_id" text not null, "environment" text not null, "email" text not null, "reason" text not null, "source" text not null, "campaign_id" text null, "unsubscribed_at" timestamptz(3) not null default now(), "created_at" timestamptz(3) not null default now(), primary key ("id"));`,
    );
    this.addSql(
      `create index "unsubscribes_team_id_environment_unsubscribed_at_id_index" on "unsubscribes" ("team_id", "environment", "unsubscribed_at", "id");`,
    );

    // What the entities cannot say.

    // updated_at is the database's: the start of the transaction that changed the row. synced_through relies on it.
    this.addSql(`create function touch_updated_at() returns trigger language plpgsql as $$
      begin
        if new is distinct from old then new.updated_at := now(); end if;
        return new;
      end $$;`);
    for (const table of [
      "teams",
      "members",
      "api_keys",
      "lists",
      "subscribers",
      "subscriptions",
      "suppressions",
      "email_accounts",
      "newsletters",
      "sends",
      "credit_balances",
    ]) {
      this.addSql(
        `create trigger "${table}_touch" before update on "${table}" for each row execute function touch_updated_at();`,
      );
    }

    const references = [
      ["members", "team_id", "teams"],
      ["api_keys", "team_id", "teams"],
      ["api_keys", "member_id", "members"],
      ["lists", "team_id", "teams"],
      ["subscribers", "team_id", "teams"],
      ["subscriptions", "list_id", "lists"],
      ["subscriptions", "subscriber_id", "subscribers"],
      ["email_accounts", "team_id", "teams"],
      ["newsletters", "team_id", "teams"],
      ["newsletter_lists", "newsletter_id", "newsletters"],
      ["newsletter_lists", "list_id", "lists"],
      ["credit_balances", "team_id", "teams"],
    ];
    for (const [table, column, target] of references) {
      this.addSql(
        `alter table "${table}" add constraint "${table}_${column}_fk" foreign key ("${column}") references "${target}" ("id") on delete cascade;`,
      );
    }

    // Room in each page for the updates a mail costs, so that they stay heap-only.
    this.addSql(`alter table "send_recipients" set (fillfactor = 50);`);
    this.addSql(
      `create index "send_recipients_retry" on "send_recipients" ("send_id", "retry_at") where "retry_at" is not null;`,
    );
    this.addSql(
      `create index "subscriptions_confirmation_due" on "subscriptions" ("confirmation_due_at") where "confirmation_due_at" is not null;`,
    );
    this.addSql(`alter table "credit_balances" add constraint "credit_balances_not_negative"
      check ("available" >= 0 and "reserved" >= 0);`);
  }
}
