#!/bin/sh
# shale.hpp by each C++ compiler that is installed: C++17, C++20, without exceptions and RTTI, and under
# AddressSanitizer; and the program in C++ of start.md.
#   cpp.sh LIBRARY_DIRECTORY INCLUDE SOURCE PAGE SCRATCH
set -eu
libraries=$1 include=$2 source=$3 page=$4 scratch=$5
caches=$(mktemp -d)
trap 'rm -rf "$caches"' EXIT
warnings="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"

# try COMPILER FLAG...
try() {
    "$@" $warnings "$source" -I"$include" -L"$libraries" -lshale -Wl,-rpath,"$libraries" -o "$scratch/program"
    "$scratch/program" "$caches/cache"
    rm -rf "$caches/cache"
    echo "$*"
}

tried=
for compiler in g++ clang++; do
    # A clang++ without a C++ standard library beside it is not one.
    if echo '#include <span>
int main() { return 0; }' | "$compiler" -std=c++20 -x c++ - -o "$scratch/probe" 2>/dev/null; then
        try "$compiler" -std=c++17
        try "$compiler" -std=c++20
        try "$compiler" -std=c++17 -fno-exceptions -fno-rtti
        tried=$compiler
    fi
done
[ "$tried" ] || { echo "no C++ compiler here" && exit 77; }
try "$tried" -std=c++17 -g -fsanitize=address,undefined

sed -n '/^```cpp$/,/^```$/p' "$page" | sed -e '/^```/d' -e "s|/tmp/shale-example|$caches/example|" >"$scratch/page.cpp"
"$tried" -std=c++17 $warnings "$scratch/page.cpp" -I"$include" -L"$libraries" -lshale -Wl,-rpath,"$libraries" \
    -o "$scratch/page"
[ "$("$scratch/page")" = value ]
