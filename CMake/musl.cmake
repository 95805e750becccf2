# Toolchain file: builds for musl, on x86-64, by Debian's musl-tools. What is built runs on this machine, whose package
# musl has the C library itself.
#
#   cmake -S . -B build-musl -G Ninja --toolchain CMake/musl.cmake
set(CMAKE_C_COMPILER musl-gcc)
set(SHALE_LIBC libc.so) # as NEEDED names it

# To Swift there is no system, as it has no library for this one and Embedded Swift needs none. Its importer of C knows
# better: it reads musl's headers alone.
set(CMAKE_Swift_COMPILER_TARGET x86_64-unknown-none-elf)
set(CMAKE_Swift_FLAGS_INIT "-Xfrontend -clang-target -Xfrontend x86_64-unknown-linux-musl \
-Xcc -nostdlibinc -Xcc -isystem -Xcc /usr/include/x86_64-linux-musl")
set(CMAKE_Swift_COMPILER_WORKS TRUE) # what it links to try would need a library

# These two headers without those of glibc beside them. liblz4.a is Debian's: it calls only what every libc has, which
# -z defs checks.
set(SHALE_MUSL_HEADERS ${CMAKE_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${SHALE_MUSL_HEADERS})
foreach(header lz4.h xxhash.h)
    file(CREATE_LINK /usr/include/${header} ${SHALE_MUSL_HEADERS}/${header} SYMBOLIC)
endforeach()
set(CMAKE_INCLUDE_PATH ${SHALE_MUSL_HEADERS})
set(CMAKE_LIBRARY_PATH /usr/lib/x86_64-linux-gnu)
