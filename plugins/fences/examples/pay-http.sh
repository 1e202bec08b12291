#!/bin/sh
# Adds AMOUNT to an account in a file behind the fence proxy: seal and read, think, write.
#
#   leasehold exec --resource account/42 -- pay-http.sh AMOUNT [SECONDS]
#
# SECONDS is how long it thinks. STORE is the address of the proxy.
set -eu
amount=$1 think=${2:-0}
# Letters, digits and slashes stand for themselves; whatever else is in a name is percent-encoded.
account="${STORE:-http://127.0.0.1:7080}/account/42"

fenced() {
    curl -sS --fail-with-body \
        -H "Fencing-Resource: $FENCING_RESOURCE" -H "Fencing-Token: $FENCING_TOKEN" "$@"
}

# A read with a token is one that seals first.
before=$(fenced "$account") || { echo "$before" >&2; exit 1; }
sleep "$think"
fenced -X PUT --data-binary $((before + amount)) "$account" >&2
echo "token $FENCING_TOKEN: $before + $amount = $((before + amount))"
