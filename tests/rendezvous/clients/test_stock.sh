#!/usr/bin/env bash
# buf lint passes, and a client that stock Connect tools generate from the .proto runs the whole contract.
# What npm installs stays in the build folder.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../../..}
source=$(realpath "$source")
. "$source/tests/rendezvous/musterd.sh"
here=$source/tests/rendezvous/clients
for needed in node npm; do
    command -v "$needed" >/dev/null || { echo "SKIP: there is no $needed"; exit 77; }
done
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || { echo "SKIP: node is older than 20"; exit 77; }
[ "$(realpath "$(dirname "$musterd")")" != "$source" ] || fail "the build folder is the source tree"
installed=$(realpath "$(dirname "$musterd")/..")/tests/stock_clients
mkdir -p "$installed"
if ! cmp -s "$here/package.json" "$installed/installed.json"; then
    cp "$here/package.json" "$installed/"
    if ! timeout 120 npm install --prefix "$installed" --no-package-lock --ignore-scripts --no-audit --no-fund \
        --fetch-retries=1 --fetch-timeout=20000 >"$folder/npm" 2>&1; then
        echo "SKIP: npm cannot install the stock clients: $(grep -m1 -i error "$folder/npm" || tail -1 "$folder/npm")"
        exit 77
    fi
    cp "$here/package.json" "$installed/installed.json"
fi
PATH=$installed/node_modules/.bin:$PATH
buf lint "$source/rendezvous" || fail "buf lint"
cp "$here/contract.mjs" "$here/buf.gen.yaml" "$installed/"
(cd "$installed" && buf generate "$source/rendezvous") || fail "buf generate"
serve --store memory
timeout 60 node "$installed/contract.mjs" "http://127.0.0.1:$port" || fail "the contract, see above"
stop 0
echo "PASS"
