# Sourced by the tests of a store that cannot be written: a mount namespace, musterd.sh, and $folder/disk, which has room
# for 256 KiB. The arguments are the test's own.
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
