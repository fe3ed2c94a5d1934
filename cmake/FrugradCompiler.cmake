# Language, warnings, floating point and sanitizers: what holds for every file.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON) # gnu17: the POSIX declarations are visible without feature macros
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(plain $<COMPILE_LANGUAGE:C,CXX>) # flags that nvcc does not know
add_compile_options("$<${plain}:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow;-Wvla>")
if(FRUGRAD_WERROR)
    add_compile_options($<${plain}:-Werror>)
endif()

# Variants of a kernel must agree bit for bit, so a*b+c is never fused behind our back.
add_compile_options($<${plain}:-ffp-contract=off> $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false>)

if(FRUGRAD_SANITIZE)
    add_compile_options(-fsanitize=${FRUGRAD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
    add_link_options(-fsanitize=${FRUGRAD_SANITIZE})
endif()
if(FRUGRAD_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "FRUGRAD_FUZZ needs clang; use the preset fuzz")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

set(FRUGRAD_USE_OPENMP OFF)
if(NOT FRUGRAD_OPENMP MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "FRUGRAD_OPENMP is AUTO, ON or OFF, not '${FRUGRAD_OPENMP}'")
elseif(FRUGRAD_OPENMP STREQUAL "ON")
    find_package(OpenMP REQUIRED COMPONENTS C)
    set(FRUGRAD_USE_OPENMP ON)
elseif(FRUGRAD_OPENMP STREQUAL "AUTO")
    find_package(OpenMP COMPONENTS C)
    set(FRUGRAD_USE_OPENMP ${OpenMP_C_FOUND})
endif()
if(NOT FRUGRAD_USE_OPENMP)
    add_compile_options($<${plain}:-Wno-unknown-pragmas>)
endif()
