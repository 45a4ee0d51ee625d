#!/usr/bin/env bash
# musterd with etcd: a server that is cut off alone, damaged values, compaction, https.
set -eu
source=${MUSTER_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
bin=${MUSTER_BIN:-$source/build/release/bin}
for needed in etcd python3 openssl; do
    command -v "$needed" >/dev/null || { echo "SKIP: $needed is not installed (etcd: in Debian etcd-server)"; exit 77; }
done
. "$source/tests/rendezvous/musterd.sh"

refuses 2 '--etcd-key' --etcd-certificate x --store etcd://127.0.0.1:1
refuses 2 '--etcd-authority' --etcd-certificate x --etcd-key x --store etcd://127.0.0.1:1
refuses 1 'etcd authority /nowhere' --listen 127.0.0.1:0 --etcd-authority /nowhere --store etcd://127.0.0.1:1
python3 -B "$source/tests/rendezvous/etcd/faults.py" "$bin"
