"""The calls that `Cache` makes through the extension `speed`: ``get`` and ``set`` without options,
and batches.

A cache with `speed.Calls` makes these calls in C.
"""

from __future__ import annotations

import ctypes
import inspect
from typing import TYPE_CHECKING, Any, Callable, Final

from .._data import packed, packed_types, values
from .._data.keys import encode_key
from .._native import library
from .._native.errors import InvalidError, failure
from .._native.extension import speed

if TYPE_CHECKING:
    from .._data.values import Codec
    from .._native.handles import Pool


def _failure(status: int) -> Exception:
    return failure(status) if status else InvalidError("the cache is closed")


def _address(function: Callable[..., Any]) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


if speed is not None:
    speed.setup(
        _address(library.fast_get),
        _address(library.fast_set),
        _address(library.get_many),
        _address(library.value_free),
        _failure,
        values.Unreadable,
        encode_key,
        packed_types.pack,
        packed_types.unpack,
        values.decode_big_int,
        packed.unpack,
        values.decode_json,
    )

if speed is None or TYPE_CHECKING:

    class Fast:
        """The base class of `Store`, without the extension."""

        _calls: Any = None
        _sets_plainly = False

        def _put(self, key: Any, value: Any) -> None:
            self._store(key, value)  # type: ignore[attr-defined]

        def _get_fresh(self, key: Any, flags: int, otherwise: Any, least_expiry_ms: float) -> Any:
            raise NotImplementedError

        def _get_many(self, keys: list[Any], flags: int) -> dict[Any, Any]:
            raise NotImplementedError

else:
    Fast = speed.Fast

_METHODS: Final = ("get", "set")


def put_in_front(kind: Any) -> None:
    """Puts the methods in C in front of those of the class, which they call for other cases."""
    if speed is None:
        return
    for name in _METHODS:
        method = vars(kind)[name]
        setattr(kind, f"_{name}_slowly", method)
        parameters = list(inspect.signature(method).parameters.values())[1:]
        bare = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
        _, _, said = str(inspect.Signature(bare)).partition("(")
        speed.document(name, f"{name}($self, {said}\n--\n\n{method.__doc__}")
        setattr(kind, name, vars(Fast)[name])


def calls_of(pool: Pool, codec: Codec) -> Any:
    """The calls in C of an open cache, or None."""
    if speed is None:
        return None
    return pool.calls_for(speed.Calls, codec.encode, codec.decode, not codec.serializes_all)
