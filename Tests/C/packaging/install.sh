#!/bin/sh
# Installs into a prefix of its own; the programs of Bindings/C find the library there by
# pkg-config and by find_package, also after the prefix has been moved, and print what they should.
#   install.sh CMAKE BUILD PROGRAMS SCRATCH
set -eu
cmake=$1 build=$2 programs=$3 scratch=$4 prefix=$4/prefix moved=$4/moved
names="first_cache cursor lease"
rm -rf "$prefix" "$moved" "$scratch/by-cmake"
caches=$(mktemp -d)
trap 'rm -rf "$caches"' EXIT

expected() {
    case $1 in
    first_cache) printf 'shale: a fine-grained rock that splits into layers\nslate: miss\n' ;;
    cursor) printf 'number 1: 1\nnumber 2: 4\nnumber 3: 9\n' ;;
    lease) printf 'loaded\nread: its text\n' ;;
    esac
}

# runs PROGRAM NAME: its lines, in any order: neither entries nor processes come in a promised one.
runs() {
    "$1" "$caches/$2" >"$scratch/printed"
    rm -rf "${caches:?}/$2"
    expected "$2" >"$scratch/expected"
    LC_ALL=C sort "$scratch/printed" | diff "$scratch/expected" -
    echo "$1"
}

# compiles NAME FLAG...
compiles() {
    program=$1
    shift
    cc -Wall -Wextra -Wpedantic -Werror "$programs/$program.c" $(pkg-config --cflags --libs "$@" shale) -o "$scratch/$program"
}

"$cmake" --install "$build" --prefix "$prefix" >/dev/null
mv "$prefix" "$moved"
(cd "$moved" && find . ! -type d | sort)

libraries=$(dirname "$(find "$moved" -name 'libshale.so')")
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH="$libraries/pkgconfig"
    pkg-config --modversion shale
    for name in $names; do
        compiles $name
        (export LD_LIBRARY_PATH="$libraries" && runs "$scratch/$name" $name)
    done
    rm "$libraries"/libshale.so*
    for name in $names; do
        compiles $name --static
        runs "$scratch/$name" $name
    done
    rm -rf "$moved"
    "$cmake" --install "$build" --prefix "$moved" >/dev/null
fi

"$cmake" -S "$programs" -B "$scratch/by-cmake" -G Ninja -DCMAKE_PREFIX_PATH="$moved" >/dev/null
"$cmake" --build "$scratch/by-cmake" >/dev/null
for name in $names; do
    runs "$scratch/by-cmake/$name" $name
    runs "$scratch/by-cmake/${name}_static" $name
done
