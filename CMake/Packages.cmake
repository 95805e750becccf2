# Debian packages, by `cpack -G DEB` (make packages): libshale0, libshale-dev, shale-tools, python3-shale.

if(NOT SHALE_LZ4 STREQUAL "static")
    message(FATAL_ERROR "The packages contain LZ4: use -DSHALE_LZ4=static")
endif()

# The tool, with its completions. Tools/build rebuilds it only if necessary.
set(SHALE_TOOL_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/tool CACHE PATH "The folder in which the tool is built")
set(tool ${SHALE_TOOL_FOLDER})
add_custom_target(tool ALL
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/Tools/build ${tool}
    COMMAND ${tool}/shale --generate-completion-script bash > ${tool}/shale.bash
    COMMAND ${tool}/shale --generate-completion-script zsh > ${tool}/_shale
    COMMAND ${tool}/shale --generate-completion-script fish > ${tool}/shale.fish
    VERBATIM)
install(PROGRAMS ${tool}/shale DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
install(FILES ${tool}/shale.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME shale
    COMPONENT tools)
install(FILES ${tool}/_shale DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT tools)
install(FILES ${tool}/shale.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tools)
install(FILES Documentation/man/shale.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)

# The Python package as in its wheel, but with the library of libshale0.
set(python ${CMAKE_CURRENT_BINARY_DIR}/python)
add_custom_target(python_package ALL
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/CMake/python-package
        ${python} $<TARGET_FILE:shale> ${CMAKE_INSTALL_FULL_LIBDIR}/$<TARGET_SONAME_FILE_NAME:shale>
    DEPENDS shale
    VERBATIM)
install(DIRECTORY ${python}/dist-packages DESTINATION lib/python3 COMPONENT python)

foreach(component runtime development tools python)
    set(packages_runtime libshale0)
    set(packages_development libshale-dev)
    set(packages_tools shale-tools)
    set(packages_python python3-shale)
    install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${packages_${component}} RENAME copyright
        COMPONENT ${component})
    # The licence of LZ4, which every package except Python's contains.
    if(NOT component STREQUAL "python")
        install(FILES Bindings/Python/NOTICE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${packages_${component}}
            COMPONENT ${component})
    endif()
    string(TOUPPER ${component} upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${packages_${component}})
endforeach()

set(CPACK_PACKAGE_VENDOR "The Shale authors")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The Shale authors <root@localhost>") # packages are built locally
set(CPACK_PACKAGE_CONTACT ${CPACK_DEBIAN_PACKAGE_MAINTAINER})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime development tools python)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES OFF) # the build has stripped them as far as useful
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

set(same_version "libshale0 (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "embedded persistent cache: library
 A cache is one directory. Any number of threads and processes can use it at
 the same time, and it survives kill -9.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/triggers)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/triggers "activate-noawait ldconfig\n")

set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "embedded persistent cache: development files
 Headers for C and C++, the static library, and files for pkg-config and CMake.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${same_version}, libc6-dev")

set(CPACK_COMPONENT_TOOLS_DESCRIPTION "embedded persistent cache: command-line tool
 Inspects and changes a cache from the shell.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)

set(CPACK_COMPONENT_PYTHON_DESCRIPTION "embedded persistent cache: Python binding
 Mapping, typed values, loading with leases, memoization, coroutines.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "${same_version}, python3 (>= 3.11)")

include(CPack)
