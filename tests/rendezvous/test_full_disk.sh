#!/usr/bin/env bash
# A disk that is full: a clear error, nothing changed, and on with it once there is room.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
. "$source/tests/rendezvous/small_disk.sh"
serve --store "$folder/disk/jobs.db" --hold-ms 100 --watch-ms 100
expect '"formed"' Join "{\"job\":\"j\",\"member\":\"$(member 1)\",\"host\":\"h\",\"maxSize\":1}"
head -c 1M /dev/zero >"$folder/disk/filler" 2>/dev/null || true

value=$(head -c 6000 /dev/zero | base64 -w0)
expect '"code":"unavailable"' Put "{\"job\":\"j\",\"key\":\"k\",\"value\":\"$value\"}"
expect "store $folder/disk/jobs.db: database or disk is full" Put "{\"job\":\"j\",\"key\":\"k\",\"value\":\"$value\"}"
expect '"code":"not_found"' Get '{"job":"j","key":"k"}'
refused=no
for i in $(seq 100); do # what room the log still has is used up first
    answer=$(ask Join "{\"job\":\"j$i\",\"member\":\"$(member 1)\",\"host\":\"h\",\"maxSize\":1}")
    case "$answer" in *unavailable*"disk is full"*) refused=j$i && break ;; esac
done
[ $refused != no ] || fail "the disk is never full"
expect '"code":"not_found"' GetJob "{\"job\":\"$refused\"}"
expect '"revoked":false' Watch "{\"job\":\"j\",\"member\":\"$(member 1)\",\"generation\":\"$(generation)\"}"

rm "$folder/disk/filler"
expect '{}' Put "{\"job\":\"j\",\"key\":\"k\",\"value\":\"$value\"}"
expect '"formed"' Join "{\"job\":\"$refused\",\"member\":\"$(member 1)\",\"host\":\"h\",\"maxSize\":1}"
crash
serve --store "$folder/disk/jobs.db"
expect '"value":' Get '{"job":"j","key":"k"}'
expect '"phase":"JOB_PHASE_RUNNING"' GetJob "{\"job\":\"$refused\"}"
stop 0

# A member that asks to join all the time lives, though nothing of it can be stored; a silent one dies.
join_pair() { # NUMBER [ADDRESS]
    ask Join "{\"job\":\"pair\",\"member\":\"$(member $1)\",\"host\":\"h\",\"maxSize\":2,\"addresses\":[\"tcp://127.0.0.1:${2:-1}\"]}"
}
rm "$folder"/disk/*
serve --store "$folder/disk/pair.db" --hold-ms 100 --watch-ms 100 --suspect-ms 500 --lease-ms 2000 --settle-ms 30000
join_pair 2 >"$folder/first"
join_pair 1 >"$folder/second"
grep -q '"size":2' "$folder/second" || fail "no pair: $(cat "$folder/second")"
head -c 1M /dev/zero >"$folder/disk/filler" 2>/dev/null || true
tries=0
# The end of member 1 is due for longer than a lease: there is an attempt to store it each second.
until [ "$(grep -c 'an event that is due cannot be stored' "$folder/err")" -ge 4 ]; do
    tries=$((tries + 1))
    [ $tries -lt 5000 ] || fail "nothing is due: $(cat "$folder/err")"
    join_pair 2 $((tries + 1)) >"$folder/answer" # another address: an event of its own
done
grep -q 'disk is full' "$folder/answer" || fail "the disk was not full: $(cat "$folder/answer")"
rm "$folder/disk/filler"
tries=0
until ask GetJob '{"job":"pair"}' | grep -q 'lease lost'; do
    tries=$((tries + 1))
    [ $tries -lt 5000 ] || fail "member 1 does not die"
done
join_pair 2 >"$folder/answer"
grep -q '"formed"' "$folder/answer" || fail "member 2 is out: $(cat "$folder/answer")"
stop 0

# A limit of the size of files is no other thing: the service lives on.
serve --store "$folder/limited.db" --hold-ms 100 --watch-ms 100
prlimit --pid "$pid" --fsize=65536 # once it runs: a thread sanitizer writes a file of its own when it starts
expect '"formed"' Join "{\"job\":\"j\",\"member\":\"$(member 1)\",\"host\":\"h\",\"maxSize\":1}"
refused=no
for i in $(seq 50); do
    answer=$(ask Put "{\"job\":\"j\",\"key\":\"k$i\",\"value\":\"$value\"}")
    case "$answer" in *unavailable*) refused=k$i && break ;; esac
done
[ $refused != no ] || fail "the limit is never reached"
expect '"revoked":false' Watch "{\"job\":\"j\",\"member\":\"$(member 1)\",\"generation\":\"$(generation)\"}"
expect '"value":' Get '{"job":"j","key":"k1"}'
stop 0
echo "PASS"
