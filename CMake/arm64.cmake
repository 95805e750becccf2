# Toolchain file: builds for Linux on arm64 with Debian's cross compiler, and runs tests in qemu's user mode.
#
#   Scripts/arm64-libraries build-arm64/libraries
#   cmake -S . -B build-arm64 -G Ninja --toolchain CMake/arm64.cmake -DSHALE_ARM64_LIBRARIES=$PWD/build-arm64/libraries
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(SHALE_PARTIAL_LINKER aarch64-linux-gnu-ld.bfd CACHE STRING "")
set(SHALE_OBJCOPY aarch64-linux-gnu-objcopy CACHE STRING "")

# Embedded Swift needs no libraries, and the toolchain has none for this system: Swift compiles for a bare-metal target.
# Only its C importer gets the real one.
set(CMAKE_Swift_COMPILER_TARGET aarch64-none-none-elf)
set(CMAKE_Swift_FLAGS_INIT
    "-Xfrontend -clang-target -Xfrontend aarch64-unknown-linux-gnu -Xcc -isystem -Xcc /usr/aarch64-linux-gnu/include")
set(CMAKE_Swift_COMPILER_WORKS TRUE) # CMake's check would link those libraries

# Without these, CMake would find the libraries of the build machine.
set(SHALE_ARM64_LIBRARIES "" CACHE PATH "The folder that Scripts/arm64-libraries has filled")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SHALE_ARM64_LIBRARIES)
set(CMAKE_FIND_ROOT_PATH ${SHALE_ARM64_LIBRARIES} /usr/aarch64-linux-gnu)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
