#!/usr/bin/env bash
# Three musterd with three members of an etcd cluster, which are killed and frozen one after the other.
set -eu
source=${MUSTER_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
bin=${MUSTER_BIN:-$source/build/release/bin}
command -v etcd >/dev/null || { echo "SKIP: etcd is not installed (in Debian: etcd-server)"; exit 77; }
command -v python3 >/dev/null || { echo "SKIP: python3 is not installed"; exit 77; }
[ -x "$bin/musterd" ] || { echo "SKIP: there is no $bin/musterd"; exit 77; }
exec python3 -B "$source/tests/rendezvous/etcd/servers.py" "$bin"
