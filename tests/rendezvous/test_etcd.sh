#!/usr/bin/env bash
# Three musterd with three members of an etcd cluster, which are killed and frozen one after the other.
set -eu
source=${MUSTER_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
bin=${MUSTER_BIN:-$source/build/release/bin}
command -v etcd >/dev/null || { echo "SKIP: etcd is not installed (in Debian: etcd-server)"; exit 77; }
command -v python3 >/dev/null || { echo "SKIP: python3 is not installed"; exit 77; }
. "$source/tests/rendezvous/musterd.sh"

refuses 2 '--server-lease-ms' --server-lease-ms 1
refuses 1 'HOST:PORT' --listen 127.0.0.1:0 --store etcd://nowhere
refuses 1 '--advertise' --listen 0.0.0.0:0 --insecure --store etcd://127.0.0.1:1
refuses 1 'http://HOST:PORT' --listen 127.0.0.1:0 --advertise ftp://x --store etcd://127.0.0.1:1
python3 -B "$source/tests/rendezvous/etcd/servers.py" "$bin"
