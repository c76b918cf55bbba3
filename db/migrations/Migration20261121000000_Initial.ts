import { Migration } from "@mikro-orm/migrations";

const SCHEMA = `
create extension if not exists pg_trgm;
create extension if not exists btree_gin;
create table "account_leases" ("account_id" text not null, "holder" text not null, "connections" int not null, "expires_at" timestamptz(3) not null, primary key ("account_id", "holder"));
create table "account_refusals" ("account_id" text not null, "count" int not null, "since" timestamptz(3) not null, "reason" text not null, "temporary" boolean not null, "retry_at" timestamptz(3) not null, primary key ("account_id"));
create table "account_checks" ("account_id" text not null, "next_at" timestamptz(3) not null, "findings" int not null default 0, primary key ("account_id"));
create index "account_checks_next_at_index" on "account_checks" ("next_at");
create table "account_grants" ("account_id" text not null, "encrypted_grant" text not null, "version" int not null default 1, "encrypted_access_token" text null, "token_expires_at" timestamptz(3) null, "refreshing_until" timestamptz(3) null, primary key ("account_id"));
create table "account_usage" ("account_id" text not null, "window" text not null, "starts_at" timestamptz(3) not null, "used" int not null, primary key ("account_id", "window", "starts_at"));
create table "analytics_changes" ("team_id" text not null, "environment" text not null, "day" date not null, "seq" bigserial, "resource_id" text not null, "step_version_id" text null, "figure" text not null, "count" int not null, primary key ("team_id", "environment", "day", "seq"));
create table "analytics_days" ("team_id" text not null, "environment" text not null, "resource_id" text not null, "day" date not null, "sent" int not null default 0, "tracked" int not null default 0, "bounced_hard" int not null default 0, "bounced_soft" int not null default 0, "complained" int not null default 0, "opened" int not null default 0, "opened_unique" int not null default 0, "clicked" int not null default 0, "clicked_unique" int not null default 0, "opened_unknown" int not null default 0, "opened_machine" int not null default 0, "clicked_unknown" int not null default 0, "clicked_machine" int not null default 0, "rejected" int not null default 0, "suppressed" int not null default 0, "unknown" int not null default 0, "unsubscribed" int not null default 0, "complaints_received" int not null default 0, primary key ("team_id", "environment", "resource_id", "day"));
create table "api_keys" ("id" text not null, "team_id" text not null, "environment" text not null, "public_id" text not null, "name" text not null, "secret_hash" text not null, "member_id" text not null, "role_at_issue" text not null, "granted_scopes" text[] not null, "send_domains" text[] not null, "for_list_id" text null, "requires_approval" boolean not null default false, "daily_send_cap" int not null, "lineage_id" text not null, "for_sessions" boolean not null default false, "api_version" text not null, "expires_at" timestamptz(3) null, "revoked_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));
alter table "api_keys" add constraint "api_keys_public_id_unique" unique ("public_id");
create index "api_keys_team_id_index" on "api_keys" ("team_id");
create index "api_keys_lineage_id_index" on "api_keys" ("lineage_id");
create table "audience_addresses" ("team_id" text not null, "environment" text not null, "email" text not null, "holders" smallint not null, primary key ("team_id", "environment", "email"));
create table "bin" ("id" text not null, "team_id" text not null, "environment" text not null, "kind" text not null, "name" text not null, "deleted_by" text null, "deleted_at" timestamptz(3) not null default now(), primary key ("id"));
create index "bin_team_id_environment_kind_deleted_at_index" on "bin" ("team_id", "environment", "kind", "deleted_at");
create index "bin_deleted_at_index" on "bin" ("deleted_at");
create table "bin_rows" ("id" text not null, "team_id" text not null, "environment" text not null, "record_id" text not null, "source" text not null, "data" jsonb not null, primary key ("id"));
create index "bin_rows_record_id_index" on "bin_rows" ("record_id");
create table "bin_subscriptions" ("list_id" text not null, "subscriber_id" text not null, "team_id" text not null, "environment" text not null, "status" text not null, "confirmed_at" timestamptz(3) null, "unsubscribed_at" timestamptz(3) null, "signed_up_again_at" timestamptz(3) null, "confirmation_due_at" timestamptz(3) null, "confirmation_sent_at" timestamptz(3) null, "confirmation_withheld" text null, "form_text_id" text null, "form_at" timestamptz(3) null, "form_tracking" boolean null, "is_made_by_form" boolean not null default false, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), "has_moved" boolean not null default false, primary key ("list_id", "subscriber_id"));
create index "bin_subscriptions_subscriber_id_index" on "bin_subscriptions" ("subscriber_id");
create table "contact_slot_counts" ("team_id" text not null, "environment" text not null, "used" int not null, primary key ("team_id", "environment"));
create table "campaigns" ("id" text not null, "team_id" text not null, "environment" text not null, "name" text not null, "subject" text null, "from_name" text null, "body" text null, "blocks" jsonb null, "preheader" text null, "status" text not null default 'DRAFT', "send_days" smallint[] not null default '{}', "tracking" boolean null, "status_reason" text null, "send_id" text null, "send_at" timestamptz(3) null, "send_zone" text null, "started_at" timestamptz(3) null, "completed_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), "updated_by" text null, "segment_id" text null, "account_ids" text[] not null default '{}', "is_drip" boolean not null default false, primary key ("id"));
create index "campaigns_team_id_environment_updated_at_id_index" on "campaigns" ("team_id", "environment", "updated_at", "id");
create index "campaigns_team_id_environment_created_at_id_index" on "campaigns" ("team_id", "environment", "created_at", "id");
create table "confirmation_mails" ("team_id" text not null, "environment" text not null, "mailbox" text not null, "list_id" text not null, "day" date not null, "email" text not null, "by_form" boolean not null default false, "tried_at" timestamptz(3) not null default now(), "settled_at" timestamptz(3) null, primary key ("team_id", "environment", "mailbox", "list_id", "day"));
create index "confirmation_mails_day_team_id_environment_index" on "confirmation_mails" ("day", "team_id", "environment");
create index "confirmation_mails_mailbox_index" on "confirmation_mails" ("mailbox");
create table "contacts" ("id" text not null, "team_id" text not null, "environment" text not null, "email" text not null, "email_spelling" text null, "first_name" text null, "last_name" text null, "fields" jsonb not null default '{}', "email_status" text not null default 'ACTIVE', "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));
create index "contacts_email_status_updated_at" on "contacts" ("team_id", "environment", "email_status", "updated_at", "id");
create index "contacts_email_status_created_at" on "contacts" ("team_id", "environment", "email_status", "created_at", "id");
alter table "contacts" add constraint "contacts_team_id_environment_email_unique" unique ("team_id", "environment", "email");
create table "contact_fields" ("team_id" text not null, "environment" text not null, "name" text not null, "type" text not null, "deleted_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), primary key ("team_id", "environment", "name"));
create table "segments" ("id" text not null, "team_id" text not null, "environment" text not null, "name" text not null, "conditions" jsonb not null, "deleted_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), "updated_by" text null, primary key ("id"));
create index "segments_team_id_environment_index" on "segments" ("team_id", "environment");
create table "contact_status_checks" ("seq" bigserial primary key, "team_id" text not null, "environment" text not null, "email" text not null, "checked_at" timestamptz(3) null);
create table "credit_balances" ("team_id" text not null, "environment" text not null, "available" bigint not null, "reserved" bigint not null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("team_id", "environment"));
create table "credit_entries" ("id" text not null, "team_id" text not null, "environment" text not null, "kind" text not null, "amount" bigint not null, "send_id" text null, "cause" text not null, "created_at" timestamptz(3) not null default now(), primary key ("id"));
create index "credit_entries_team_id_environment_index" on "credit_entries" ("team_id", "environment");
alter table "credit_entries" add constraint "credit_entries_kind_send_id_cause_unique" unique ("kind", "send_id", "cause");
create table "daily_send_usage" ("lineage_id" text not null, "day" date not null, "used" int not null, primary key ("lineage_id", "day"));
create table "database_keys" ("name" text not null, "encrypted_key" text not null, "created_at" timestamptz(3) not null default now(), primary key ("name"));
create table "deleted_webhooks" ("webhook_id" text not null, "deleted_at" timestamptz(3) not null default now(), primary key ("webhook_id"));
create table "dkim_keys" ("id" text not null, "team_id" text not null, "environment" text not null, "domain" text not null, "selector" text not null, "algorithm" text not null, "encrypted_private_key" text not null, "public_key" text not null, "active_since" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), primary key ("id"));
create index "dkim_keys_team_id_environment_domain_index" on "dkim_keys" ("team_id", "environment", "domain");
alter table "dkim_keys" add constraint "dkim_keys_domain_selector_unique" unique ("domain", "selector");
create table "draft_versions" ("id" text not null, "team_id" text not null, "environment" text not null, "draft_id" text not null, "step_id" text null, "subject" text null, "preheader" text null, "body" text null, "blocks" jsonb null, "written_at" timestamptz(3) not null, "written_by" text null, "kept_at" timestamptz(3) not null default now(), primary key ("id"));
create index "draft_versions_draft_id_index" on "draft_versions" ("draft_id");
create index "draft_versions_kept_at_index" on "draft_versions" ("kept_at");
create table "email_accounts" ("id" text not null, "team_id" text not null, "environment" text not null, "email" text not null, "display_name" text not null, "provider" text not null, "status" text not null, "allowed_domains" text[] not null, "host" text not null, "port" int not null, "security" text not null, "username" text null, "encrypted_password" text null, "max_connections" int not null, "hourly_limit" int null, "daily_limit" int null, "last_checked_at" timestamptz(3) null, "last_error" text null, "last_reply" text null, "refusals" jsonb null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), "updated_by" text null, primary key ("id"));
create index "email_accounts_team_id_environment_updated_at_id_index" on "email_accounts" ("team_id", "environment", "updated_at", "id");
create index "email_accounts_team_id_environment_created_at_id_index" on "email_accounts" ("team_id", "environment", "created_at", "id");
alter table "email_accounts" add constraint "email_accounts_team_id_environment_email_unique" unique ("team_id", "environment", "email");
create table "engagements" ("send_id" text not null, "seq" int not null, "kind" text not null, "team_id" text not null, "environment" text not null, "resource_id" text not null, "email" text not null, "count" int not null, "first_at" timestamptz(3) not null, "last_at" timestamptz(3) not null, primary key ("send_id", "seq", "kind"));
create index "engagements_team_id_environment_kind_last_at_index" on "engagements" ("team_id", "environment", "kind", "last_at");
create table "erased_addresses" ("team_id" text not null, "environment" text not null, "address_hash" text not null, "placeholder" text null, "erased_at" timestamptz(3) not null default now(), primary key ("team_id", "environment", "address_hash"));
create table "idempotency_records" ("team_id" text not null, "environment" text not null, "key_hash" text not null, "fingerprint" text null, "attempt" int not null, "locked_at" timestamptz(3) not null, "request_id" text null, "status" int null, "payload" text null, "payload_kind" text null, "expires_at" timestamptz(3) not null, primary key ("team_id", "environment", "key_hash"));
create index "idempotency_records_expires_at_index" on "idempotency_records" ("expires_at");
create table "form_days" ("team_id" text not null, "environment" text not null, "form_id" text not null, "day" date not null, "shown" int not null default 0, "sent" int not null default 0, "confirmed" int not null default 0, primary key ("team_id", "environment", "form_id", "day"));
create table "form_texts" ("id" text not null, "team_id" text not null, "environment" text not null, "form_id" text not null, "consent" text not null, "tracking" text null, "created_at" timestamptz(3) not null default now(), primary key ("id"));
create index "form_texts_form_id_index" on "form_texts" ("form_id");
create table "forms" ("id" text not null, "team_id" text not null, "environment" text not null, "list_id" text not null, "reference" text not null, "name" text not null, "fields" text[] not null, "text_id" text not null, "thank_you_url" text null, "sites" text[] not null, "is_open" boolean not null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), "updated_by" text null, primary key ("id"));
create index "forms_team_id_environment_updated_at_id_index" on "forms" ("team_id", "environment", "updated_at", "id");
create index "forms_team_id_environment_created_at_id_index" on "forms" ("team_id", "environment", "created_at", "id");
create table "audit_entries" ("id" text not null, "team_id" text not null, "environment" text not null, "way" text not null, "member_id" text null, "credential" text null, "act" text not null, "object_id" text null, "count" int null, "request_id" text null, "created_at" timestamptz(3) not null default now(), primary key ("id"));
create index "audit_entries_team_id_environment_created_at_id_index" on "audit_entries" ("team_id", "environment", "created_at", "id");
create index "audit_entries_created_at_index" on "audit_entries" ("created_at");
create table "images" ("id" text not null, "team_id" text not null, "environment" text not null, "sha256" text not null, "file" text not null, "name" text not null, "bytes" int not null, "width" int not null, "height" int not null, "created_at" timestamptz(3) not null default now(), primary key ("id"));
create index "images_team_id_environment_id_index" on "images" ("team_id", "environment", "id");
alter table "images" add constraint "images_team_id_environment_sha256_unique" unique ("team_id", "environment", "sha256");
create table "unused_image_files" ("file" text not null, "attempts" int not null default 0, "due_at" timestamptz(3) not null default now(), primary key ("file"));
create index "unused_image_files_due_at_index" on "unused_image_files" ("due_at");
create table "imports" ("id" text not null, "team_id" text not null, "environment" text not null, "member_id" text not null, "name" text not null, "size" int not null, "state" text not null, "options" jsonb null, "progress" int not null default 0, "rows_done" int not null default 0, "rows_total" int null, "outcome" jsonb null, "expires_at" timestamptz(3) not null, "undoable_until" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));
create index "imports_team_id_environment_id_index" on "imports" ("team_id", "environment", "id");
create index "imports_expires_at_index" on "imports" ("expires_at");
create table "import_parts" ("import_id" text not null, "n" int not null, "bytes" bytea not null, primary key ("import_id", "n"));
create table "import_steps" ("seq" bigserial primary key, "import_id" text not null, "kind" text not null, "list_id" text null, "people" text[] not null, "members" text[] not null, "contacts" text[] not null, "made_at" timestamptz(3) not null default now());
create index "import_steps_import_id_index" on "import_steps" ("import_id");
create index "import_steps_made_at_index" on "import_steps" ("made_at");
create table "link_clicks" ("send_id" text not null, "seq" int not null, "link_id" text not null, "count" int not null, primary key ("send_id", "seq", "link_id"));
create table "lists" ("id" text not null, "team_id" text not null, "environment" text not null, "name" text not null, "description" text null, "optin" text not null, "has_archive" boolean not null default false, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), "updated_by" text null, primary key ("id"));
create index "lists_team_id_environment_updated_at_id_index" on "lists" ("team_id", "environment", "updated_at", "id");
create index "lists_team_id_environment_created_at_id_index" on "lists" ("team_id", "environment", "created_at", "id");
create table "list_opt_outs" ("team_id" text not null, "environment" text not null, "address_hash" text not null, "list_id" text not null, "unsubscribed_at" timestamptz(3) not null, primary key ("team_id", "environment", "address_hash", "list_id"));
create index "list_opt_outs_list_id_index" on "list_opt_outs" ("list_id");
create table "mail_reports" ("send_id" text not null, "seq" int not null, "kind" text not null, "team_id" text not null, "environment" text not null, "email" text null, "reason" text null, "created_at" timestamptz(3) not null default now(), primary key ("send_id", "seq", "kind"));
create table "marked_hits" ("send_id" text not null, "seq" int not null, "kind" text not null, "rule" text not null, "by" text not null, "count" int not null, "first_at" timestamptz(3) not null, "last_at" timestamptz(3) not null, primary key ("send_id", "seq", "kind", "rule"));
create table "members" ("id" text not null, "team_id" text not null, "email" text not null, "name" text not null, "role" text not null, "invite_due_at" timestamptz(3) null, "removed_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));
create index "members_team_id_index" on "members" ("team_id");
create index "members_email_index" on "members" ("email");
create table "newsletters" ("id" text not null, "team_id" text not null, "environment" text not null, "name" text not null, "subject" text null, "from_name" text null, "body" text null, "blocks" jsonb null, "preheader" text null, "status" text not null default 'DRAFT', "send_days" smallint[] not null default '{}', "tracking" boolean null, "status_reason" text null, "send_id" text null, "send_at" timestamptz(3) null, "send_zone" text null, "started_at" timestamptz(3) null, "completed_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), "updated_by" text null, "segment_id" text null, "from_email" text null, "is_public" boolean null, primary key ("id"));
create index "newsletters_team_id_environment_updated_at_id_index" on "newsletters" ("team_id", "environment", "updated_at", "id");
create index "newsletters_team_id_environment_created_at_id_index" on "newsletters" ("team_id", "environment", "created_at", "id");
create table "newsletter_lists" ("newsletter_id" text not null, "list_id" text not null, primary key ("newsletter_id", "list_id"));
create index "newsletter_lists_list_id_newsletter_id_index" on "newsletter_lists" ("list_id", "newsletter_id");
create table "pending_hits" ("send_id" text not null, "seq" int not null, "id" text not null, "kind" text not null, "at" timestamptz(3) not null, "url" text null, "rule" text null, "early" boolean not null, "source" text null, "created_at" timestamptz(3) not null default now(), primary key ("send_id", "seq", "id"));
create table "person_requests" ("id" text not null, "team_id" text not null, "environment" text not null, "kind" text not null, "email" text null, "address_hash" text not null, "member_id" text not null, "state" text not null default 'RUNNING', "step" text null, "outcome" jsonb null, "file" text null, "expires_at" timestamptz(3) not null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));
create index "person_requests_team_id_environment_address_hash_index" on "person_requests" ("team_id", "environment", "address_hash");
create index "person_requests_expires_at_index" on "person_requests" ("expires_at");
create table "reconciler_passes" ("kind" text not null, "completed_at" timestamptz(3) not null default now(), primary key ("kind"));
create table "report_sources" ("id" text not null, "team_id" text not null, "environment" text not null, "provider" text not null, "topic_arn" text null, "public_key" text null, "encrypted_signing_key" text null, "created_at" timestamptz(3) not null default now(), primary key ("id"));
create table "request_counts" ("starts_at" timestamptz(3) not null, "caller_id" text not null, "count" int not null, primary key ("starts_at", "caller_id"));
create table "revoked_tokens" ("jti" text not null, "expires_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), primary key ("jti"));
create index "revoked_tokens_expires_at_index" on "revoked_tokens" ("expires_at");
create table "sign_in_links" ("id" text not null, "email" text not null, "browser_hash" text null, "mail_due_at" timestamptz(3) null, "used_at" timestamptz(3) null, "expires_at" timestamptz(3) not null, "created_at" timestamptz(3) not null default now(), primary key ("id"));
create index "sign_in_links_mail_due_at_index" on "sign_in_links" ("mail_due_at");
create index "sign_in_links_expires_at_index" on "sign_in_links" ("expires_at");
create table "console_identities" ("issuer" text not null, "subject" text not null, "email" text not null, "last_used_at" timestamptz(3) not null, "created_at" timestamptz(3) not null default now(), primary key ("issuer", "subject"));
create index "console_identities_last_used_at_index" on "console_identities" ("last_used_at");
alter table "console_identities" add constraint "console_identities_issuer_email_unique" unique ("issuer", "email");
create table "console_sessions" ("token_hash" text not null, "email" text not null, "last_used_at" timestamptz(3) not null, "expires_at" timestamptz(3) not null, "created_at" timestamptz(3) not null default now(), primary key ("token_hash"));
create index "console_sessions_email_index" on "console_sessions" ("email");
create index "console_sessions_expires_at_index" on "console_sessions" ("expires_at");
create table "secret_fingerprints" ("setting" text not null, "key_id" text not null, "fingerprint" text not null, "used_since" timestamptz(3) null, "retired_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), primary key ("setting", "key_id"));
create table "sends" ("id" text not null, "team_id" text not null, "environment" text not null, "resource_type" text not null, "resource_id" text not null, "step_version_id" text null, "list_id" text null, "api_key_id" text not null, "status" text not null, "recipients" int not null, "tracking" text not null default 'OFF', "footer" jsonb null, "send_at" timestamptz(3) not null, "started_at" timestamptz(3) null, "completed_at" timestamptz(3) null, "settled_at" timestamptz(3) null, "review_until" timestamptz(3) null, "pause_reason" text null, "complaint_rate" double precision null, "ledger_state" text not null default 'COMPLETE', "pruned_seq" int not null default 0, "resumes" int not null default 0, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));
create index "sends_status_index" on "sends" ("status");
create index "sends_resource_id_send_at_index" on "sends" ("resource_id", "send_at");
create table "send_counts" ("seq" bigserial primary key, "send_id" text not null, "state" text not null, "count" int not null);
create index "send_counts_send_id_index" on "send_counts" ("send_id");
create table "send_lanes" ("send_id" text not null, "account_id" text not null, "epoch" int not null default 0, "dispatching" boolean not null default false, "after_seq" int not null default 0, "in_flight_ms" int not null default 0, "has_accepted" boolean not null default false, "are_gone" boolean not null default false, primary key ("send_id", "account_id"));
create table "send_previews" ("id" text not null, "team_id" text not null, "environment" text not null, "resource_type" text not null, "resource_id" text not null, "api_key_id" text not null, "plan_digest" text not null, "total" int not null, "ineligible" int not null, "suppressed" int not null, "eligible" int not null, "tracked" int not null, "cap_limit" int not null, "cap_used_today" int not null, "from_addresses" text[] not null, "account_addresses" text[] not null, "target_ids" text[] not null, "send_at" timestamptz(3) null, "complaint_rate" double precision not null, "expires_at" timestamptz(3) not null, "used_at" timestamptz(3) null, "voided_at" timestamptz(3) null, "other_key_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), primary key ("id"));
create index "send_previews_expires_at_index" on "send_previews" ("expires_at");
create table "send_recipients" ("send_id" text not null, "seq" int not null, "member_id" text not null, "email" text not null, "email_spelling" text null, "first_name" text null, "last_name" text null, "list_id" text null, "state" text not null default 'QUEUED', "epoch" int not null default 0, "attempts" smallint not null default 0, "responded" boolean not null default false, "tracked" boolean not null default false, "first_deferred_at" timestamptz(3) null, "retry_at" timestamptz(3) null, "reason" text null, "updated_at" timestamptz(3) not null default now(), "account_id" text null, "fields" jsonb null, primary key ("send_id", "seq"));
create table "sequences" ("campaign_id" text not null, "team_id" text not null, "environment" text not null, "list_id" text null, "segment_id" text null, "from_email" text not null, "api_key_id" text null, "wave" int not null default 0, "open_waves" text[] not null default '{}', "claimed_at" timestamptz(3) null, "include_members" boolean not null default false, "started_at" timestamptz(3) null, "members_noted_at" timestamptz(3) null, "swept_at" timestamptz(3) null, "swept_all_at" timestamptz(3) null, "updated_at" timestamptz(3) not null default now(), "updated_by" text null, primary key ("campaign_id"));
create index "sequences_list_id_index" on "sequences" ("list_id");
create table "sequence_enrolments" ("campaign_id" text not null, "address_hash" text not null, "member_id" text not null, "state" text not null, "reason" text null, "passed_step_id" text null, "passed_at" timestamptz(3) null, "step_id" text null, "due_at" timestamptz(3) null, "fell_due_at" timestamptz(3) null, "send_id" text null, "seq" int null, "entered_at" timestamptz(3) not null default now(), primary key ("campaign_id", "address_hash"));
alter table "sequence_enrolments" add constraint "sequence_enrolments_campaign_id_member_id_unique" unique ("campaign_id", "member_id");
create table "sequence_steps" ("campaign_id" text not null, "step_id" text not null, "place" int not null, "version_id" text not null, "removed_at" timestamptz(3) null, primary key ("campaign_id", "step_id"));
create table "sequence_step_versions" ("id" text not null, "campaign_id" text not null, "step_id" text not null, "wait_minutes" int not null, "time_of_day" text null, "send_days" smallint[] not null default '{}', "subject" text not null, "preheader" text null, "body" text not null, "blocks" jsonb null, "stop_if" jsonb null, "skip_if" jsonb null, "sent" int not null default 0, "opened" int not null default 0, "clicked" int not null default 0, "created_at" timestamptz(3) not null default now(), "written_by" text null, primary key ("id"));
create index "sequence_step_versions_campaign_id_index" on "sequence_step_versions" ("campaign_id");
create table "sequence_wakes" ("seq" bigserial primary key, "campaign_id" text not null);
create table "subscribers" ("id" text not null, "team_id" text not null, "environment" text not null, "email" text not null, "email_spelling" text null, "first_name" text null, "last_name" text null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));
create index "subscribers_team_id_environment_updated_at_id_index" on "subscribers" ("team_id", "environment", "updated_at", "id");
create index "subscribers_team_id_environment_created_at_id_index" on "subscribers" ("team_id", "environment", "created_at", "id");
alter table "subscribers" add constraint "subscribers_team_id_environment_email_unique" unique ("team_id", "environment", "email");
create table "subscriptions" ("list_id" text not null, "subscriber_id" text not null, "team_id" text not null, "environment" text not null, "status" text not null, "address_version" bigserial, "confirmed_at" timestamptz(3) null, "unsubscribed_at" timestamptz(3) null, "signed_up_again_at" timestamptz(3) null, "confirmation_due_at" timestamptz(3) null, "confirmation_sent_at" timestamptz(3) null, "confirmation_withheld" text null, "form_text_id" text null, "form_at" timestamptz(3) null, "form_tracking" boolean null, "is_made_by_form" boolean not null default false, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("list_id", "subscriber_id"));
create index "subscriptions_subscriber_id_index" on "subscriptions" ("subscriber_id");
create index "subscriptions_list_id_status_updated_at_subscriber_id_index" on "subscriptions" ("list_id", "status", "updated_at", "subscriber_id");
create index "subscriptions_list_id_status_created_at_subscriber_id_index" on "subscriptions" ("list_id", "status", "created_at", "subscriber_id");
create table "suppressions" ("id" text not null, "team_id" text not null, "environment" text not null, "email" text not null, "email_spelling" text null, "reason" text not null, "has_other_reason" boolean not null default false, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));
create index "suppressions_team_id_environment_reason_updated_at_id_index" on "suppressions" ("team_id", "environment", "reason", "updated_at", "id");
create index "suppressions_team_id_environment_reason_created_at_id_index" on "suppressions" ("team_id", "environment", "reason", "created_at", "id");
alter table "suppressions" add constraint "suppressions_team_id_environment_email_unique" unique ("team_id", "environment", "email");
create table "teams" ("id" text not null, "name" text not null, "plan" text not null, "time_zone" text not null default 'UTC', "requests_per_minute" int null, "contact_slots" int null, "webhook_endpoints" int null, "tracking" text not null default 'OFF', "language" text not null default 'en', "logo_url" text null, "accent_color" text not null default '#0b57d0', "background_color" text not null default '#ffffff', "font" text not null default 'sans', "sender_name" text null, "sender_email" text null, "mail_footer" text null, "postal_address" text null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), "updated_by" text null, primary key ("id"));
create table "templates" ("id" text not null, "team_id" text not null, "environment" text not null, "name" text not null, "subject" text null, "preheader" text null, "body" text null, "blocks" jsonb null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), "updated_by" text null, primary key ("id"));
create index "templates_team_id_environment_index" on "templates" ("team_id", "environment");
create table "tracked_links" ("id" text not null, "team_id" text not null, "environment" text not null, "resource_id" text not null, "url" text not null, "clicks" int not null, "clickers" int not null, "clicks_unknown" int not null, "clicks_machine" int not null, "first_at" timestamptz(3) null, "last_at" timestamptz(3) null, primary key ("id"));
create index "tracked_links_resource_id_index" on "tracked_links" ("resource_id");
create table "tracking_consents" ("team_id" text not null, "environment" text not null, "email" text not null, "status" text not null, "way" text not null, "words" text null, "at" timestamptz(3) not null, primary key ("team_id", "environment", "email"));
create table "unsubscribes" ("id" text not null, "team_id" text not null, "environment" text not null, "email" text not null, "email_spelling" text null, "reason" text not null, "source" text not null, "campaign_id" text null, "unsubscribed_at" timestamptz(3) not null default now(), primary key ("id"));
create index "unsubscribes_source" on "unsubscribes" ("team_id", "environment", "source", "unsubscribed_at", "id");
create index "unsubscribes_campaign" on "unsubscribes" ("team_id", "environment", "campaign_id", "unsubscribed_at", "id");
create index "unsubscribes_email" on "unsubscribes" ("team_id", "environment", "email");
create table "webhook_deliveries" ("id" text not null, "team_id" text not null, "environment" text not null, "webhook_id" text not null, "event_id" text not null, "event_type" text not null, "first_id" text null, "attempt" smallint not null default 1, "attempts_used" smallint not null default 0, "superseded_by_id" text null, "status" text not null default 'PENDING', "failure" text generated always as (nullif(nullif(status, 'PENDING'), 'SUCCEEDED')) stored null, "final_failure" text generated always as (case when superseded_by_id is null and status in ('FAILED', 'BLOCKED') then status end) stored null, "response_status" smallint null, "response_body" text null, "error_message" text null, "duration_ms" int null, "is_replay" boolean not null default false, "replay_of_id" text null, "next_attempt_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), primary key ("id"));
create index "webhook_deliveries_webhook_id_created_at_id_index" on "webhook_deliveries" ("webhook_id", "created_at", "id");
create table "webhook_endpoints" ("id" text not null, "team_id" text not null, "environment" text not null, "origin" text not null, "name" text not null, "description" text null, "url" text not null, "events" text[] not null, "active" boolean not null default true, "encrypted_secret" text not null, "previous_encrypted_secret" text null, "previous_secret_expires_at" timestamptz(3) null, "encrypted_headers" text null, "header_names" text[] not null default '{}', "api_version" text not null, "disabled_at" timestamptz(3) null, "disabled_reason" text null, "enabled_at" timestamptz(3) not null default now(), "notice_due_at" timestamptz(3) null, "created_at" timestamptz(3) not null default now(), "updated_at" timestamptz(3) not null default now(), "updated_by" text null, primary key ("id"));
create index "webhook_endpoints_team_id_environment_updated_at_id_index" on "webhook_endpoints" ("team_id", "environment", "updated_at", "id");
create index "webhook_endpoints_team_id_environment_created_at_id_index" on "webhook_endpoints" ("team_id", "environment", "created_at", "id");
create table "webhook_events" ("id" text not null, "team_id" text not null, "environment" text not null, "type" text not null, "object" text not null, "is_test" boolean not null default false, "created_at" timestamptz(3) not null, "kept_until" timestamptz(3) not null, primary key ("id"));
create index "webhook_events_kept_until_index" on "webhook_events" ("kept_until");
create table "webhook_health" ("webhook_id" text not null, "consecutive_failures" int not null default 0, "last_success_at" timestamptz(3) null, "last_failure_at" timestamptz(3) null, "failing_since" timestamptz(3) null, "probe_at" timestamptz(3) null, "probe_wait_seconds" smallint null, "epoch" int not null default 0, "lease_until" timestamptz(3) null, "claimed" text[] not null default '{}', "paused_at" timestamptz(3) null, primary key ("webhook_id"));
create table "webhook_outbox" ("seq" bigserial primary key, "team_id" text not null, "environment" text not null, "type" text not null, "objects" text not null, "created_at" timestamptz(3) not null default now());
create index "webhook_outbox_team_id_seq_index" on "webhook_outbox" ("team_id", "seq");

-- What the entities cannot say.

-- updated_at is the database's: the start of the transaction that changed the row. synced_through relies on it.
create function touch_updated_at() returns trigger language plpgsql as $$
  begin
    if new is distinct from old then new.updated_at := now(); end if;
    return new;
  end $$;
-- The setting holds in a transaction of a member's save in the console.
create function touch_edited() returns trigger language plpgsql as $$
  begin
    if new is distinct from old then
      new.updated_at := now();
      new.updated_by := nullif(current_setting('mailkeel.member', true), '');
    end if;
    return new;
  end $$;
create function delete_draft_versions() returns trigger language plpgsql as $$
  begin
    delete from draft_versions where draft_id = old.id;
    return null;
  end $$;
-- The update that numbers an address changes nothing else, and the address is the subscriber's.
create trigger "teams_touch" before update on "teams" for each row execute function touch_edited();
create trigger "members_touch" before update on "members" for each row execute function touch_updated_at();
create trigger "api_keys_touch" before update on "api_keys" for each row execute function touch_updated_at();
create trigger "lists_touch" before update on "lists" for each row execute function touch_edited();
create trigger "forms_touch" before update on "forms" for each row execute function touch_edited();
create trigger "subscribers_touch" before update on "subscribers" for each row execute function touch_updated_at();
create trigger "subscriptions_touch" before update on "subscriptions" for each row when (old.address_version = new.address_version) execute function touch_updated_at();
create trigger "contacts_touch" before update on "contacts" for each row execute function touch_updated_at();
create trigger "segments_touch" before update on "segments" for each row execute function touch_edited();
create trigger "suppressions_touch" before update on "suppressions" for each row when (old.has_other_reason = new.has_other_reason) execute function touch_updated_at();
create trigger "email_accounts_touch" before update on "email_accounts" for each row execute function touch_edited();
create trigger "newsletters_touch" before update on "newsletters" for each row execute function touch_edited();
create trigger "campaigns_touch" before update on "campaigns" for each row execute function touch_edited();
create trigger "templates_touch" before update on "templates" for each row execute function touch_edited();
create trigger "newsletters_versions" after delete on "newsletters" for each row execute function delete_draft_versions();
create trigger "campaigns_versions" after delete on "campaigns" for each row execute function delete_draft_versions();
create trigger "sends_touch" before update on "sends" for each row execute function touch_updated_at();
create trigger "credit_balances_touch" before update on "credit_balances" for each row execute function touch_updated_at();
create trigger "webhook_endpoints_touch" before update on "webhook_endpoints" for each row execute function touch_edited();
create trigger "imports_touch" before update on "imports" for each row execute function touch_updated_at();
create trigger "person_requests_touch" before update on "person_requests" for each row execute function touch_updated_at();

-- However an image is deleted, with its team too, its file follows.
create function note_unused_image_file() returns trigger language plpgsql as $$
  begin
    insert into unused_image_files (file) values (old.file) on conflict do nothing;
    return null;
  end $$;
create trigger "images_deleted" after delete on "images" for each row execute function note_unused_image_file();

-- The bin forgets a list: with it go its subscriptions, and the opt-outs that wait for it under hashes.
create function forget_list() returns trigger language plpgsql as $$
  begin
    if exists (select from lists where id = old.id) then return null; end if;
    delete from bin_subscriptions where list_id = old.id;
    delete from list_opt_outs where list_id = old.id;
    return null;
  end $$;
create trigger "bin_lists" after delete on "bin" for each row when (old.kind = 'list') execute function forget_list();
create function forget_subscriber() returns trigger language plpgsql as $$
  begin
    delete from bin_subscriptions where subscriber_id = old.id;
    return null;
  end $$;
create trigger "subscribers_bin" after delete on "subscribers" for each row execute function forget_subscriber();

alter table "members" add constraint "members_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "api_keys" add constraint "api_keys_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "api_keys" add constraint "api_keys_member_id_fk" foreign key ("member_id") references "members" ("id") on delete cascade;
alter table "lists" add constraint "lists_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "bin" add constraint "bin_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "bin_rows" add constraint "bin_rows_record_id_fk" foreign key ("record_id") references "bin" ("id") on delete cascade;
alter table "forms" add constraint "forms_list_id_fk" foreign key ("list_id") references "lists" ("id") on delete cascade;
alter table "form_days" add constraint "form_days_form_id_fk" foreign key ("form_id") references "forms" ("id") on delete cascade;
-- The texts stay when a form is deleted with its list.
alter table "form_texts" add constraint "form_texts_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "subscribers" add constraint "subscribers_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "contacts" add constraint "contacts_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "contact_fields" add constraint "contact_fields_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "segments" add constraint "segments_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "subscriptions" add constraint "subscriptions_list_id_fk" foreign key ("list_id") references "lists" ("id") on delete cascade;
alter table "sequences" add constraint "sequences_campaign_id_fk" foreign key ("campaign_id") references "campaigns" ("id") on delete cascade;
alter table "sequence_steps" add constraint "sequence_steps_campaign_id_fk" foreign key ("campaign_id") references "campaigns" ("id") on delete cascade;
alter table "sequence_step_versions" add constraint "sequence_step_versions_campaign_id_fk" foreign key ("campaign_id") references "campaigns" ("id") on delete cascade;
alter table "sequence_enrolments" add constraint "sequence_enrolments_campaign_id_fk" foreign key ("campaign_id") references "campaigns" ("id") on delete cascade;
alter table "sequence_wakes" add constraint "sequence_wakes_campaign_id_fk" foreign key ("campaign_id") references "campaigns" ("id") on delete cascade;
alter table "subscriptions" add constraint "subscriptions_subscriber_id_fk" foreign key ("subscriber_id") references "subscribers" ("id") on delete cascade;
alter table "dkim_keys" add constraint "dkim_keys_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "email_accounts" add constraint "email_accounts_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "newsletters" add constraint "newsletters_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "audit_entries" add constraint "audit_entries_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "images" add constraint "images_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "imports" add constraint "imports_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "person_requests" add constraint "person_requests_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "import_parts" add constraint "import_parts_import_id_fk" foreign key ("import_id") references "imports" ("id") on delete cascade;
alter table "import_steps" add constraint "import_steps_import_id_fk" foreign key ("import_id") references "imports" ("id") on delete cascade;
alter table "report_sources" add constraint "report_sources_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "templates" add constraint "templates_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "campaigns" add constraint "campaigns_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "newsletter_lists" add constraint "newsletter_lists_newsletter_id_fk" foreign key ("newsletter_id") references "newsletters" ("id") on delete cascade;
alter table "newsletter_lists" add constraint "newsletter_lists_list_id_fk" foreign key ("list_id") references "lists" ("id") on delete cascade;
alter table "credit_balances" add constraint "credit_balances_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "webhook_endpoints" add constraint "webhook_endpoints_team_id_fk" foreign key ("team_id") references "teams" ("id") on delete cascade;
alter table "webhook_health" add constraint "webhook_health_webhook_id_fk" foreign key ("webhook_id") references "webhook_endpoints" ("id") on delete cascade;

alter table "campaigns" add constraint "campaigns_segment_id_fk" foreign key ("segment_id")
  references "segments" ("id");
alter table "newsletters" add constraint "newsletters_segment_id_fk" foreign key ("segment_id")
  references "segments" ("id");
alter table "credit_balances" add constraint "credit_balances_not_negative"
  check ("available" >= 0 and "reserved" >= 0);

-- A list without a filter is read value by value of these columns: a value beyond them would not be shown.
alter table "subscriptions" add constraint "subscriptions_status_known" check ("status" in ('PENDING', 'CONFIRMED', 'UNSUBSCRIBED'));
alter table "contacts" add constraint "contacts_email_status_known" check ("email_status" in ('ACTIVE', 'INVALID'));
alter table "suppressions" add constraint "suppressions_reason_known" check ("reason" in ('MANUAL', 'bounce:hard', 'bounce:soft', 'bounce:complaint', 'UNSUBSCRIBED'));
alter table "unsubscribes" add constraint "unsubscribes_source_known" check ("source" in ('link', 'one_click', 'mailto'));

-- The UTC day of an instant, in which analytics count.
create function utc_day(at timestamptz) returns date language sql immutable parallel safe
  return (at at time zone 'UTC')::date;
-- Once per statement: a mail adds no row, and statements that run at once do not wait for each other. Each table is
-- grouped for itself, which costs less than to group both. A mail that an operator has mailed again takes its bounces,
-- complaints, opens and clicks along to the day of its new outcome.
create function count_recipient_states() returns trigger language plpgsql as $$
  declare has_moved_responses boolean;
  begin
    with changes as materialized (
      select send_id, state, responded, tracked, updated_at, -count(*) as change from old_rows group by 1, 2, 3, 4, 5
      union all
      select send_id, state, responded, tracked, updated_at, count(*) from new_rows group by 1, 2, 3, 4, 5
    ), counted as (
      insert into send_counts (send_id, state, count)
      select send_id, state, sum(change) from changes group by 1, 2 having sum(change) <> 0
    ), figures as materialized (
      select c.send_id, utc_day(c.updated_at) as day, sum(c.change) as change, f.figure
      from changes c
      cross join lateral (select state = 'SENT' or state = 'UNKNOWN' and responded as accepted) a
      cross join lateral (values
        (case when a.accepted then 'sent' else lower(state) end), (case when a.accepted and tracked then 'tracked' end)
      ) f (figure)
      where state in ('SENT', 'REJECTED', 'SUPPRESSED', 'UNKNOWN') and f.figure is not null group by 1, 2, 4
    ), figured as (
      insert into analytics_changes (team_id, environment, resource_id, step_version_id, day, figure, count)
      select s.team_id, s.environment, s.resource_id, s.step_version_id, f.day, f.figure, f.change
      from figures f
      cross join lateral (select team_id, environment, resource_id, step_version_id from sends where id = f.send_id offset 0) s
      where f.change <> 0
    )
    select exists (select from changes where responded and change < 0) into has_moved_responses;
    if has_moved_responses then
      insert into analytics_changes (team_id, environment, resource_id, step_version_id, day, figure, count)
      select s.team_id, s.environment, s.resource_id, s.step_version_id, utc_day(m.updated_at), f.figure, sum(f.count * m.change)
      from (
        select send_id, seq, state, updated_at, -1 as change from old_rows where responded
        union all
        select send_id, seq, state, updated_at, 1 from new_rows where responded
      ) m
      cross join lateral (select team_id, environment, resource_id, step_version_id from sends where id = m.send_id offset 0) s
      cross join lateral (
        select case kind when 'bounce:hard' then 'bounced_hard' when 'bounce:soft' then 'bounced_soft' else 'complained' end
          as figure, case kind when 'complaint:withdrawn' then -1 else 1 end as count
        from mail_reports p where p.send_id = m.send_id and p.seq = m.seq and p.kind <> 'complaint:unknown'
          and not (p.kind = 'bounce:soft' and exists (
            select from mail_reports h where h.send_id = m.send_id and h.seq = m.seq and h.kind = 'bounce:hard'))
        union all
        select f.figure, f.count from engagements e
        cross join lateral (values (e.kind, e.count), (e.kind || '_unique', 1)) f (figure, count)
        where e.send_id = m.send_id and e.seq = m.seq
        union all
        select h.kind || '_' || h.by, h.count from marked_hits h where h.send_id = m.send_id and h.seq = m.seq
      ) f
      where m.state in ('SENT', 'UNKNOWN') group by 1, 2, 3, 4, 5, 6 having sum(f.count * m.change) <> 0;
    end if;
    return null;
  end $$;
create trigger "send_recipients_count" after update on "send_recipients"
  referencing old table as old_rows new table as new_rows
  for each statement execute function count_recipient_states();

-- Counts slots of a tenant, negative to free them; the count is locked until the transaction ends. Beyond the plan's limit
-- it fails, with the slots that are left as detail. Returns the slots that are left then, null for any number.
create function take_contact_slots(team text, env text, amount int) returns int language plpgsql as $$
  declare
    plan_limit int := (select contact_slots from teams where id = team);
    total int;
  begin
    insert into contact_slot_counts as c (team_id, environment, used) values (team, env, amount)
    on conflict (team_id, environment) do update set used = c.used + amount
    returning used into total;
    if amount > 0 and total > plan_limit then
      raise exception using
        errcode = 'MK001', message = amount::text, detail = greatest(0, plan_limit - total + amount)::text;
    end if;
    return plan_limit - total;
  end $$;
-- Holds the ledger's rows of mails while figures of them change, in one order, and marks those that are not SENT. SENT is
-- the last state of a row, unless its provider dropped the mail: one that is seen SENT need not be held, unless its reports act on each other. The rows are
-- looked up one by one: a join could be planned for many rows, and then walk the ledger for one.
create function hold_responding_mails(send_ids text[], seqs int[], sent_too boolean)
  returns void language plpgsql as $$
  begin
    perform from (select distinct send_id, seq from unnest(send_ids, seqs) m (send_id, seq) order by 1, 2) m
    cross join lateral (
      select from send_recipients r where r.send_id = m.send_id and r.seq = m.seq and (sent_too or r.state <> 'SENT')
      for no key update) r;
    if exists (
      select from unnest(send_ids, seqs) m (send_id, seq) cross join lateral (
        select from send_recipients r where r.send_id = m.send_id and r.seq = m.seq and r.state <> 'SENT'
          and not r.responded offset 0) r
    ) then
      update send_recipients set responded = true where ctid = any(array(
        select r.row from unnest(send_ids, seqs) m (send_id, seq) cross join lateral (
          select r.ctid as row from send_recipients r where r.send_id = m.send_id and r.seq = m.seq
            and r.state <> 'SENT' and not r.responded offset 0) r));
    end if;
  end $$;
-- Changes figures on the day on which their mails were accepted. Those of mails that have another outcome count nothing.
create function add_mail_figures(send_ids text[], seqs int[], figures text[], counts int[])
  returns void language plpgsql as $$
  begin
    insert into analytics_changes (team_id, environment, resource_id, step_version_id, day, figure, count)
    select s.team_id, s.environment, s.resource_id, s.step_version_id, r.day, m.figure, sum(m.count)
    from unnest(send_ids, seqs, figures, counts) m (send_id, seq, figure, count)
    cross join lateral (
      select utc_day(updated_at) as day from send_recipients r
      where r.send_id = m.send_id and r.seq = m.seq and r.state in ('SENT', 'UNKNOWN') offset 0) r
    cross join lateral (select team_id, environment, resource_id, step_version_id from sends where id = m.send_id offset 0) s
    group by 1, 2, 3, 4, 5, 6 having sum(m.count) <> 0;
  end $$;
-- A mail with both kinds of bounces counts as a hard one alone. A complaint counts on the day of its coming, too; its
-- withdrawal takes it from both days. A refusal concerns a mail that was not accepted, and a complaint of an unknown
-- reporter proves nothing: no figure of responses counts them.
create function count_mail_reports() returns trigger language plpgsql as $$
  begin
    if not exists (select from new_rows where kind not in ('refusal:soft', 'complaint:unknown')) then return null; end if;
    perform hold_responding_mails(array_agg(send_id), array_agg(seq), true) from new_rows
    where kind not in ('refusal:soft', 'complaint:unknown');
    perform add_mail_figures(array_agg(m.send_id), array_agg(m.seq), array_agg(f.figure), array_agg(f.count))
    from (
      select n.send_id, n.seq, bool_or(n.kind = 'bounce:hard') as hard, bool_or(n.kind = 'bounce:soft') as soft,
        bool_or(n.kind = 'complaint')::int - bool_or(n.kind = 'complaint:withdrawn')::int as complaint
      from new_rows n group by 1, 2
    ) m
    cross join lateral (
      select bool_or(p.kind = 'bounce:hard') as hard, bool_or(p.kind = 'bounce:soft') as soft
      from mail_reports p where p.send_id = m.send_id and p.seq = m.seq
    ) now
    cross join lateral (values
      ('bounced_hard', m.hard::int),
      ('bounced_soft', (now.soft and not now.hard)::int - (now.soft and not m.soft and not (now.hard and not m.hard))::int),
      ('complained', m.complaint)
    ) f (figure, count)
    where f.count <> 0;
    insert into analytics_changes (team_id, environment, resource_id, day, figure, count)
    select s.team_id, s.environment, s.resource_id, utc_day(p.created_at), 'complaints_received',
      sum(case n.kind when 'complaint' then 1 else -1 end)
    from new_rows n
    cross join lateral (select created_at from mail_reports
      where send_id = n.send_id and seq = n.seq and kind = 'complaint' offset 0) p
    cross join lateral (select team_id, environment, resource_id from sends where id = n.send_id offset 0) s
    where n.kind in ('complaint', 'complaint:withdrawn') group by 1, 2, 3, 4;
    return null;
  end $$;
create trigger "mail_reports_count" after insert on "mail_reports"
  referencing new table as new_rows for each statement execute function count_mail_reports();
create function count_first_engagements() returns trigger language plpgsql as $$
  begin
    perform hold_responding_mails(array_agg(send_id), array_agg(seq), false) from new_rows;
    perform add_mail_figures(array_agg(n.send_id), array_agg(n.seq), array_agg(f.figure), array_agg(f.count))
    from new_rows n cross join lateral (values (n.kind, n.count), (n.kind || '_unique', 1)) f (figure, count);
    return null;
  end $$;
create trigger "engagements_count_first" after insert on "engagements"
  referencing new table as new_rows for each statement execute function count_first_engagements();
create function count_more_engagements() returns trigger language plpgsql as $$
  begin
    perform hold_responding_mails(array_agg(send_id), array_agg(seq), false) from new_rows;
    perform add_mail_figures(array_agg(c.send_id), array_agg(c.seq), array_agg(c.kind), array_agg(c.count))
    from (
      select send_id, seq, kind, count from new_rows
      union all
      select send_id, seq, kind, -count from old_rows
    ) c;
    return null;
  end $$;
create trigger "engagements_count_more" after update on "engagements"
  referencing old table as old_rows new table as new_rows
  for each statement execute function count_more_engagements();
-- A machine's hit proves, too, that a server has the mail.
create function count_marked_hits() returns trigger language plpgsql as $$
  begin
    perform hold_responding_mails(array_agg(send_id), array_agg(seq), false) from new_rows;
    perform add_mail_figures(array_agg(send_id), array_agg(seq), array_agg(kind || '_' || by), array_agg(count)) from new_rows;
    return null;
  end $$;
create trigger "marked_hits_count_first" after insert on "marked_hits"
  referencing new table as new_rows for each statement execute function count_marked_hits();
create function count_more_marked_hits() returns trigger language plpgsql as $$
  begin
    perform hold_responding_mails(array_agg(send_id), array_agg(seq), false) from new_rows;
    perform add_mail_figures(array_agg(c.send_id), array_agg(c.seq), array_agg(c.kind || '_' || c.by), array_agg(c.count))
    from (
      select send_id, seq, kind, by, count from new_rows
      union all
      select send_id, seq, kind, by, -count from old_rows
    ) c;
    return null;
  end $$;
create trigger "marked_hits_count_more" after update on "marked_hits"
  referencing old table as old_rows new table as new_rows
  for each statement execute function count_more_marked_hits();
create function count_unsubscribes() returns trigger language plpgsql as $$
  begin
    insert into analytics_changes (team_id, environment, resource_id, day, figure, count)
    select team_id, environment, coalesce(campaign_id, ''), utc_day(unsubscribed_at), 'unsubscribed', count(*)
    from new_rows group by 1, 2, 3, 4;
    return null;
  end $$;
create trigger "unsubscribes_count" after insert on "unsubscribes"
  referencing new table as new_rows for each statement execute function count_unsubscribes();

-- Only rows of hard bounces run the function.
create function check_contact_status() returns trigger language plpgsql as $$
  begin
    insert into contact_status_checks (team_id, environment, email)
    values (coalesce(new.team_id, old.team_id), coalesce(new.environment, old.environment), coalesce(new.email, old.email));
    return null;
  end $$;
create trigger "suppressions_insert_bounce" after insert on "suppressions"
    for each row when (new.reason = 'bounce:hard') execute function check_contact_status();
create trigger "suppressions_delete_bounce" after delete on "suppressions"
    for each row when (old.reason = 'bounce:hard') execute function check_contact_status();

-- A plan's digest holds this number in place of the subscriber's address.
create function renew_address_version() returns trigger language plpgsql as $$
  begin
    -- An older snapshot would miss the subscriptions that were committed while the update waited for them.
    if current_setting('transaction_isolation') <> 'read committed' then
      raise exception 'an address may be changed in READ COMMITTED only';
    end if;
    update subscriptions set address_version = default where subscriber_id = new.id;
    update bin_subscriptions set has_moved = true where subscriber_id = new.id;
    return null;
  end $$;
create trigger "subscribers_address" after update of "email" on "subscribers"
  for each row when (old.email <> new.email) execute function renew_address_version();

-- An account that was connected without a login is checked at once; a login of another has just worked.
create function plan_account_check() returns trigger language plpgsql as $$
  begin
    insert into account_checks (account_id, next_at)
    values (new.id, case when new.status = 'PENDING' then now() else now() + interval '1 hour' * (0.8 + 0.4 * random()) end);
    return null;
  end $$;
create trigger "email_accounts_check" after insert on "email_accounts"
  for each row execute function plan_account_check();

-- Room in each page for the updates a mail costs, so that they stay heap-only.
alter table "send_recipients" set (fillfactor = 50);
alter table "contact_slot_counts" set (fillfactor = 50);
-- A request's count is not worth a flush of the log: a crash empties the table, and its windows are an hour long at most.
alter table "request_counts" set unlogged;
alter table "request_counts" set (fillfactor = 50);
-- Each settling of clicks changes the sums of their links.
alter table "tracked_links" set (fillfactor = 50);
-- The owner of an endpoint writes its claims and its health here.
alter table "webhook_health" set (fillfactor = 50);
-- Room for the outcome within the page.
alter table "webhook_deliveries" set (fillfactor = 80);

-- By default a fifth of a table may be dead rows before it is vacuumed: for a queue that is any number of rows between two
-- quiet times, and for a ledger or a log as many as a month of mails.
alter table "account_leases" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "account_refusals" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "account_usage" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "analytics_changes" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "confirmation_mails" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "contact_status_checks" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "daily_send_usage" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "deleted_webhooks" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "request_counts" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "revoked_tokens" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "send_counts" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "pending_hits" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "send_lanes" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "send_previews" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "tracked_links" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "webhook_outbox" set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
alter table "engagements" set (autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_scale_factor = 0.02);
alter table "idempotency_records" set (autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_scale_factor = 0.02);
alter table "mail_reports" set (autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_scale_factor = 0.02);
alter table "link_clicks" set (autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_scale_factor = 0.02);
alter table "marked_hits" set (autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_scale_factor = 0.02);
alter table "send_recipients" set (autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_scale_factor = 0.02);
alter table "webhook_deliveries" set (autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_scale_factor = 0.02);
alter table "webhook_events" set (autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_scale_factor = 0.02);

create index "send_recipients_retry" on "send_recipients" ("send_id", "retry_at") where "retry_at" is not null;
-- The reconciler reads these every minute: the few sends that should have a workflow.
create index "sends_open" on "sends" ("id") where "status" in ('SCHEDULED', 'SENDING', 'PAUSED')
  or "settled_at" is null or "review_until" is not null;
-- The sends whose ledger is due to lose its names or its rows.
create index "sends_ledger" on "sends" ("ledger_state", "completed_at")
  where "completed_at" is not null and "ledger_state" <> 'DELETED';
-- The credit entries that are not rolled up yet, and those that are: one per month and kind.
create index "credit_entries_of_sends" on "credit_entries" ("created_at") where "send_id" is not null;
create unique index "credit_entries_rolled_up" on "credit_entries"
  ("team_id", "environment", "kind", "created_at") where "send_id" is null and "kind" <> 'GRANT';
-- Those who wait in a sequence, by when they are due, and those whom a wave holds.
create index "sequence_enrolments_due" on "sequence_enrolments" ("campaign_id", "due_at")
  where "state" = 'ACTIVE' and "send_id" is null;
create index "sequence_enrolments_held" on "sequence_enrolments" ("send_id", "seq") where "send_id" is not null;
create index "subscriptions_confirmation_due" on "subscriptions" ("confirmation_due_at") where "confirmation_due_at" is not null;
-- Sign-ups at a form that wait for their confirmation.
create index "subscriptions_form_at" on "subscriptions" ("form_at") where "status" = 'PENDING' and "form_at" is not null;
-- Each view of a form raises its count of the day.
alter table "form_days" set (fillfactor = 50);
-- How often mail to an address bounced of late.
create index "mail_reports_soft_bounces" on "mail_reports" ("team_id", "environment", "email", "created_at")
  where "email" is not null;
-- The log of an endpoint by the status of its failures.
create index "webhook_deliveries_failure" on "webhook_deliveries"
  ("webhook_id", "failure", "created_at", "id") where "failure" is not null;
-- The deliveries that are due at an endpoint.
create index "webhook_deliveries_due" on "webhook_deliveries" ("webhook_id", "next_attempt_at")
  where "next_attempt_at" is not null;
-- The same of those with which a delivery has ended. An own column has its own statistics, by which Postgres chooses it.
create index "webhook_deliveries_final_failure" on "webhook_deliveries"
  ("webhook_id", "final_failure", "created_at", "id") where "final_failure" is not null;
-- Serves the credits that a team has consumed in the current month.
create index "credit_entries_consumed" on "credit_entries" ("team_id", "environment", "created_at")
  include ("amount") where "kind" = 'CONSUME';
-- How many test deliveries a team asked for in the last minute.
create index "webhook_events_tests" on "webhook_events" ("team_id", "environment", "created_at")
  where "is_test";
create index "webhook_endpoints_notice_due" on "webhook_endpoints" ("notice_due_at") where "notice_due_at" is not null;
create index "members_invite_due" on "members" ("invite_due_at") where "invite_due_at" is not null;
-- The console's search for people by any part of an address or name; the text is that of domain/audience/search.ts.
create index "contacts_search" on "contacts" using gin ("team_id", "environment",
  (lower("email" || chr(10) || coalesce("email_spelling", '') || chr(10) || coalesce("first_name", '') || ' ' ||
    coalesce("last_name", ''))) gin_trgm_ops);
create index "subscribers_search" on "subscribers" using gin ("team_id", "environment",
  (lower("email" || chr(10) || coalesce("email_spelling", '') || chr(10) || coalesce("first_name", '') || ' ' ||
    coalesce("last_name", ''))) gin_trgm_ops);
`;

export class Migration20261121000000_Initial extends Migration {
  override name = "Migration20261121000000_Initial";

  override up(): void {
    this.addSql(SCHEMA);
  }
}
