#!/bin/sh
# Installs into a prefix of its own; the programs of Examples/C and Examples/C++ find the library there by
# pkg-config and by find_package, also after the prefix has been moved, and print the expected lines. The version is the
# same in header, library, and the files of pkg-config and CMake.
#   install.sh CMAKE BUILD PROGRAMS VERSION SCRATCH
set -eu
here=$(dirname "$0")
cmake=$1 build=$2 programs=$3 version=$4 scratch=$5
prefix=$scratch/prefix moved=$scratch/moved
names="C/first_cache C/cursor C/lease C++/first_cache"
rm -rf "$prefix" "$moved" "$scratch/by-cmake"
caches=$(mktemp -d)
trap 'rm -rf "$caches"' EXIT

expected() {
    case $1 in
    */first_cache) printf 'shale: a fine-grained rock that splits into layers\nslate: miss\n' ;;
    */cursor) printf 'number 1: 1\nnumber 2: 4\nnumber 3: 9\n' ;;
    */lease) printf 'loaded\nread: its text\n' ;;
    esac
}

# runs PROGRAM NAME: its lines, in any order: neither entries nor processes come in a promised one.
runs() {
    "$1" "$caches/cache" >"$scratch/printed"
    rm -rf "$caches/cache"
    expected "$2" >"$scratch/expected"
    LC_ALL=C sort "$scratch/printed" | diff "$scratch/expected" -
    echo "$1"
}

# prints_version COMMAND...
prints_version() {
    printed=$("$@")
    [ "$printed" = "$version" ] || { echo "$*: $printed, not $version"; exit 1; }
}

# compiles SOURCE FLAG...: the program is named as the source is, without its end
compiles() {
    source=$1
    shift
    case $source in
    *.c) compiler=cc ;;
    *) compiler="c++ -std=c++17" ;;
    esac
    $compiler -Wall -Wextra -Wpedantic -Werror "$source" $(pkg-config --cflags --libs "$@" shale) -o "$scratch/$(basename "${source%.*}")"
}

"$cmake" --install "$build" --prefix "$prefix" >/dev/null
mv "$prefix" "$moved"
(cd "$moved" && find . ! -type d | sort)

libraries=$(dirname "$(find "$moved" -name 'libshale.so')")
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH="$libraries/pkgconfig"
    prints_version pkg-config --modversion shale
    compiles "$here/version.c"
    prints_version env LD_LIBRARY_PATH="$libraries" "$scratch/version"
    for name in $names; do
        compiles "$programs/$name".c*
        (export LD_LIBRARY_PATH="$libraries" && runs "$scratch/$(basename $name)" $name)
    done
    rm "$libraries"/libshale.so*
    compiles "$here/version.c" --static
    prints_version "$scratch/version"
    for name in $names; do
        compiles "$programs/$name".c* --static
        runs "$scratch/$(basename $name)" $name
    done
    rm -rf "$moved"
    "$cmake" --install "$build" --prefix "$moved" >/dev/null
fi

for language in C C++; do
    build=$scratch/by-cmake/$language
    "$cmake" -S "$programs/$language" -B "$build" -G Ninja -DCMAKE_PREFIX_PATH="$moved" >"$scratch/found"
    prints_version sed -n 's/^-- shale //p' "$scratch/found"
    "$cmake" --build "$build" >/dev/null
done
for name in $names; do
    runs "$scratch/by-cmake/$name" $name
    runs "$scratch/by-cmake/${name}_static" $name
done
