# What `make install` lays down: library, header, pkg-config and CMake package files, program, man page.
if(SKBUILD)
    # A Python wheel carries the libraries alone, and no symbolic links: files without a version in their names.
    add_custom_target(frugrad_python)
    foreach(lib frugrad frugrad_cuda frugrad_federated)
        if(TARGET ${lib})
            set_property(TARGET ${lib} PROPERTY VERSION)
            set_property(TARGET ${lib} PROPERTY SOVERSION)
            set_property(TARGET ${lib} PROPERTY INSTALL_RPATH "$ORIGIN")
            install(TARGETS ${lib} LIBRARY DESTINATION frugrad/lib COMPONENT python)
            add_dependencies(frugrad_python ${lib})
        endif()
    endforeach()
    return()
endif()

include(CMakePackageConfigHelpers)

install(TARGETS frugrad frugrad_static EXPORT frugradTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/frugrad.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/frugrad DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "mpi.h" EXCLUDE PATTERN "cuda.h" EXCLUDE PATTERN "federated.h" EXCLUDE)

# The .pc file finds its prefix from its own place, so DESTDIR and a moved tree keep working.
set(pc_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_prefix ${pc_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_prefix ${pc_prefix})
file(RELATIVE_PATH pc_libdir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH pc_includedir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
# Whoever links by pkg-config finds the library when running as well, wherever it lies; /usr/lib is looked at anyway.
set(pc_rpath " -Wl,-rpath,\${libdir}")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    set(pc_rpath "")
endif()
set(pc_private -lm)
if(FRUGRAD_USE_OPENMP)
    string(APPEND pc_private " ${OpenMP_C_FLAGS}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/frugrad.pc.in ${PROJECT_BINARY_DIR}/frugrad.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/frugrad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Libraries on top of libfrugrad find it beside themselves.
foreach(lib frugrad_mpi frugrad_cuda frugrad_federated)
    if(TARGET ${lib})
        set_target_properties(${lib} PROPERTIES INSTALL_RPATH "$ORIGIN")
    endif()
endforeach()

if(TARGET frugrad_mpi)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/frugrad_mpi.pc.in ${PROJECT_BINARY_DIR}/frugrad_mpi.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/frugrad_mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
    install(FILES ${PROJECT_SOURCE_DIR}/include/frugrad/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/frugrad)
    install(TARGETS frugrad_mpi frugrad_mpi_static EXPORT frugradMpiTargets
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

foreach(kind cuda federated)
    if(TARGET frugrad_${kind})
        install(FILES ${PROJECT_SOURCE_DIR}/include/frugrad/${kind}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/frugrad)
        install(TARGETS frugrad_${kind} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    endif()
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/frugrad)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/frugradConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/frugradConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/frugradConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT frugradTargets NAMESPACE frugrad:: DESTINATION ${package_dir})
if(TARGET frugrad_mpi)
    install(EXPORT frugradMpiTargets NAMESPACE frugrad:: DESTINATION ${package_dir})
endif()
install(FILES ${PROJECT_BINARY_DIR}/frugradConfig.cmake ${PROJECT_BINARY_DIR}/frugradConfigVersion.cmake
        DESTINATION ${package_dir})

if(TARGET frugrad_program)
    install(TARGETS frugrad_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET frugrad_mpi_program)
    install(TARGETS frugrad_mpi_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET frugrad_man)
    install(FILES ${FRUGRAD_MAN_PAGE} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
