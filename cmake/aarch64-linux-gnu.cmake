set(cross_cpu aarch64)
set(cross_debian arm64)
include(${CMAKE_CURRENT_LIST_DIR}/cross.cmake)
