#!/bin/sh
# Installs into a prefix of its own; the programs of Bindings/C find the library there by
# pkg-config and by find_package, also after the prefix has been moved, and print what they should. The version is the
# same in header, library, and the files of pkg-config and CMake.
#   install.sh CMAKE BUILD PROGRAMS VERSION SCRATCH
set -eu
here=$(dirname "$0")
cmake=$1 build=$2 programs=$3 version=$4 scratch=$5
prefix=$scratch/prefix moved=$scratch/moved
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

# prints_version COMMAND...
prints_version() {
    printed=$("$@")
    [ "$printed" = "$version" ] || { echo "$*: $printed, not $version"; exit 1; }
}

# compiles SOURCE FLAG...
compiles() {
    source=$1
    shift
    cc -Wall -Wextra -Wpedantic -Werror "$source" $(pkg-config --cflags --libs "$@" shale) -o "$scratch/$(basename "$source" .c)"
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
        compiles "$programs/$name.c"
        (export LD_LIBRARY_PATH="$libraries" && runs "$scratch/$name" $name)
    done
    rm "$libraries"/libshale.so*
    compiles "$here/version.c" --static
    prints_version "$scratch/version"
    for name in $names; do
        compiles "$programs/$name.c" --static
        runs "$scratch/$name" $name
    done
    rm -rf "$moved"
    "$cmake" --install "$build" --prefix "$moved" >/dev/null
fi

"$cmake" -S "$programs" -B "$scratch/by-cmake" -G Ninja -DCMAKE_PREFIX_PATH="$moved" >"$scratch/found"
prints_version sed -n 's/^-- shale //p' "$scratch/found"
"$cmake" --build "$scratch/by-cmake" >/dev/null
for name in $names; do
    runs "$scratch/by-cmake/$name" $name
    runs "$scratch/by-cmake/${name}_static" $name
done
