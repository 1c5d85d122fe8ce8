#!/bin/sh
# Runs a command, unless a run under this name is recorded as done. Use it under a lock:
#   zlock run --wait 1h jobs/backup -- once.sh "backup-$(date +%F)" backup --full
# DONE is a folder that all machines share.
set -eu

record=$DONE/$1
shift
[ ! -e "$record" ] || exit 0
"$@"
# A machine that dies before this line leaves the command to the next one, which runs it again.
echo "$ZLOCK_TOKEN" > "$record"
