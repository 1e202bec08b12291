#!/bin/sh
# Adds AMOUNT to account 42 in PostgreSQL: seal, read, think, write.
#
#   leasehold exec --resource account/42 -- pay-postgres.sh AMOUNT [SECONDS]
#
# SECONDS is how long it thinks. PGHOST, PGPORT and the like say where the database is.
set -eu
amount=$1 think=${2:-0}

sql() {
    psql -XqAt -v ON_ERROR_STOP=1 -v SHOW_CONTEXT=never \
        -v resource="$FENCING_RESOURCE" -v token="$FENCING_TOKEN" "$@"
}

echo "SELECT leasehold.seal(:'resource', :token)" | sql >/dev/null
before=$(echo 'SELECT balance FROM account WHERE id = 42' | sql)
sleep "$think"
sql -v balance=$((before + amount)) >/dev/null <<'SQL'
BEGIN;
SELECT leasehold.guard(:'resource', :token);
UPDATE account SET balance = :balance WHERE id = 42;
COMMIT;
SQL
echo "token $FENCING_TOKEN: $before + $amount = $((before + amount))"
