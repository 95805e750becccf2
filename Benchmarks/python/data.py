"""Keys, values and the order in which they are asked for, all made from a seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_NAMES = ("anna", "bela", "carlos", "dmitri", "eva", "farid", "grace", "hiro", "ines", "jonas")
_CITIES = ("Lisbon", "Nairobi", "Osaka", "Porto", "Quito", "Riga", "Seoul", "Tallinn", "Utrecht")
_MASK = 2**64 - 1


def mix(number: int) -> int:
    """64 bits that look random; the same for the same number (splitmix64)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31


def _item(bits: int) -> str:
    name = _NAMES[bits % len(_NAMES)]
    city = _CITIES[(bits >> 8) % len(_CITIES)]
    score = (bits >> 16) % 100_000
    return f'{{"id":{bits >> 40},"user":"{name}","city":"{city}","score":{score}}}'


def json_bytes(number: int, size: int) -> bytes:
    """`size` bytes of JSON records; the last one is cut off."""
    text, bits = "[", number
    while len(text) < size:
        bits = mix(bits)
        text += _item(bits) + ","
    return text[:size].encode()


def small_dict(number: int, _size: int) -> dict[str, Any]:
    bits = mix(number)
    return {
        "id": number,
        "user": _NAMES[bits % len(_NAMES)],
        "score": (bits >> 16) % 1000 / 8,
        "tags": [_CITIES[(bits >> 8) % len(_CITIES)], "news"],
        "premium": bool(bits >> 60 & 1),
        "parent": None,
    }


@dataclass(frozen=True)
class Set:
    """A kind of value."""

    name: str
    description: str
    size: int
    make: Callable[[int, int], Any]
    objects: bool = False


SETS = (
    Set("100 B", "JSON records cut to 100 bytes, as bytes", 100, json_bytes),
    Set("1 KiB", "JSON records cut to 1,024 bytes, as bytes", 1024, json_bytes),
    Set("dict", "a dict of six items, as an object", 0, small_dict, objects=True),
)


class Data:
    """`entries` keys and values of a set, and other values to overwrite them with."""

    def __init__(self, kind: Set, entries: int, seed: int) -> None:
        self.kind = kind
        self.entries = entries
        self.keys = [b"article:%016x" % mix(seed << 32 | number) for number in range(entries)]
        self.missing = [b"missing:%016x" % mix(seed << 32 | number) for number in range(entries)]
        base = mix(seed)
        self.values = [kind.make(mix(base + number), kind.size) for number in range(entries)]
        self.others = [kind.make(mix(base - number - 1), kind.size) for number in range(entries)]


def uniform(entries: int, count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(entries), k=count)


def zipf(entries: int, count: int, seed: int, exponent: float = 0.99) -> list[int]:
    """Numbers by popularity; the popular ones are spread over all."""
    source = random.Random(seed)
    numbers = list(range(entries))
    source.shuffle(numbers)
    weights = list(itertools.accumulate(1 / rank**exponent for rank in range(1, entries + 1)))
    return source.choices(numbers, cum_weights=weights, k=count)
