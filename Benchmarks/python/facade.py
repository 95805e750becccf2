"""Compares shale.adapters.diskcache with diskcache: gets and sets of both in turns, in one process.

    SHALE_LIBRARY=build/libshale.so PYTHONPATH=Bindings/Python/src python Benchmarks/python/facade.py

needs diskcache. Both caches have their default settings. A ratio is the median over the rounds of diskcache's time
divided by Shale's.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def kinds(seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    found: dict[str, Any] = {"int": chance.getrandbits(40)}
    for size in (10, 100, 1024, 10_240):
        found[f"bytes, {size}"] = chance.randbytes(size)
        found[f"str, {size}"] = "".join(chance.choices("etaoin shrdlu", k=size))
    records = [
        {"id": number, "name": "".join(chance.choices("etaoin shrdlu", k=40)), "price": chance.random(), "sold": None}
        for number in range(100)
    ]
    # diskcache pickles these.
    found["dict, 100"] = records[0]
    found["dict, 10240"] = {"records": records}
    found["tuple, 100"] = tuple(records[0].items())
    return found


def seconds(call: Callable[..., Any], arguments: list[tuple[Any, ...]], clock: Callable[[], float]) -> float:
    began = clock()
    for each in arguments:
        call(*each)
    return (clock() - began) / len(arguments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="processor time instead of wall clock")
    parser.add_argument("--directory", help="where the caches are made; a temporary one")
    given = parser.parse_args()
    import diskcache
    from shale.adapters import diskcache as facade

    clock = time.process_time if given.cpu_time else time.perf_counter
    root = Path(tempfile.mkdtemp(prefix="shale-facade-", dir=given.directory))
    print(f"{'value':14}{'get: diskcache':>16}{'Shale':>8}{'ratio':>7}{'set: diskcache':>16}{'Shale':>8}{'ratio':>7}")
    try:
        for name, value in kinds(given.seed).items():
            keys = [f"key:{number}" for number in range(given.keys)]
            caches = [diskcache.Cache(str(root / "theirs" / name)), facade.Cache(root / "ours" / name)]
            times: dict[str, list[list[float]]] = {"get": [[], []], "set": [[], []]}
            for round_ in range(given.rounds + 1):
                for which in (0, 1) if round_ % 2 else (1, 0):
                    cache = caches[which]
                    calls: dict[str, list[tuple[Any, ...]]] = {
                        "set": [(key, value) for key in keys],
                        "get": [(key,) for key in keys],
                    }
                    for call, arguments in calls.items():
                        spent = seconds(getattr(cache, call), arguments, clock)
                        if round_:  # the first one fills the caches
                            times[call][which].append(spent)
                    if cache.get(keys[0]) != value:
                        raise SystemExit(f"{cache}: {name} did not come back")
            line = f"{name:14}"
            for call, width in (("get", 16), ("set", 16)):
                theirs, ours = times[call]
                ratio = statistics.median(one / other for one, other in zip(theirs, ours))
                both = [statistics.median(each) * 1e6 for each in (theirs, ours)]
                line += f"{both[0]:>{width}.1f}{both[1]:>8.1f}{ratio:>7.2f}"
            print(line, flush=True)
            for cache in caches:
                cache.close()
            shutil.rmtree(root)
            root.mkdir()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
