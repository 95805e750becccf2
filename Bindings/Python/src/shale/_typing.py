"""The type variables of ``Cache[K, V]``. They are for type checkers alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Union

from ._keys import Key

if TYPE_CHECKING:
    from typing_extensions import TypeAlias, TypeVar

    KT = TypeVar("KT", bound=Key, default=Key)
    """Of a cache's keys."""
    VT = TypeVar("VT", default=Any)
    """Of a cache's values."""
    K_co = TypeVar("K_co", covariant=True)
    V_co = TypeVar("V_co", covariant=True)

    class SupportsItems(Protocol[K_co, V_co]):
        """A mapping that is only read. (To be of ``Mapping[str, int]`` is not to be of
        ``Mapping[Key, int]``, as a key may be looked up.)"""

        def items(self) -> Iterable[tuple[K_co, V_co]]: ...

    Items: TypeAlias = Union[SupportsItems[KT, VT], Iterable[tuple[KT, VT]]]
    """What can be stored together: a mapping, or pairs."""
else:
    from typing import TypeVar

    # (The default is what type checkers know, and Python from 3.13 on.)
    KT = TypeVar("KT")
    VT = TypeVar("VT")

T = TypeVar("T")


def pairs(items: Any) -> Iterable[tuple[Any, Any]]:
    """The keys and values of a mapping, of what has ``keys`` as one has, or of pairs."""
    if isinstance(items, Mapping):
        return items.items()
    if hasattr(items, "keys"):
        return [(key, items[key]) for key in items.keys()]  # noqa: SIM118
    return items  # type: ignore[no-any-return]
