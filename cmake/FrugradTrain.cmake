# What the program is made of below its commands: frugrad_io (files in and out, how the program speaks) and
# frugrad_train (the trainer). Both see the public header of the library only.
find_package(PkgConfig REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(LZMA REQUIRED IMPORTED_TARGET liblzma)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)

file(GLOB io_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/io/*.c)
add_library(frugrad_io STATIC ${io_sources})
target_include_directories(frugrad_io PUBLIC ${PROJECT_SOURCE_DIR}/io)
target_link_libraries(frugrad_io PUBLIC frugrad_static PkgConfig::JANSSON PkgConfig::ZLIB PkgConfig::LZMA m)

file(GLOB train_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/train/*.c ${PROJECT_SOURCE_DIR}/train/*/*.c)
add_library(frugrad_train STATIC ${train_sources})
# Kernels that live on fused multiply-add and on 31 registers: gcc's first scheduling pass would spill them.
set_source_files_properties(${PROJECT_SOURCE_DIR}/train/nn/conv_direct.c PROPERTIES COMPILE_OPTIONS
                            "-ffp-contract=fast;$<$<C_COMPILER_ID:GNU>:-fno-schedule-insns>")
target_include_directories(frugrad_train PUBLIC ${PROJECT_SOURCE_DIR}/train)
target_link_libraries(frugrad_train PUBLIC frugrad_io PkgConfig::OPENBLAS PkgConfig::JPEG PkgConfig::PNG)
if(FRUGRAD_USE_OPENMP)
    target_link_libraries(frugrad_train PRIVATE OpenMP::OpenMP_C)
endif()
