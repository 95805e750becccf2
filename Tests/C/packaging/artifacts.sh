#!/bin/sh
# Checks the built libraries.
#   artifacts.sh exports|globals LIBRARY HEADER SCRATCH
#   artifacts.sh needed LIBRARY static|dynamic LIBC SCRATCH
set -eu
library=$2

case $1 in
exports | globals) # the functions of the interface, all of them, and nothing else
    if [ "$1" = exports ]; then
        nm -D -g --defined-only "$library"
    else # of the archive
        nm -g --defined-only "$library"
    fi | awk 'NF == 3 { print $3 }' | sort >"$4/defined"
    # The header also mentions calls in comments, all of which exist as well.
    grep -oE '\bshale_[a-z_]+\(' "$3" | tr -d '(' | sort -u >"$4/declared"
    diff "$4/declared" "$4/defined" || {
        echo "the header and the library differ (< header, > library)"
        exit 1
    }
    echo "$(wc -l <"$4/defined") symbols"
    ;;
needed) # it needs libc, and LZ4 where that is linked dynamically
    readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort >"$5/needed"
    if [ "$3" = dynamic ]; then
        printf '%s\nliblz4.so.1\n' "$4" >"$5/expected"
    else
        printf '%s\n' "$4" >"$5/expected"
    fi
    diff "$5/expected" "$5/needed"
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
esac
