#!/usr/bin/env bash
# Where a store cannot be written when musterd starts: one line that names what is wrong, and nothing is changed.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
if [ "${1:-}" != inside ]; then
    if ! unshare -m true 2>/dev/null; then
        echo "SKIP: mounting a small disk needs root and a mount namespace"
        exit 77
    fi
    exec unshare -m bash "$0" inside
fi
. "$source/tests/rendezvous/musterd.sh"
mkdir "$folder/disk"
mount -t tmpfs -o size=256k tmpfs "$folder/disk" 2>/dev/null || {
    echo "SKIP: tmpfs cannot be mounted here"
    exit 77
}
store=$folder/disk/jobs.db
serve --store "$store" --settle-ms 0
expect '"formed"' Join "{\"job\":\"j\",\"member\":\"$(member 1)\",\"host\":\"h\",\"maxSize\":1}"
crash

echo "- a disk that is read-only"
mount -o remount,ro "$folder/disk"
refuses 1 "store $store: Read-only file system" --listen 127.0.0.1:0 --store "$store"
mount -o remount,rw "$folder/disk"

echo "- a folder in which another user may not write"
mkdir -m 755 "$folder/disk/closed"
cp "$store" "$folder/disk/closed/jobs.db"
chmod 666 "$folder/disk/closed/jobs.db"
chmod 755 "$folder"
musterd_itself=$musterd
if setpriv --reuid 65534 --clear-groups test -x "$musterd_itself"; then
    printf '#!/bin/sh\nexec setpriv --reuid 65534 --clear-groups %s "$@"\n' "$musterd_itself" >"$folder/other_user"
    chmod 755 "$folder/other_user"
    musterd=$folder/other_user
    refuses 1 "store $folder/disk/closed/jobs.db: folder $folder/disk/closed/ cannot be written: Permission denied" \
        --listen 127.0.0.1:0 --store "$folder/disk/closed/jobs.db"
    musterd=$musterd_itself
else
    echo "  SKIP: another user may not read $musterd_itself"
fi

echo "- a disk that is full"
head -c 1M /dev/zero >"$folder/disk/filler" 2>/dev/null || true
refuses 1 "store $store: .*full" --listen 127.0.0.1:0 --store "$store"

echo "- and on with it once there is room"
rm "$folder/disk/filler"
serve --store "$store"
expect '"phase":"JOB_PHASE_RUNNING"' GetJob '{"job":"j"}'
stop 0
echo "PASS"
