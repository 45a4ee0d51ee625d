#!/usr/bin/env bash
# Installs into a folder of its own; C programs find the library there by pkg-config, C++ programs by
# CMake; what the shared library exports is what muster.h declares.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${MUSTER_BIN%/bin}
if grep -q '^MUSTER_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt"; then
    echo "SKIP: a build with sanitizers is not for installing"
    exit 77
fi
command -v c++ >/dev/null || { echo "SKIP: there is no C++ compiler"; exit 77; }
fail() {
    echo "$1"
    exit 1
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix
cmake --install "$build" --prefix "$prefix" >/dev/null
cd "$scratch"

[ "$(ls "$prefix/include" | xargs)" = "muster.h muster_collectives.h muster_data.h muster_engine.h muster_messages.h muster_operations.h muster_values.h" ] ||
    fail "not only the public headers are installed: $(ls "$prefix/include")"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig:$prefix/lib64/pkgconfig
for folder in "$prefix"/lib/*/pkgconfig; do
    PKG_CONFIG_PATH+=:$folder
done
libraries=$(pkg-config --variable=libdir muster)
[ -f "$libraries/libmuster.so" ] || fail "muster.pc says that the libraries are in $libraries"

# C, by pkg-config.
read -ra flags < <(pkg-config --cflags muster)
read -ra shared < <(pkg-config --libs muster)
read -ra static < <(pkg-config --static --libs muster | sed 's/-lmuster/-l:libmuster.a/')
strict=(-std=c17 -Wall -Wextra -Wpedantic -Werror)
cc "${strict[@]}" "$here/consumer.c" -o c_shared "${flags[@]}" "${shared[@]}"
cc "${strict[@]}" "$here/consumer.c" -o c_static "${flags[@]}" "${static[@]}"
LD_LIBRARY_PATH=$libraries ./c_shared
./c_static
readelf -d c_shared | grep -q 'NEEDED.*libmuster\.so\.0' || fail "c_shared does not need libmuster.so.0"
! readelf -d c_static | grep -q 'NEEDED.*libmuster' || fail "c_static needs libmuster.so"

# C++, by CMake.
mkdir cpp
cp "$here/CMakeLists.txt.in" cpp/CMakeLists.txt
cp "$here/consumer.c" cpp/consumer.cpp
cmake -G Ninja -S cpp -B cpp/build -DCMAKE_PREFIX_PATH="$prefix" >cmake.log 2>&1 || { cat cmake.log; exit 1; }
cmake --build cpp/build >build.log 2>&1 || { cat build.log; exit 1; }
cpp/build/cpp_shared
cpp/build/cpp_static

# The example in CUDA C, where there is a compiler for it.
if nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null); then
    "$nvcc" "$here/../../worker/examples/hello_gpu.cu" -o hello_gpu "${flags[@]}" "${shared[@]}" >nvcc.log 2>&1 ||
        { cat nvcc.log; exit 1; }
fi

# The programs do not need the build folder.
for program in muster musterd; do
    [ ! -x "$MUSTER_BIN/$program" ] || "$prefix/bin/$program" --help >/dev/null ||
        fail "the installed $program does not start"
done

# A program made outside the tree in a job of the installed programs.
if [ -x "$prefix/bin/muster" ] && [ -x "$prefix/bin/musterd" ]; then
    cc "${strict[@]}" "$here/../../worker/examples/hello_allreduce.c" -o hello "${flags[@]}" "${static[@]}"
    timeout 60 "$prefix/bin/muster" run -n 3 --no-prefix -- ./hello >hello.log 2>&1 || fail "$(cat hello.log)"
    [ "$(grep -c '^rank [012] of 3: 1 + ... + 3 = 6$' hello.log)" = 3 ] || fail "$(cat hello.log)"
fi

# The exported names are those that are declared.
nm -D --defined-only "$libraries/libmuster.so" | awk '{print $NF}' | LC_ALL=C sort >exported
cc -E -P "${flags[@]}" -include muster.h -xc /dev/null |
    grep -oE '\bmuster_[a-z_]+\(' | tr -d '(' | LC_ALL=C sort -u >declared
diff declared exported || fail "declared (<) and exported (>) names differ"
[ "$(wc -l <exported)" -ge 20 ] || fail "only $(wc -l <exported) names are exported"
echo "$(wc -l <exported) functions are declared and exported, and nothing else"
