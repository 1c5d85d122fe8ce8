#!/bin/sh
# Deploys a version; waits while another deployment runs, wherever that was started.
set -eu

lock=deploy/web
# Starts this script again, under the lock.
if [ "${ZLOCK_PATH:-}" != "/$lock" ]; then
    exec zlock run --wait 10m "$lock" -- "$0" "$@"
fi

version=$1
# The token is greater than that of every earlier deployment: what is deployed can refuse a smaller one.
printf '%s %s\n' "$ZLOCK_TOKEN" "$version" > "$DEPLOY_TARGET/current.new"
mv "$DEPLOY_TARGET/current.new" "$DEPLOY_TARGET/current"
echo "deployed $version"
