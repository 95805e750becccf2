"""Types that every layer uses: keys, and the type variables of ``Cache[K, V]``, which only type
checkers read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol, Union

Key = Union[str, bytes, int, date, "UUID", tuple[Any, ...]]
"""A key: str, bytes, int, date, UUID, or a tuple of these."""

if TYPE_CHECKING:
    from uuid import UUID

    from typing_extensions import TypeAlias, TypeVar

    KT = TypeVar("KT", bound=Key, default=Key)
    """The type of a cache's keys."""
    VT = TypeVar("VT", default=Any)
    """The type of a cache's values."""
    K_co = TypeVar("K_co", covariant=True)
    V_co = TypeVar("V_co", covariant=True)

    class SupportsItems(Protocol[K_co, V_co]):
        """A mapping that is only read. (A ``Mapping[str, int]`` is not a ``Mapping[Key, int]``,
        whose ``get`` takes any key.)"""

        def items(self) -> Iterable[tuple[K_co, V_co]]: ...

    Items: TypeAlias = Union[SupportsItems[KT, VT], Iterable[tuple[KT, VT]]]
    """The argument of calls that store many values: a mapping, or pairs."""
else:
    from typing import TypeVar

    # (Before 3.13 only type checkers know ``default``.)
    KT = TypeVar("KT")
    VT = TypeVar("VT")

T = TypeVar("T")


def pairs(items: Any) -> Iterable[tuple[Any, Any]]:
    """The keys and values of a mapping, of an object with ``keys`` like one, or of pairs."""
    if isinstance(items, Mapping):
        return items.items()
    if hasattr(items, "keys"):
        return [(key, items[key]) for key in items.keys()]  # noqa: SIM118
    return items  # type: ignore[no-any-return]
