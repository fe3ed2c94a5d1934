set(cross_cpu x86_64)
set(cross_debian amd64)
include(${CMAKE_CURRENT_LIST_DIR}/cross.cmake)
