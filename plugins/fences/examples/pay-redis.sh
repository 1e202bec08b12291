#!/bin/sh
# Adds AMOUNT to an account in Redis: seal, read, think, write.
#
#   leasehold exec --resource account/42 -- pay-redis.sh AMOUNT [SECONDS]
#
# SECONDS is how long it thinks. REDIS says where the server is, as flags of redis-cli.
set -eu
amount=$1 think=${2:-0}
# The braces keep both keys in one slot of a cluster.
fence="fence:{$FENCING_RESOURCE}" balance="balance:{$FENCING_RESOURCE}"

redis() {
    # shellcheck disable=SC2086 # flags are words
    redis-cli ${REDIS:-} -e "$@"
}

redis FCALL leasehold_seal 1 "$fence" "$FENCING_TOKEN" >/dev/null
before=$(redis GET "$balance")
: "${before:=0}"
sleep "$think"
redis FCALL leasehold_set 2 "$fence" "$balance" "$FENCING_TOKEN" $((before + amount)) >/dev/null
echo "token $FENCING_TOKEN: $before + $amount = $((before + amount))"
