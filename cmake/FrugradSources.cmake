# Which files of lib/ and trainer/ are built for this processor, and the flags of the SIMD variants.

set(avx2_flags -mavx2 -mfma -mf16c -mbmi -mbmi2 -mlzcnt -mpopcnt)
set(avx512_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl)

# frugrad_variant(list ending processors flags...): files with this ending need these processors.
function(frugrad_variant list_name ending processors)
    set(kept ${${list_name}})
    set(own ${kept})
    list(FILTER own INCLUDE REGEX "${ending}\\.c$")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(${processors})$")
        if(own AND ARGN)
            set_source_files_properties(${own} PROPERTIES COMPILE_OPTIONS "${ARGN}")
        endif()
    elseif(own)
        list(REMOVE_ITEM kept ${own})
    endif()
    set(${list_name} ${kept} PARENT_SCOPE)
endfunction()

# frugrad_variants(list flags...): for all endings; the flags are added to those of every variant.
function(frugrad_variants list_name)
    set(arm "aarch64|arm64")
    set(x86 "x86_64|AMD64|amd64")
    frugrad_variant(${list_name} _neon "${arm}" ${ARGN})
    frugrad_variant(${list_name} _arm "${arm}" -march=armv8-a+crc ${ARGN})
    frugrad_variant(${list_name} _avx2 "${x86}" ${avx2_flags} ${ARGN})
    frugrad_variant(${list_name} _avx512 "${x86}" ${avx512_flags} ${ARGN})
    frugrad_variant(${list_name} _x86 "${x86}" -msse4.2 -mpclmul ${ARGN})
    set(${list_name} ${${list_name}} PARENT_SCOPE)
endfunction()

function(frugrad_library_sources out)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lib/*/*.c)
    list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/lib/comm/mpi_transport.c) # libraries of their own: FrugradMpi.cmake,
    list(FILTER sources EXCLUDE REGEX "/lib/cuda/")                     # FrugradCuda.cmake
    frugrad_variants(sources)
    # Square roots become vector instructions only where nobody asks them for errno.
    set(optim ${sources})
    list(FILTER optim INCLUDE REGEX "/lib/optim/")
    list(FILTER optim EXCLUDE REGEX "_(neon|avx2|avx512)\\.c$")
    set_source_files_properties(${optim} PROPERTIES COMPILE_OPTIONS -fno-math-errno)
    set(${out} ${sources} PARENT_SCOPE)
endfunction()
