# The program frugrad: cli/main.c over the library frugrad_cli (everything else in cli/, so that
# tests and fuzz targets can reach it), which sees the public header only.

file(GLOB cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/*.c)
set(cli_main ${PROJECT_SOURCE_DIR}/cli/main.c)
set(cli_main_mpi ${PROJECT_SOURCE_DIR}/cli/main_mpi.c)
list(REMOVE_ITEM cli_sources ${cli_main} ${cli_main_mpi})

add_library(frugrad_cli STATIC ${cli_sources})
target_include_directories(frugrad_cli PUBLIC ${PROJECT_SOURCE_DIR}/cli)
target_link_libraries(frugrad_cli PUBLIC frugrad_train frugrad_report m)
# Sparse recovery has no public interface of its own: its benchmark alone looks into src/.
set_source_files_properties(${PROJECT_SOURCE_DIR}/cli/bench_recover.c PROPERTIES
                            INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/src)
if(FRUGRAD_USE_OPENMP)
    target_link_libraries(frugrad_cli PRIVATE OpenMP::OpenMP_C)
endif()

# bench compares with std::nth_element where there is a C++ compiler. The one C++ file is compiled by hand: it needs no
# C++ library at run time, so nothing else has to be linked the C++ way.
if(NOT CMAKE_CROSSCOMPILING)
    include(CheckLanguage)
    check_language(CXX)
endif()
if(CMAKE_CXX_COMPILER)
    set(nth_source ${PROJECT_SOURCE_DIR}/cli/bench_nth.cpp)
    set(nth_object ${PROJECT_BINARY_DIR}/bench_nth${CMAKE_C_OUTPUT_EXTENSION})
    add_custom_command(OUTPUT ${nth_object}
                       COMMAND ${CMAKE_CXX_COMPILER} -std=c++17 -O3 -Wall -Wextra -fPIC -fno-exceptions -fno-rtti
                               -c ${nth_source} -o ${nth_object}
                       DEPENDS ${nth_source} ${PROJECT_SOURCE_DIR}/cli/bench_nth.h VERBATIM)
    target_sources(frugrad_cli PRIVATE ${nth_object})
    set_source_files_properties(${nth_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_compile_definitions(frugrad_cli PRIVATE FRUGI_HAVE_NTH)
endif()

add_executable(frugrad_program ${cli_main})
target_link_libraries(frugrad_program PRIVATE frugrad_cli)
set_target_properties(frugrad_program PROPERTIES OUTPUT_NAME frugrad RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})

# The same program for the processes of an MPI job, where there is an MPI.
if(TARGET frugrad_mpi_static)
    add_executable(frugrad_mpi_program ${cli_main_mpi})
    target_link_libraries(frugrad_mpi_program PRIVATE frugrad_cli frugrad_mpi_static)
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
