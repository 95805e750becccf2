#!/bin/sh
# No system call per operation: what strace sees between the marks of no_system_calls.c.
#   no_system_calls.sh PROGRAM SCRATCH
set -eu
program=$1 log=$2/strace

if ! strace -o "$log" true 2>/dev/null; then
    echo "strace is not installed, or may not trace here"
    exit 77
fi
strace -f -o "$log" "$program"

awk -v limit=1000 '
    /write\(1, "end/   { inside = 0; ended = 1 }
    inside             { name = $2; sub(/\(.*/, "", name); seen[name]++; count++ }
    /write\(1, "begin/ { inside = 1 }
    END {
        if (!ended) { print "the marks are missing"; exit 1 }
        printf "%d system calls in 1,000,000 operations\n", count
        for (name in seen) printf "  %8d %s\n", seen[name], name
        exit count > limit
    }' "$log"
rm -f "$log"
