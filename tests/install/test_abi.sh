#!/usr/bin/env bash
# The binary interface: what programs were built against stays as it is, and what is new is in the list, too.
set -u
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}" || exit 1
library=${MUSTER_BIN:-$PWD/build/release/bin}/../worker/libmuster.so
if [ "$(getconf LONG_BIT)" != 64 ]; then
    echo "SKIP: the list is that of 64-bit machines"
    exit 77
fi
python3 -B tests/install/abi.py "$library" || exit 1

# Each kind of difference is seen and named. A list that differs stands for a header that does.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
expect() { # TEXT SED-COMMAND
    sed "$2" tests/install/abi.txt >"$folder/list"
    if python3 -B tests/install/abi.py "$library" "$folder/list" >"$folder/out" || ! grep -qF -- "$1" "$folder/out"; then
        echo "after $2 the difference \"$1\" is not seen:"
        cat "$folder/out"
        failed=1
    fi
}
expect 'changed, which breaks programs: field muster_options.job 24 8  ->  field muster_options.job 16 8' \
    's/^field muster_options.job .*/field muster_options.job 24 8/'
expect 'changed, which breaks programs: value MUSTER_REJOIN 4' 's/^value MUSTER_REJOIN .*/value MUSTER_REJOIN 4/'
expect 'changed, which breaks programs: function int muster_wait(' 's/^function .* muster_wait(/function int muster_wait(/'
expect 'changed, which breaks programs: struct muster_options 4000' 's/^struct muster_options .*/struct muster_options 4000/'
expect 'gone, which breaks programs: function void muster_gone(int)' '$ a function void muster_gone(int)'
expect 'new, and not in the list: field muster_call_options.timeout_ms' '/muster_call_options.timeout_ms/d'
expect 'new, and not in the list: function void muster_close(' '/muster_close/d'
expect 'larger, which the list does not say yet: struct muster_options' 's/^struct muster_options .*/struct muster_options 64/'
exit $failed
