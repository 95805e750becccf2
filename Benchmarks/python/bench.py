"""Compares Shale for Python with its alternatives.

    make bench-python            builds what is needed, installs the peers, runs this
    python bench.py --help

Each round measures every store on every kind of value, in an order of its own,
each time on a new store. Rates are compared within a round.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import report
import workloads
from data import SETS, Data
from stores import STORES, Floor, Shale, Store
from workloads import Pair, WrongAnswer, measure


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="5,000 entries, 3 rounds")
    parser.add_argument("--only", default="", help="stores whose names contain one of these, by comma")
    parser.add_argument(
        "--data",
        default="",
        help="kinds of value, by comma; all: " + ", ".join(kind.name for kind in SETS),
    )
    parser.add_argument("--floor", help="the library made of floor.c")
    parser.add_argument("--directory", help="where the stores are made; a temporary one")
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="count processor time, where the machine is busy; without two processes",
    )
    given = parser.parse_args()
    if given.quick:
        given.entries, given.rounds = min(given.entries, 5_000), min(given.rounds, 3)
    return given


def chosen(given: argparse.Namespace, missing: dict[str, str]) -> list[type[Store]]:
    """The stores to measure; fills `missing`."""
    parts = [part.strip() for part in given.only.split(",") if part.strip()]
    stores = []
    for store in STORES:
        if parts and not any(part in store.name for part in parts):
            continue
        if issubclass(store, Floor) and not given.floor:
            missing[store.name] = "it needs --floor"
            continue
        try:
            store.describe()
        except (ImportError, LookupError) as error:
            if issubclass(store, Shale):
                raise  # nothing to measure
            missing[store.name] = str(error)
            continue
        stores.append(store)
    return stores


def main() -> int:
    given = arguments()
    Floor.library = os.path.abspath(given.floor) if given.floor else ""
    if given.cpu_time:
        workloads.clock = time.process_time
    missing: dict[str, str] = {}
    failures: dict[str, str] = {}
    stores = chosen(given, missing)
    names = [name.strip() for name in given.data.split(",") if name.strip()]
    kinds = [kind for kind in SETS if not names or kind.name in names]
    results = report.Results()
    results.facts = {
        "machine": machine(),
        "options": {
            "entries": f"{given.entries:,}",
            "rounds": str(given.rounds),
            "seed": str(given.seed),
            "time": "processor time" if given.cpu_time else "wall clock",
            "calls": "every get is checked; garbage collection is off while it is measured",
        },
        "peers": {store.name: store.describe() for store in stores},
        "missing": missing,
        "failures": failures,
        "data": [
            {
                "name": kind.name,
                "source": kind.description,
                "entries": given.entries,
                "value_bytes": kind.size,
            }
            for kind in kinds
        ],
    }
    root = Path(tempfile.mkdtemp(prefix="shale-bench-", dir=given.directory))
    began = time.monotonic()
    try:
        for kind in kinds:
            data = Data(kind, given.entries, given.seed)
            pair = None if given.cpu_time else Pair(kind.name, given.entries, given.seed)
            for round_ in range(given.rounds):
                order = [store for store in stores if store.objects or not kind.objects]
                random.Random(given.seed * 1000 + round_).shuffle(order)
                for store in order:
                    if store.name in failures:
                        continue
                    directory = root / "store"
                    directory.mkdir()
                    try:
                        rates = measure(store, data, directory, given.seed + round_ * 10, pair)
                        results.add(kind.name, store.name, rates)
                    except WrongAnswer:
                        raise
                    except Exception as error:
                        failures[store.name] = f"{kind.name}: {type(error).__name__}: {error}"
                    finally:
                        shutil.rmtree(directory)
                spent = time.monotonic() - began
                progress(f"{kind.name}, round {round_ + 1} of {given.rounds}, {spent:.0f} s")
            if pair is not None:
                pair.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    found = results.as_json()
    if given.json:
        report.write(found, given.json)
    print(report.tables(found), end="")
    return 1 if failures else 0


def machine() -> dict[str, str]:
    facts = {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processors": str(os.cpu_count()),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    facts["processor"] = line.partition(":")[2].strip()
                    break
    except OSError:
        pass
    return facts


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
