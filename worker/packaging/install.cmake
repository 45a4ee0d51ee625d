# What `cmake --install` installs: the headers, both libraries, the programs, and the files by which
# pkg-config and CMake find them.
install(FILES worker/muster.h worker/muster_collectives.h worker/muster_data.h worker/muster_messages.h
    worker/muster_operations.h worker/muster_values.h worker/muster_engine.h TYPE INCLUDE)
install(TARGETS muster_shared EXPORT musterShared)
install(TARGETS muster_static EXPORT musterStatic)
foreach(program muster musterd)
    if(TARGET ${program})
        install(TARGETS ${program})
    endif()
endforeach()
if(MUSTER_INSTALL_EXAMPLES)
    file(RELATIVE_PATH to_libraries /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(${MUSTER_EXAMPLES} PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries}")
    install(TARGETS ${MUSTER_EXAMPLES})
endif()

set(templates ${CMAKE_CURRENT_LIST_DIR})
set(generated ${PROJECT_BINARY_DIR}/packaging)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/muster)

# Relative to the prefix, unless given as absolute paths.
foreach(folder LIBDIR INCLUDEDIR)
    cmake_path(IS_ABSOLUTE CMAKE_INSTALL_${folder} absolute)
    if(absolute)
        set(MUSTER_PC_${folder} ${CMAKE_INSTALL_${folder}})
    else()
        set(MUSTER_PC_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
    endif()
endforeach()
if(OPENSSL_FOUND)
    set(MUSTER_PC_TLS " -lssl -lcrypto")
endif()
configure_file(${templates}/muster.pc.in ${generated}/muster.pc.configured @ONLY)
# The prefix may be given as late as `cmake --install --prefix`.
install(CODE "
    file(READ \"${generated}/muster.pc.configured\" text)
    string(REPLACE \"prefix=${CMAKE_INSTALL_PREFIX}\\n\" \"prefix=\${CMAKE_INSTALL_PREFIX}\\n\" text \"\${text}\")
    file(WRITE \"${generated}/muster.pc\" \"\${text}\")")
install(FILES ${generated}/muster.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(${templates}/musterConfig.cmake.in ${generated}/musterConfig.cmake
    INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${generated}/musterConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${generated}/musterConfig.cmake ${generated}/musterConfigVersion.cmake
    DESTINATION ${package_folder})
install(EXPORT musterShared NAMESPACE muster:: DESTINATION ${package_folder})
install(EXPORT musterStatic NAMESPACE muster:: DESTINATION ${package_folder})
