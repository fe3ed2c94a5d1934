# The library frugrad_mpi: workers that are processes of an MPI job. It sees the public headers only, and
# is the only thing here that needs MPI.
if(NOT FRUGRAD_MPI MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "FRUGRAD_MPI is AUTO, ON or OFF, not '${FRUGRAD_MPI}'")
elseif(FRUGRAD_MPI STREQUAL "OFF")
    return()
elseif(FRUGRAD_MPI STREQUAL "ON")
    find_package(MPI REQUIRED COMPONENTS C)
else()
    find_package(MPI COMPONENTS C)
    if(NOT MPI_C_FOUND)
        return()
    endif()
endif()

set(FRUGRAD_MPI_SOURCE ${PROJECT_SOURCE_DIR}/lib/comm/mpi_transport.c)
add_library(frugrad_mpi SHARED ${FRUGRAD_MPI_SOURCE})
add_library(frugrad_mpi_static STATIC ${FRUGRAD_MPI_SOURCE})
target_link_libraries(frugrad_mpi PUBLIC frugrad MPI::MPI_C)
target_link_libraries(frugrad_mpi_static PUBLIC frugrad_static MPI::MPI_C)
set_target_properties(frugrad_mpi PROPERTIES VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${export_map})
target_link_options(frugrad_mpi PRIVATE LINKER:--version-script=${export_map})
set_target_properties(frugrad_mpi_static PROPERTIES OUTPUT_NAME frugrad_mpi)
