"""Finds ``libshale.so``, loads it, and declares its functions.

The file is the one that the environment variable ``SHALE_LIBRARY`` names, else
``libshale.so`` in the folder of the package ``shale``, which is where a wheel carries it.

Two calls are on the hot path and are declared without ``argtypes``: checking and converting five
arguments costs as much as the call. Callers of ``fast_get`` and ``fast_set`` pass ``bytes``, None
for NULL, an int for a ``uint32_t``, and for other parameters the results of ``byref`` and
``from_param``, which have the exact width. ctypes passes those unchanged, and converts anything
else.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import (
    POINTER,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any, Callable, Final

from . import abi

ENVIRONMENT_VARIABLE: Final = "SHALE_LIBRARY"

_HOW_TO_GET_ONE = (
    "Build it in a checkout of Shale with `cmake -S . -B build -G Ninja "
    "-DCMAKE_BUILD_TYPE=Release && cmake --build build`, then set "
    f"{ENVIRONMENT_VARIABLE} to the path of build/libshale.so; or install a wheel "
    "of shale-cache, which carries the library."
)


def library_path() -> Path:
    """The path of the library. Raises ImportError if there is none."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named:
        path = Path(named)
        if not path.is_file():
            raise ImportError(
                f"{ENVIRONMENT_VARIABLE} names {named!r}, which is not a file. {_HOW_TO_GET_ONE}"
            )
        return path.resolve()
    name = "libshale.dylib" if sys.platform == "darwin" else "libshale.so"
    path = Path(__file__).parents[1] / name
    if not path.is_file():
        raise ImportError(
            f"shale found no library: {ENVIRONMENT_VARIABLE} is not set and there is no "
            f"{path}. {_HOW_TO_GET_ONE}"
        )
    return path


def _load(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"shale could not load {path}: {error}. {_HOW_TO_GET_ONE}") from error
    return library


def _refuse_other_interpreters() -> None:
    """Only the main interpreter of a process can have the threads and the callbacks of a cache:
    CPython ends the process if another one ends before its threads, and ctypes runs callbacks in
    the main one."""
    if sys.implementation.name != "cpython":
        return
    current, main = (
        ctypes.pythonapi.PyInterpreterState_Get,
        ctypes.pythonapi.PyInterpreterState_Main,
    )
    current.restype = main.restype = c_void_p
    if current() != main():
        raise ImportError(
            "shale runs only in the main interpreter of a process. With mod_wsgi set "
            "`WSGIApplicationGroup %{GLOBAL}`, with uWSGI `single-interpreter = true`."
        )


_refuse_other_interpreters()
_path = library_path()
_library = _load(_path)


def _declare(name: str, result: Any, *parameters: Any) -> Callable[..., Any]:
    try:
        # By item: as an attribute, all users of the library would share one function object.
        function = _library[name]
    except AttributeError as error:
        raise ImportError(
            f"{_path} has no {name}: it is not libshale, or it is of another release. "
            f"{_HOW_TO_GET_ONE}"
        ) from error
    function.restype = result
    function.argtypes = parameters
    return function


def _declare_fast(name: str) -> Callable[..., int]:
    function = _library[name]
    function.restype = c_int32
    return function


_cache = c_void_p
_cursor = c_void_p
_key = (c_char_p, c_size_t)
_value = POINTER(abi.Value)
# Arrays of shale_bytes and of statuses, and structs that may be absent.
_array = c_void_p
_optional = c_void_p

version = _declare("shale_version", c_char_p)
status_text = _declare("shale_status_text", c_char_p, c_int32)
last_error = _declare("shale_last_error", c_char_p)
last_errno = _declare("shale_last_errno", c_int)

open_cache = _declare("shale_open", c_int32, c_char_p, POINTER(abi.Options), POINTER(c_void_p))
close_cache = _declare("shale_close", c_int32, _cache)
sync = _declare("shale_sync", c_int32, _cache)

lease = _declare(
    "shale_lease",
    c_int32,
    _cache,
    *_key,
    POINTER(abi.LeaseOptions),
    _value,
    POINTER(c_uint64),
)
release = _declare("shale_release", c_int32, _cache, *_key, c_uint64)
renew = _declare("shale_renew", c_int32, _cache, *_key, c_uint64, c_int64)
remove = _declare("shale_remove", c_int32, _cache, *_key, c_uint64)
remove_many = _declare("shale_remove_many", c_int32, _cache, c_size_t, _array, _array)
expire = _declare("shale_expire", c_int32, _cache, *_key)
touch = _declare("shale_touch", c_int32, _cache, *_key, c_int64)
touch_unchanged = _declare("shale_touch_unchanged", c_int32, _cache, *_key, c_int64, c_uint64)
increment = _declare("shale_increment", c_int32, _cache, *_key, c_int64, c_int64, POINTER(c_int64))
value_free = _declare("shale_value_free", None, _value)

get_many = _declare("shale_get_many", c_int32, _cache, c_size_t, _array, c_uint32, _array, _array)
set_many = _declare("shale_set_many", c_int32, _cache, c_size_t, _array, _array, _optional, _array)

invalidate_with = _declare("shale_invalidate_with", c_int32, _cache, *_key, c_uint32)
clear = _declare("shale_clear", c_int32, _cache)
evict = _declare("shale_evict", c_int32, _cache, c_uint64, POINTER(c_uint64))
purge = _declare("shale_purge", c_int32, _cache, POINTER(c_uint64))
verify = _declare("shale_verify", c_int32, _cache, POINTER(abi.Report))
get_stats = _declare("shale_get_stats", c_int32, _cache, POINTER(abi.Stats))

cursor_open = _declare("shale_cursor_open", c_int32, _cache, POINTER(c_void_p))
cursor_next = _declare("shale_cursor_next", c_int32, _cursor, c_uint32, _value, _value)
cursor_close = _declare("shale_cursor_close", None, _cursor)

fast_get = _declare_fast("shale_get")
fast_set = _declare_fast("shale_set")

# The type of the results of from_param, which the stubs do not export.
size_argument: Final[Callable[[int], Any]] = c_size_t.from_param
pointer_argument: Final[Callable[[Any], Any]] = c_void_p.from_param

_LARGEST_KEPT_SIZE: Final = 4096


class _Sizes(dict[int, Any]):
    """Sizes as arguments of the fast calls. Small ones are made once."""

    def __missing__(self, size: int) -> Any:
        argument = size_argument(size)
        if size <= _LARGEST_KEPT_SIZE:
            self[size] = argument
        return argument


SIZES: Final = _Sizes()


def library_version() -> str:
    """``MAJOR.MINOR.PATCH`` of the loaded library."""
    text: bytes = version()
    return text.decode()
