# oneDNN 2 for convolutions and matrix products of the trainer: by default on x86-64, where it is faster than our kernels
# for many shapes. On aarch64 Debian's build is several times slower.
set(FRUGRAD_USE_ONEDNN OFF)
if(NOT FRUGRAD_ONEDNN MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "FRUGRAD_ONEDNN is AUTO, ON or OFF, not '${FRUGRAD_ONEDNN}'")
elseif(FRUGRAD_ONEDNN STREQUAL "OFF")
    return()
elseif(FRUGRAD_ONEDNN STREQUAL "AUTO" AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    return()
endif()
find_path(FRUGRAD_ONEDNN_INCLUDE oneapi/dnnl/dnnl.h)
find_library(FRUGRAD_ONEDNN_LIBRARY dnnl)
mark_as_advanced(FRUGRAD_ONEDNN_INCLUDE FRUGRAD_ONEDNN_LIBRARY)
if(FRUGRAD_USE_OPENMP AND FRUGRAD_ONEDNN_INCLUDE AND FRUGRAD_ONEDNN_LIBRARY) # OpenMP limits its threads
    file(STRINGS ${FRUGRAD_ONEDNN_INCLUDE}/oneapi/dnnl/dnnl_version.h onednn_version REGEX "DNNL_VERSION_MAJOR +2$")
    file(STRINGS ${FRUGRAD_ONEDNN_INCLUDE}/oneapi/dnnl/dnnl_config.h onednn_openmp
         REGEX "DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_OMP$")
    if(onednn_version AND onednn_openmp)
        set(FRUGRAD_USE_ONEDNN ON)
    endif()
endif()
if(NOT FRUGRAD_USE_ONEDNN AND FRUGRAD_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "FRUGRAD_ONEDNN=ON, but there is no OpenMP, or no oneDNN 2 that uses it (Debian's libdnnl-dev)")
endif()
