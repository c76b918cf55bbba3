#!/bin/sh
# Updates Temporal's two databases to the schema of the server's version. Safe to run again.
set -eu

schema=/etc/temporal/schema/postgresql/v12

tool() {
  temporal-sql-tool --plugin postgres12 --ep "$POSTGRES_SEEDS" -p "$DB_PORT" -u "$POSTGRES_USER" "$@"
}

setup() {
  # This fails when the database exists already. If it failed for another reason, the next step fails and reports it.
  tool --db "$1" create || true
  tool --db "$1" setup-schema -v 0.0
  tool --db "$1" update-schema -d "$schema/$2/versioned"
}

setup temporal temporal
setup temporal_visibility visibility
