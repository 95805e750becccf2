#!/bin/sh
# A program links against the archive with plain compilers, and runs.
#   static.sh ARCHIVE INCLUDE SOURCE SCRATCH
set -eu
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
for compiler in cc gcc clang; do
    command -v $compiler >/dev/null || continue
    for flags in "" "-static-pie" "-static" "-Wl,--gc-sections"; do
        # Not every system has a static libc.
        if ! echo 'int main(void) { return 0; }' | $compiler -x c - $flags -o "$4/probe" 2>/dev/null; then
            continue
        fi
        $compiler $flags "$3" -I"$2" "$1" -llz4 -lpthread -o "$4/static-$compiler"
        "$4/static-$compiler" "$cache" | grep -q '^shale: a fine-grained rock'
        echo "$compiler $flags: $(wc -c <"$4/static-$compiler") bytes"
    done
done
