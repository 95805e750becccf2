#!/bin/sh
# The C code of README.md and of the guide compiles without a warning, runs without a message on stderr, and prints
# what it should. The blocks of a page that has no main are the body of one.
#   readme.sh ROOT ARCHIVE INCLUDE SCRATCH
set -eu
root=$1 archive=$2 include=$3 scratch=$4
caches=$(mktemp -d)
trap 'rm -rf "$caches"' EXIT

# page NAME EXPECTED
page() {
    sed -n '/^```c$/,/^```$/p' "$root/$1" | sed -e '/^```/d' -e "s|/tmp/shale-|$caches/|" >"$scratch/blocks.c"
    if grep -q '^int main' "$scratch/blocks.c"; then
        mv "$scratch/blocks.c" "$scratch/readme.c"
    else
        {
            printf '#include <%s>\n' err.h shale.h stdio.h stdlib.h string.h
            echo 'int main(void) {'
            grep -q '^shale_cache \*cache;' "$scratch/blocks.c" ||
                echo "shale_cache *cache; if (shale_open(\"$caches/page\", NULL, &cache) < 0) return 1;"
            cat "$scratch/blocks.c"
            echo '}'
        } >"$scratch/readme.c"
    fi
    cc -Wall -Wextra -Wpedantic -Werror "$scratch/readme.c" -I"$include" "$archive" -llz4 -lpthread -o "$scratch/readme"
    printed=$("$scratch/readme" 2>&1)
    [ "$printed" = "$2" ] || { echo "$1 prints: $printed" && exit 1; }
    rm -rf "$caches/page" "$caches/example"
}

guide=Documentation/guide
page README.md value
page $guide/start.md value
page $guide/c/reading-and-writing.md 'calm seas
found
missing'
page $guide/c/loading.md ''
page $guide/c/large-values.md '4194304 bytes of video/mp4'
page $guide/c/tags-pins-and-cursors.md 'logo: 5 bytes'
page $guide/c/durability-and-capacity.md '0 entries, 0 misses'
