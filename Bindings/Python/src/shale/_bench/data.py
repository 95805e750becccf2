"""Keys, values and the order in which they are used, all made from a seed."""

from __future__ import annotations

import itertools
import random

SIZES = {"100 B": 100, "1 KiB": 1024, "10 KiB": 10_240}

_NAMES = ("anna", "bela", "carlos", "dmitri", "eva", "farid", "grace", "hiro", "ines", "jonas")
_CITIES = ("Lisbon", "Nairobi", "Osaka", "Porto", "Quito", "Riga", "Seoul", "Tallinn", "Utrecht")


def _json(source: random.Random, size: int) -> bytes:
    """JSON records, of which the last is cut off."""
    records, length = [], 1
    while length < size:
        name, city = source.choice(_NAMES), source.choice(_CITIES)
        number, score = source.getrandbits(24), source.randrange(100_000)
        record = f'{{"id":{number},"user":"{name}","city":"{city}","score":{score}}}'
        records.append(record)
        length += len(record) + 1
    return f"[{','.join(records)}"[:size].encode()


class Data:
    """Keys with two values each, as many keys without a value, and orders of use."""

    def __init__(self, size: int, entries: int, seed: int) -> None:
        source = random.Random(seed)
        self.size = size
        self.keys = [f"article:{source.getrandbits(64):016x}" for _ in range(entries)]
        self.missing = [f"missing:{source.getrandbits(64):016x}" for _ in range(entries)]
        self.values = [_json(source, size) for _ in range(entries)]
        self.others = [_json(source, size) for _ in range(entries)]

    def by_popularity(self, seed: int, exponent: float = 0.99) -> list[int]:
        """As many numbers of keys as there are keys, by Zipf's law."""
        source = random.Random(seed)
        numbers = list(range(len(self.keys)))
        source.shuffle(numbers)
        weights = itertools.accumulate(1 / (rank + 1) ** exponent for rank in numbers)
        return source.choices(range(len(numbers)), cum_weights=list(weights), k=len(numbers))

    def shuffled(self, seed: int) -> list[int]:
        numbers = list(range(len(self.keys)))
        random.Random(seed).shuffle(numbers)
        return numbers
