#!/bin/sh
# The header in C11 and in C++17, by each compiler that is installed.
#   header.sh LIBRARY_DIRECTORY INCLUDE SOURCE SCRATCH
set -eu
warnings="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
try() {
    command -v "$1" >/dev/null || return 0
    "$@" $warnings "$source" -I"$include" -L"$libraries" -lshale -Wl,-rpath,"$libraries" -o "$scratch/header"
    "$scratch/header"
    echo "$*"
}
libraries=$1 include=$2 source=$3 scratch=$4
for compiler in cc gcc clang; do
    try $compiler -std=c11
    try $compiler -std=c17
done
for compiler in c++ g++ clang++; do
    # A clang++ without a C++ standard library beside it is not one.
    if echo '#include <cstddef>
int main() { return 0; }' | "$compiler" -std=c++17 -x c++ - -o "$scratch/probe" 2>/dev/null; then
        try $compiler -std=c++17 -x c++
        try $compiler -std=c++20 -x c++
    fi
done
