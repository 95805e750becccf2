# Toolchain file: builds for musl on x86-64 with Debian's musl-tools. The result runs on the build machine, whose
# package musl contains the C library.
#
#   cmake -S . -B build-musl -G Ninja --toolchain CMake/musl.cmake
set(CMAKE_C_COMPILER musl-gcc)
set(SHALE_LIBC libc.so) # the name in DT_NEEDED

# Embedded Swift needs no libraries, and the toolchain has none for musl: Swift compiles for a bare-metal target. Its C
# importer gets the real one, and only musl's headers.
set(CMAKE_Swift_COMPILER_TARGET x86_64-unknown-none-elf)
set(CMAKE_Swift_FLAGS_INIT "-Xfrontend -clang-target -Xfrontend x86_64-unknown-linux-musl \
-Xcc -nostdlibinc -Xcc -isystem -Xcc /usr/include/x86_64-linux-musl")
set(CMAKE_Swift_COMPILER_WORKS TRUE) # CMake's check would link a library

# Makes these headers available without glibc's, which are in the same folder. liblz4.a is Debian's: it calls only
# functions that every libc has, which -z defs checks.
set(SHALE_MUSL_HEADERS ${CMAKE_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${SHALE_MUSL_HEADERS})
foreach(header lz4.h lz4hc.h xxhash.h)
    file(CREATE_LINK /usr/include/${header} ${SHALE_MUSL_HEADERS}/${header} SYMBOLIC)
endforeach()
set(CMAKE_INCLUDE_PATH ${SHALE_MUSL_HEADERS})
set(CMAKE_LIBRARY_PATH /usr/lib/x86_64-linux-gnu)
