# The Debian packages that Muster needs, and a function that installs them. Sourced by deploy/quickstart
# and tests/run.
# shellcheck shell=bash disable=SC2034

build_packages="gcc libc6-dev cmake ninja-build pkg-config libmicrohttpd-dev libgnutls28-dev libcurl4-openssl-dev libjansson-dev
    libsqlite3-dev zlib1g-dev uthash-dev libssl-dev libibverbs-dev clang"
example_packages="wamerican"
test_packages="g++ relacy-dev libclang-rt-14-dev clang-format clang-tidy cppcheck libcmocka-dev libxml2-utils wamerican curl
    iproute2 procps python3 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user qemu-system-x86 busybox-static kmod xz-utils libibverbs1
    ibverbs-providers openssl etcd-server"

# install_packages NAME...: installs the missing ones and prints their names. Fails with one line if it
# may not install packages.
install_packages() {
    local name missing=()
    for name in "$@"; do
        dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q '^install ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "Muster needs these Debian packages; as root: apt-get install ${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "== install what is missing: ${missing[*]}"
    local log
    log=$(mktemp)
    if ! { "${as_root[@]}" apt-get update &&
        DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } \
        >"$log" 2>&1; then
        tail -20 "$log" >&2
        echo "apt-get failed to install ${missing[*]}" >&2
        return 1
    fi
    rm -f "$log"
}
