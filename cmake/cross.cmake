# Build for another architecture on a Debian machine and run the tests under qemu: included by the toolchain files of
# cross-x86 and cross-aarch64, which set cross_cpu and cross_debian, the names of CMake and of Debian. tools/cross-root.sh
# brings the target's libraries into build/cross-root-NAME.
get_filename_component(cross_root ${CMAKE_CURRENT_LIST_DIR}/../build/cross-root-${cross_debian} ABSOLUTE)
set(cross_triplet ${cross_cpu}-linux-gnu)
set(cross_libs ${cross_root}/usr/lib/${cross_triplet})

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${cross_cpu})
set(CMAKE_C_COMPILER ${cross_triplet}-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE ${cross_triplet})
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${cross_cpu} -cpu max -L /usr/${cross_triplet} -E LD_LIBRARY_PATH=${cross_libs}:${cross_libs}/openblas-pthread)
set(ENV{PKG_CONFIG_LIBDIR} ${cross_libs}/pkgconfig:${cross_libs}/openblas-pthread/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${cross_root})
set(CMAKE_PREFIX_PATH ${cross_root}/usr) # oneDNN
set(CMAKE_C_FLAGS_INIT "-isystem ${cross_root}/usr/include/${cross_triplet}") # jconfig.h
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${cross_libs}")
