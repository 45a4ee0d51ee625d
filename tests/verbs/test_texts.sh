#!/usr/bin/env bash
# Links over RDMA that are requested and impossible: one line says why and what to do, and the job goes on
# over TCP; where only RDMA is allowed, the job ends with the same text. Whole jobs, in a guest, whose
# faults are not repaired.
set -u
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}" || exit 1
bin=${MUSTER_BIN:-$PWD/build/release/bin}
if [ -z "${MUSTER_VERBS_GUEST:-}" ]; then
    exec tests/verbs/run --devices 2 -- bash "$PWD/tests/verbs/test_texts.sh"
fi
folder=$(mktemp -d)
failed=0
complain() {
    echo "$*"
    cat "$folder/out" "$folder/err"
    failed=1
}

# Runs the job of two workers with these variables: both must compute the sum.
run_job() { # [NAME=VALUE...] [-- WORKER...]
    local variables=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        variables+=("$1")
        shift
    done
    [ $# -gt 0 ] || set -- -- "$bin/hello_allreduce"
    env MUSTER_VERBS=1 "${variables[@]}" timeout 60 "$bin/muster" run --hosts a:1,b:1 "$@" \
        >"$folder/out" 2>"$folder/err" || complain "status $?: ${variables[*]}"
    [ "$(grep -c '1 + ... + 2 = 3' "$folder/out")" = 2 ] || complain "no sum: ${variables[*]}"
}

# Counts the lines of the job that contain both.
count_lines() { # WORDS WORDS
    grep -hF -- "$1" "$folder/out" "$folder/err" | grep -cF -- "$2"
}

# Both workers log once why and what to do, and are linked over TCP. A bench that requires RDMA ends with
# the same text.
expect_tcp() { # WHAT WHY REMEDY [NAME=VALUE...]
    local what=$1 why=$2 remedy=$3
    shift 3
    run_job MUSTER_LOG=info "$@"
    [ "$(count_lines "$why" "$remedy")" = 2 ] ||
        complain "$what: not every worker logs \"$why\" and \"$remedy\" once"
    [ "$(count_lines 'link over' RDMA)" = 0 ] || complain "$what: links over RDMA"
    [ "$(count_lines 'link from' tcp://)" = 2 ] || complain "$what: no links over TCP"
    ! env "$@" timeout 60 "$bin/muster" bench allreduce -n 2 --transport verbs --bytes 4 \
        >"$folder/out" 2>"$folder/err" || complain "$what: a bench over RDMA succeeded"
    [ "$(count_lines "$why" "$remedy")" -ge 1 ] || complain "$what: the bench does not say so"
    echo "$what: as it should be ($SECONDS s)"
}

run_job MUSTER_LOG=info
[ "$(count_lines 'link over RDMA device rxe0' 'to verbs://10.99.0.1:')" = 2 ] ||
    complain "all is well, and the links are not over RDMA"

# The worker on host b has none.
run_job MUSTER_LOG=info -- sh -c "[ \"\$MUSTER_HOST\" = a ] || export MUSTER_VERBS=0; exec $bin/hello_allreduce"
[ "$(count_lines 'link from' tcp://)" = 2 ] || complain "one has RDMA, the other has not: no links over TCP"

if ldd "$bin/muster" | grep -q libssl; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$folder/key" \
        -out "$folder/certificate" -days 1 -subj /CN=worker >"$folder/out" 2>&1 || complain "no certificate"
    expect_tcp "links are encrypted" "MUSTER_TLS_CERTIFICATE" "RDMA is not encrypted" \
        "MUSTER_TLS_CERTIFICATE=$folder/certificate" "MUSTER_TLS_KEY=$folder/key" \
        "MUSTER_TLS_AUTHORITY=$folder/certificate"
fi
expect_tcp "a device that is not there" "there is no mlx5_7 (MUSTER_VERBS_DEVICE" \
    "only rxe0 port 1, rxe1 port 1" MUSTER_VERBS_DEVICE=mlx5_7
expect_tcp "a port that is not there" "port 2" "only rxe0 port 1, rxe1 port 1" MUSTER_VERBS_PORT=2
expect_tcp "a GID that is not there" "no GID with the index 30 (MUSTER_VERBS_GID)" "list them" \
    MUSTER_VERBS_GID=30

library=$(ldconfig -p | awk '/libibverbs\.so\.1 / {print $NF; exit}')
mount --bind /dev/null "$library" || complain "cannot hide $library"
expect_tcp "no library" \
    "libibverbs cannot be loaded" "apt-get install libibverbs1 ibverbs-providers"
umount "$library"

ip link set eth0 down
expect_tcp "a port that is down" "port 1 of rxe0 is not up (down)" '"ip link"' \
    MUSTER_VERBS_DEVICE=rxe0
run_job MUSTER_LOG=info
[ "$(count_lines 'link over RDMA device rxe1' verbs://10.99.0.2:)" = 2 ] ||
    complain "one port is down: the links do not use the other"
ip link set eth1 down
expect_tcp "no port is up" "port 1 of rxe0 is not up (down)" '"ip link"'

rdma link delete rxe0
rdma link delete rxe1
expect_tcp "no device" "this machine has no RDMA device" '"rdma link" lists them'
exit $failed
