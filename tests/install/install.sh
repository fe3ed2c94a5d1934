#!/usr/bin/env bash
# An installed FruGrad can be used by a program that finds it by pkg-config, shared and static, and by one that
# finds it by CMake; and the installed tree is complete. Where frugrad_mpi was built ($MPICC), so does that.
set -euo pipefail
export FRUGRAD_PROGRESS=off # how long things take must not change what is printed

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

private_exports() { nm -D --defined-only "$1" | awk '{print $3}' | grep -v '^frug_'; }
echo 'int frugi_private; int frug_public;' | "$CC" -xc -shared -fPIC - -o "$work/leaky.so"
[ "$(private_exports "$work/leaky.so")" = frugi_private ] || fail "the check of exported names finds none"
shopt -s nullglob
for library in "$libdir"/libfrugrad*.so "$FRUGRAD_BUILD"/tests/cuda/emulator/libfrugrad*.so; do
    if private_exports "$library"; then
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
find_package(frugrad 1.0 REQUIRED)
add_executable(with_shared consumer.c)
target_link_libraries(with_shared frugrad::frugrad)
add_executable(with_static consumer.c)
target_link_libraries(with_static frugrad::frugrad_static)
CMAKE

expect() {
    local output
    output=$("$@") || fail "$* failed"
    [[ $output == *",feedback=dgc,"*"value=int8"* ]] || fail "$* prints: $output"
}

export PKG_CONFIG_PATH=$libdir/pkgconfig
read -ra shared <<<"$(pkg-config --cflags --libs frugrad)"
read -ra static <<<"$(pkg-config --cflags --libs --static frugrad)"
"$CC" "$work/consumer.c" -o "$work/by_pkg_config" "${shared[@]}"
expect env -i "$work/by_pkg_config" # without a library path: the program knows where the library lies
"$CC" "$work/consumer.c" -o "$work/by_pkg_config_static" "${static[@]/#-lfrugrad/-l:libfrugrad.a}"
expect "$work/by_pkg_config_static"

cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" >"$work/log" &&
    cmake --build "$work/build" >>"$work/log" || { cat "$work/log"; fail "find_package(frugrad) failed"; }
expect "$work/build/with_shared"
expect "$work/build/with_static"

output=$(cd "$work" && env -u FRUGRAD_LIBRARY LD_LIBRARY_PATH="$libdir" PYTHONPATH="$FRUGRAD_SOURCE/python" \
    python3 -B -c 'import frugrad; print(frugrad.Config("dgc").text)') || fail "Python does not find the library"
[[ $output == *",feedback=dgc,"* ]] || fail "Python prints: $output"

# The examples, as their first lines document; with MPI where there is one.
build_example() {
    local compiler=$1 package=$2 name=$3 flags
    read -ra flags <<<"$(pkg-config --cflags --libs "$package")"
    "$compiler" "$FRUGRAD_SOURCE/examples/$name.c" -o "$work/$name" "${flags[@]}" -pthread -lm ||
        fail "examples/$name.c does not build"
}
for name in 01_compress 02_threads 04_buckets 05_optimizer 06_inspect_frame; do
    build_example "$CC" frugrad $name
    env -i "$work/$name" >"$work/log" 2>&1 || { cat "$work/log"; fail "examples/$name.c fails"; }
done
if [ -e "$libdir/libfrugrad_mpi.so" ] && command -v mpirun >/dev/null; then
    build_example "$MPICC" frugrad_mpi 03_mpi
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 "$work/03_mpi" >"$work/log" 2>&1 ||
        { cat "$work/log"; fail "examples/03_mpi.c fails"; }
    grep -q '^2 ranks' "$work/log" || { cat "$work/log"; fail "examples/03_mpi.c prints something else"; }
fi

# README's commands, literally, after an installation at the default prefix, in a mount namespace where nothing else is
# in /usr/local and no cache knows of it.
example=$(sed -n 's/.*`\(cc examples\/01_compress.c [^`]*\)`.*/\1/p' "$FRUGRAD_SOURCE/README.md")
[ -n "$example" ] || fail "README has no line that compiles examples/01_compress.c"
DESTDIR=$work/default cmake --install "$FRUGRAD_BUILD" --prefix /usr/local >"$work/log" || { cat "$work/log"; exit 1; }
ln -s "$FRUGRAD_SOURCE/examples" "$work/examples"
if unshare -rm mount --bind "$work/default/usr/local" /usr/local 2>/dev/null; then
    EXAMPLE=$example WORK=$work unshare -rm bash -c '
        mount --bind "$WORK/default/usr/local" /usr/local && cd "$WORK" &&
            exec env -i PATH=/usr/local/bin:/usr/bin:/bin sh -c "frugrad --version && $EXAMPLE"' >"$work/log" 2>&1 ||
        { cat "$work/log"; fail "README: $example"; }
else # no namespaces here: at least from another prefix, by the words README has for that
    (cd "$work" && env -i PATH=/usr/bin:/bin PKG_CONFIG_PATH="$libdir/pkgconfig" sh -c "$example") >"$work/log" 2>&1 ||
        { cat "$work/log"; fail "README: $example"; }
fi

if [ ! -e "$libdir/libfrugrad_mpi.so" ]; then exit 0; fi
[ -x "$prefix/bin/frugrad-mpi" ] || fail "bin/frugrad-mpi is missing"
if command -v mpirun >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun --oversubscribe -n 2 "$prefix/bin/frugrad" train --model mlp --samples 200 --steps 2 --quiet >"$work/log" 2>&1 &&
        grep -q 'steps of 2 x' "$work/log" || { cat "$work/log"; fail "mpirun -n 2 frugrad does not train with two workers"; }
    mv "$prefix/bin/frugrad-mpi" "$work/"
    if mpirun --oversubscribe -n 2 "$prefix/bin/frugrad" train --model mlp --steps 2 >"$work/log" 2>&1; then
        fail "two processes train without frugrad-mpi, each alone"
    fi
    [ "$(grep -c '^frugrad: started as 2 processes of an MPI job, but built without MPI' "$work/log")" = 1 ] &&
        grep -q 'apt-get install libopenmpi-dev openmpi-bin' "$work/log" || { cat "$work/log"; fail "no word on what to install"; }
    mv "$work/frugrad-mpi" "$prefix/bin/"
fi
cat >"$work/consumer.c" <<'C'
#include <frugrad/mpi.h>
#include <stdio.h>

int main(void) {
    frug_comm *comm;
    printf("%s: %s\n", frug_status_text(frug_comm_mpi(MPI_COMM_WORLD, &comm)), frug_last_error());
    return 0;
}
C
sed -i -e 's/REQUIRED/REQUIRED COMPONENTS mpi/' -e 's/frugrad::frugrad/&_mpi/' "$work/CMakeLists.txt"

expect_mpi() {
    local output
    output=$("$@") || fail "$* failed"
    [[ $output == "invalid argument: "*"MPI is not initialized"* ]] || fail "$* prints: $output"
}

read -ra shared <<<"$(pkg-config --cflags --libs frugrad_mpi)"
"$MPICC" "$work/consumer.c" -o "$work/by_pkg_config" "${shared[@]}"
expect_mpi env -i "$work/by_pkg_config"
cmake -S "$work" -B "$work/build_mpi" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" \
    -DMPI_C_COMPILER="$MPICC" >"$work/log" &&
    cmake --build "$work/build_mpi" >>"$work/log" || { cat "$work/log"; fail "find_package(frugrad COMPONENTS mpi) failed"; }
expect_mpi "$work/build_mpi/with_shared"
expect_mpi "$work/build_mpi/with_static"
