#!/bin/sh
# Installs into a prefix of its own; programs find the library there by
# pkg-config and by find_package, also after the prefix has been moved.
#   install.sh CMAKE BUILD SOURCE SCRATCH
set -eu
cmake=$1 build=$2 source=$3 prefix=$4/prefix moved=$4/moved
rm -rf "$prefix" "$moved" "$4/consumer"
"$cmake" --install "$build" --prefix "$prefix" >/dev/null
mv "$prefix" "$moved"
(cd "$moved" && find . ! -type d | sort)

libraries=$(dirname "$(find "$moved" -name 'libshale.so')")
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH="$libraries/pkgconfig"
    pkg-config --modversion shale
    cc "$source/consumer.c" $(pkg-config --cflags --libs shale) -o "$4/by-pkg-config"
    LD_LIBRARY_PATH=$libraries "$4/by-pkg-config"
    rm "$libraries"/libshale.so*
    cc "$source/consumer.c" $(pkg-config --cflags --libs --static shale) -o "$4/by-pkg-config-static"
    "$4/by-pkg-config-static"
    rm -rf "$moved"
    "$cmake" --install "$build" --prefix "$moved" >/dev/null
fi

"$cmake" -S "$source" -B "$4/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$moved" >/dev/null
"$cmake" --build "$4/consumer" >/dev/null
"$4/consumer/consumer"
"$4/consumer/consumer_static"
