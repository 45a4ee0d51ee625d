#!/usr/bin/env bash
# Who may include whom. One line per folder: what its files may include of ours, as prefixes. The
# first line whose folder prefixes the file counts.
set -eu
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}"

pure_base="worker/muster.h worker/base/status.h worker/base/cleanup.h"
rules="
worker/muster.h:
worker/base/: worker/muster.h worker/base/
worker/fabric/: worker/muster.h worker/base/ worker/fabric/ collectives/call.h
worker/device/: worker/muster.h worker/base/ worker/device/ collectives/call.h collectives/shape.h collectives/host_memory.h collectives/reduce/
worker/executor: worker/muster.h worker/base/ worker/fabric/fabric.h worker/executor collectives/
worker/context: worker/muster.h worker/base/ worker/fabric/fabric.h worker/executor.h worker/context worker/device/memory.h collectives/
worker/examples/: muster.h worker/examples/
worker/: worker/ collectives/ elastic/
collectives/: $pure_base collectives/
elastic/: $pure_base worker/base/random.h elastic/
rendezvous/: worker/muster.h worker/base/ elastic/ rendezvous/
tests/: worker/ collectives/ elastic/ rendezvous/ tests/ muster.h
"
# What would make a core impure: sockets, threads, clocks.
impure='^#include <(pthread|threads|time|sys/time|sys/socket|netinet/.*|sys/epoll|poll|unistd|fcntl|signal|stdatomic|curl/.*|microhttpd|sqlite3)\.?h?>'

failed=0
complain() {
    echo "$1"
    failed=1
}

allowed_for() {
    while IFS=: read -r folder allowed; do
        if [ -n "$folder" ] && [[ "$1" == "$folder"* ]]; then
            echo "$allowed"
            return
        fi
    done <<<"$rules"
}

checked=0
while read -r file; do
    allowed=$(allowed_for "$file")
    while IFS= read -r included; do
        checked=$((checked + 1))
        good=no
        for prefix in $allowed; do
            [[ "$included" == "$prefix"* ]] && good=yes
        done
        [ $good = yes ] || complain "$file includes \"$included\", which its layer may not use"
    done < <(sed -nE 's/^ *# *include +"([^"]+)".*/\1/p' "$file")
    case "$file" in
    collectives/* | elastic/*)
        found=$(grep -nE "$impure" "$file" || true)
        [ -z "$found" ] || complain "$file is part of a pure core: $found"
        ;;
    esac
    case "$file" in
    elastic/messages*) ;;
    elastic/*) ! grep -qn '<jansson.h>' "$file" || complain "$file: only elastic/messages speak JSON" ;;
    esac
done < <(find worker collectives elastic rendezvous tests -name '*.[ch]' | sort)

# Headers must not include each other in a circle.
cycle=$(find worker collectives elastic rendezvous -name '*.h' | while read -r file; do
    sed -nE "s|^ *# *include +\"([^\"]+)\".*|$file \1|p" "$file"
done | tsort 2>&1 >/dev/null | head -5)
[ -z "$cycle" ] || complain "headers include each other: $cycle"

[ $checked -gt 20 ] || complain "only $checked includes were seen: is this the source tree?"
[ $failed = 0 ] && echo "$checked includes keep to the layers"
exit $failed
