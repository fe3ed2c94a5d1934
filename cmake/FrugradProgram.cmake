# The program frugrad, bottom up: frugrad_io (files and terminal), frugrad_federated_static, frugrad_trainer,
# frugrad_report, and frugrad_commands (all of program/ and lab/compare/ but the two main files, so that tests and fuzz targets can link it).
find_package(PkgConfig REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(LZMA REQUIRED IMPORTED_TARGET liblzma)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET openssl>=3.0)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

file(GLOB io_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/io/*.c)
add_library(frugrad_io STATIC ${io_sources})
# Includes name the path from the root of the project; of the library they may name include/ and lib/base/.
target_include_directories(frugrad_io PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/lib)
target_link_libraries(frugrad_io PUBLIC frugrad_static PkgConfig::JANSSON PkgConfig::ZLIB PkgConfig::LZMA m)

file(GLOB federated_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/federated/*.c)
add_library(frugrad_federated_static STATIC ${federated_sources})
target_link_libraries(frugrad_federated_static PUBLIC frugrad_io PkgConfig::OPENSSL Threads::Threads m)

file(GLOB trainer_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/trainer/*/*.c)
# Kernels with fused multiply-add, whose sums fill the registers: gcc's first scheduling pass would spill them. At -O1,
# the level under sanitizers, sums would be arrays in memory, with a check of every access.
set(kernel_flags -ffp-contract=fast $<$<C_COMPILER_ID:GNU>:-fno-schedule-insns>)
if(FRUGRAD_SANITIZE)
    list(APPEND kernel_flags -O3)
endif()
frugrad_variants(trainer_sources ${kernel_flags})
include(FrugradOnednn)
if(NOT FRUGRAD_USE_ONEDNN)
    list(FILTER trainer_sources EXCLUDE REGEX "_onednn[.]c$")
endif()
add_library(frugrad_trainer STATIC ${trainer_sources})
target_link_libraries(frugrad_trainer PUBLIC frugrad_io PkgConfig::OPENBLAS PkgConfig::JPEG PkgConfig::PNG)
if(FRUGRAD_USE_ONEDNN)
    target_compile_definitions(frugrad_trainer PRIVATE FGT_HAVE_ONEDNN)
    target_include_directories(frugrad_trainer SYSTEM PRIVATE ${FRUGRAD_ONEDNN_INCLUDE})
    target_link_libraries(frugrad_trainer PRIVATE ${FRUGRAD_ONEDNN_LIBRARY})
endif()

file(GLOB report_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lab/report/*.c)
add_library(frugrad_report STATIC ${report_sources})
target_link_libraries(frugrad_report PUBLIC frugrad_io m)

file(GLOB command_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/program/*.c ${PROJECT_SOURCE_DIR}/program/*/*.c
     ${PROJECT_SOURCE_DIR}/lab/compare/*.c)
set(program_main ${PROJECT_SOURCE_DIR}/program/main.c)
set(program_main_mpi ${PROJECT_SOURCE_DIR}/program/main_mpi.c)
list(REMOVE_ITEM command_sources ${program_main} ${program_main_mpi})
add_library(frugrad_commands STATIC ${command_sources})
target_link_libraries(frugrad_commands PUBLIC frugrad_trainer frugrad_federated_static frugrad_report m)
if(FRUGRAD_USE_OPENMP)
    target_link_libraries(frugrad_trainer PRIVATE OpenMP::OpenMP_C)
    target_link_libraries(frugrad_commands PRIVATE OpenMP::OpenMP_C)
endif()

# bench compares with std::nth_element where there is a C++ compiler. The one C++ file is compiled by hand: it needs no
# C++ library at run time, so nothing else has to be linked as C++.
if(NOT CMAKE_CROSSCOMPILING)
    include(CheckLanguage)
    check_language(CXX)
endif()
if(CMAKE_CXX_COMPILER)
    set(nth_source ${PROJECT_SOURCE_DIR}/program/bench/bench_nth.cpp)
    set(nth_object ${PROJECT_BINARY_DIR}/bench_nth${CMAKE_C_OUTPUT_EXTENSION})
    add_custom_command(OUTPUT ${nth_object}
                       COMMAND ${CMAKE_CXX_COMPILER} -std=c++17 -O3 -Wall -Wextra -fPIC -fno-exceptions -fno-rtti
                               -I${PROJECT_SOURCE_DIR} -c ${nth_source} -o ${nth_object}
                       DEPENDS ${nth_source} ${PROJECT_SOURCE_DIR}/program/bench/bench_nth.h VERBATIM)
    target_sources(frugrad_commands PRIVATE ${nth_object})
    set_source_files_properties(${nth_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_compile_definitions(frugrad_commands PRIVATE FGP_HAVE_NTH)
endif()

add_executable(frugrad_program ${program_main})
target_link_libraries(frugrad_program PRIVATE frugrad_commands)
set_target_properties(frugrad_program PROPERTIES OUTPUT_NAME frugrad RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})

# The same program for the processes of an MPI job, where there is an MPI.
if(TARGET frugrad_mpi_static)
    add_executable(frugrad_mpi_program ${program_main_mpi})
    target_link_libraries(frugrad_mpi_program PRIVATE frugrad_commands frugrad_mpi_static)
    set_target_properties(frugrad_mpi_program PROPERTIES OUTPUT_NAME frugrad-mpi
                          RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
endif()

# The program prints its own man page, from the same tables as its help.
if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
    set(FRUGRAD_MAN_PAGE ${PROJECT_BINARY_DIR}/frugrad.1)
    add_custom_command(OUTPUT ${FRUGRAD_MAN_PAGE}
                       COMMAND frugrad_program man > ${FRUGRAD_MAN_PAGE}.part
                       COMMAND ${CMAKE_COMMAND} -E rename ${FRUGRAD_MAN_PAGE}.part ${FRUGRAD_MAN_PAGE}
                       DEPENDS frugrad_program VERBATIM)
    add_custom_target(frugrad_man ALL DEPENDS ${FRUGRAD_MAN_PAGE})
endif()
