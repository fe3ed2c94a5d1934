#!/usr/bin/env bash
# An installed FruGrad serves a program that finds it by pkg-config, shared and static, and one that
# finds it by CMake; and the installed tree is complete. Where frugrad_mpi was built ($MPICC), so does that.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "install: $*" >&2; exit 1; }

DESTDIR=$work/stage cmake --install "$FRUGRAD_BUILD" --prefix /opt/frugrad >"$work/log" || { cat "$work/log"; exit 1; }
prefix=$work/moved
mv "$work/stage/opt/frugrad" "$prefix" # installed files must not depend on where they were installed
libdir=$(dirname "$(find "$prefix" -name libfrugrad.a)")
for file in bin/frugrad include/frugrad.h share/man/man1/frugrad.1; do
    [ -s "$prefix/$file" ] || fail "$file is missing"
done
"$prefix/bin/frugrad" --version | grep '^frugrad [0-9]' >/dev/null || fail "the installed program does not run"
shared='frug_|frugi_(cut_step|held_share|fail|frame_write|section_write|crc32c|crc32c_shift|residual_add|norm_take|norm_drop)$'
# The latter are for libfrugrad_cuda and its test alone.
for library in "$libdir"/libfrugrad*.so; do
    if nm -D --defined-only "$library" | awk '{print $3}' | grep -v -E "^($shared)"; then
        fail "$library exports the names above, which are not public"
    fi
done

cat >"$work/consumer.c" <<'C'
#include <frugrad.h>
#include <stdio.h>

int main(void) {
    frug_config *config;
    if (frug_config_create("dgc,value=int8", &config) != FRUG_OK)
        return 1;
    printf("%s %s\n", frug_version(), frug_config_text(config));
    frug_config_destroy(config);
    return 0;
}
C
cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(frugrad 0.2 REQUIRED)
add_executable(with_shared consumer.c)
target_link_libraries(with_shared frugrad::frugrad)
add_executable(with_static consumer.c)
target_link_libraries(with_static frugrad::frugrad_static)
CMAKE

expect() {
    local said
    said=$("$@") || fail "$* failed"
    [[ $said == *",feedback=dgc,"*"value=int8"* ]] || fail "$* said: $said"
}

export PKG_CONFIG_PATH=$libdir/pkgconfig
read -ra shared <<<"$(pkg-config --cflags --libs frugrad)"
read -ra static <<<"$(pkg-config --cflags --libs --static frugrad)"
"$CC" "$work/consumer.c" -o "$work/by_pkg_config" "${shared[@]}"
expect env LD_LIBRARY_PATH="$libdir" "$work/by_pkg_config"
"$CC" "$work/consumer.c" -o "$work/by_pkg_config_static" "${static[@]/#-lfrugrad/-l:libfrugrad.a}"
expect "$work/by_pkg_config_static"

cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" >"$work/log" &&
    cmake --build "$work/build" >>"$work/log" || { cat "$work/log"; fail "find_package(frugrad) failed"; }
expect "$work/build/with_shared"
expect "$work/build/with_static"

said=$(cd "$work" && env -u FRUGRAD_LIBRARY LD_LIBRARY_PATH="$libdir" PYTHONPATH="$FRUGRAD_SOURCE/python" \
    python3 -B -c 'import frugrad; print(frugrad.Config("dgc").text)') || fail "Python does not find the library"
[[ $said == *",feedback=dgc,"* ]] || fail "Python says: $said"

[ -e "$libdir/libfrugrad_mpi.so" ] || exit 0
cat >"$work/consumer.c" <<'C'
#include <frugrad_mpi.h>
#include <stdio.h>

int main(void) {
    frug_comm *comm;
    printf("%s: %s\n", frug_status_text(frug_comm_mpi(MPI_COMM_WORLD, &comm)), frug_last_error());
    return 0;
}
C
sed -i -e 's/REQUIRED/REQUIRED COMPONENTS mpi/' -e 's/frugrad::frugrad/&_mpi/' "$work/CMakeLists.txt"

expect_mpi() {
    local said
    said=$("$@") || fail "$* failed"
    [[ $said == "invalid argument: "*"MPI is not running" ]] || fail "$* said: $said"
}

read -ra shared <<<"$(pkg-config --cflags --libs frugrad_mpi)"
"$MPICC" "$work/consumer.c" -o "$work/by_pkg_config" "${shared[@]}"
expect_mpi env LD_LIBRARY_PATH="$libdir" "$work/by_pkg_config"
cmake -S "$work" -B "$work/build_mpi" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" \
    -DMPI_C_COMPILER="$MPICC" >"$work/log" &&
    cmake --build "$work/build_mpi" >>"$work/log" || { cat "$work/log"; fail "find_package(frugrad COMPONENTS mpi) failed"; }
expect_mpi "$work/build_mpi/with_shared"
expect_mpi "$work/build_mpi/with_static"
