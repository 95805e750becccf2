#!/bin/sh
# The README's program in C compiles without a warning, and prints what it stored.
#   readme.sh README ARCHIVE INCLUDE SCRATCH
set -eu
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
sed -n '/^```c$/,/^```$/p' "$1" | sed -e '/^```/d' -e "s|/tmp/shale-example|$cache/example|" >"$4/readme.c"
cc -Wall -Wextra -Wpedantic -Werror "$4/readme.c" -I"$3" "$2" -llz4 -lpthread -o "$4/readme"
[ "$("$4/readme")" = value ]
