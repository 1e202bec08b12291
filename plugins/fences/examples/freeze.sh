#!/bin/sh
# What a suspended machine does to a worker: all of it stands still, and goes on later.
#
#   sleep 5 | freeze.sh PID      PID is that of `leasehold exec`
#
# It stands still until standard input ends. The job goes on first, so that its write leaves
# before anybody is awake who could stop it.
set -eu
exec=$1
if ! guardian=$(pgrep -P "$exec") || ! job=$(pgrep -P "$guardian"); then
    echo "freeze.sh: no job below process $exec: is it \`leasehold exec\`, and still running?" >&2
    exit 1
fi

running() {
    case $(ps -o stat= -p "$job") in '' | Z*) return 1 ;; esac
}

kill -STOP "$exec" "$guardian" "-$job"
cat >/dev/null
kill -CONT "-$job"
while running; do sleep 0.1; done
kill -CONT "$guardian" "$exec"
