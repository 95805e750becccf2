"""What `Cache` has of the extension `_speed`: ``get`` and ``set`` without options, and batches.

A cache that has `_speed.Calls` makes these calls in C.
"""

from __future__ import annotations

import ctypes
import inspect
from typing import TYPE_CHECKING, Any, Callable, Final

from . import _library, _packed, _packed_types, _values
from ._errors import InvalidError, failure
from ._extension import speed
from ._keys import encode_key

if TYPE_CHECKING:
    from ._handle import Pool
    from ._values import Codec


def _failure(status: int) -> Exception:
    return failure(status) if status else InvalidError("the cache is closed")


def _address(function: Callable[..., Any]) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


if speed is not None:
    speed.setup(
        _address(_library.fast_get),
        _address(_library.fast_set),
        _address(_library.get_many),
        _address(_library.value_free),
        _failure,
        _values.Unreadable,
        encode_key,
        _packed_types.pack,
        _packed_types.unpack,
        _values.decode_big_int,
        _packed.unpack,
        _values.decode_json,
    )

if speed is None or TYPE_CHECKING:

    class Fast:
        """What a cache inherits."""

        _calls: Any = None
        _sets_plainly = False

        def _put(self, key: Any, value: Any) -> None:
            self._store(key, value)  # type: ignore[attr-defined]

        def _get_fresh(self, key: Any, flags: int, otherwise: Any) -> Any:
            raise NotImplementedError

        def _get_many(self, keys: list[Any], flags: int) -> dict[Any, Any]:
            raise NotImplementedError

else:
    Fast = speed.Fast

_METHODS: Final = ("get", "set")


def put_in_front(kind: Any) -> None:
    """Puts the methods in C in front of those of `Cache`, which they call for what they leave."""
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
