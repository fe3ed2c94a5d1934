# Build for x86-64 on another Debian machine and run the tests under qemu, AVX2 included.
# tools/cross-root.sh brings the compiler, qemu and, into build/cross-root, the amd64 libraries.
get_filename_component(cross_root ${CMAKE_CURRENT_LIST_DIR}/../build/cross-root ABSOLUTE)
set(cross_libs ${cross_root}/usr/lib/x86_64-linux-gnu)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-x86_64 -cpu max -L /usr/x86_64-linux-gnu -E LD_LIBRARY_PATH=${cross_libs}:${cross_libs}/openblas-pthread)
set(ENV{PKG_CONFIG_LIBDIR} ${cross_libs}/pkgconfig:${cross_libs}/openblas-pthread/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${cross_root})
set(CMAKE_PREFIX_PATH ${cross_root}/usr) # oneDNN
set(CMAKE_C_FLAGS_INIT "-isystem ${cross_root}/usr/include/x86_64-linux-gnu") # jconfig.h
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${cross_libs}")
