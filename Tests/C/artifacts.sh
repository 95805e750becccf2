#!/bin/sh
# What the built libraries are made of.
#   artifacts.sh symbols|needed|size|archive LIBRARY [lz4|-]
set -eu
library=$2

case $1 in
symbols) # the shared library exports the functions of the interface, all of them, and nothing else
    header=$3
    nm -D -g --defined-only "$library" | awk '{ print $3 }' | sort >"$4/exported"
    grep -oE '\bshale_[a-z_]+\(' "$header" | tr -d '(' | sort -u >"$4/mentioned"
    # The header also mentions calls in comments, all of which exist as well.
    diff "$4/mentioned" "$4/exported" || {
        echo "the header and the exports differ (< header, > exports)"
        exit 1
    }
    echo "$(wc -l <"$4/exported") symbols"
    ;;
needed) # it needs libc, and LZ4 where that is linked dynamically
    readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort >"$4/needed"
    if [ "$3" = dynamic ]; then
        printf 'libc.so.6\nliblz4.so.1\n' >"$4/expected"
    else
        printf 'libc.so.6\n' >"$4/expected"
    fi
    diff "$4/expected" "$4/needed"
    readelf -dW "$library" | grep -q 'SONAME.*\[libshale.so.0\]'
    if readelf -lW "$library" | grep GNU_STACK | grep -q RWE; then
        echo "it asks for an executable stack"
        exit 1
    fi
    if readelf -dW "$library" | grep -q TEXTREL; then
        echo "it is not position-independent"
        exit 1
    fi
    ;;
size)
    bytes=$(wc -c <"$library")
    echo "$bytes bytes"
    [ "$bytes" -le "$3" ]
    ;;
archive) # the archive's global names are the interface's alone
    nm --defined-only -g "$library" 2>/dev/null | awk 'NF == 3 && $3 !~ /^shale_/ { print; bad = 1 } END { exit bad }'
    ;;
esac
