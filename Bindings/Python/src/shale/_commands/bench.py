"""``python -m shale bench``: measures Shale beside the other stores that are installed."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .._bench import chart, report
from .._bench.data import SIZES, Data
from .._bench.machine import machine
from .._bench.stores import STORES, Shale, Store
from .._bench.workloads import Clock, measure


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command's parser."""
    parser = commands.add_parser(
        "bench",
        help="measure Shale beside the other stores that are installed",
        description="Each round measures every store with every size of values, in an order of "
        "its own, each time in a new directory that is removed; tables have the medians. One "
        "process, one thread; every answer is checked. Takes about a minute.",
    )
    parser.add_argument("--quick", action="store_true", help="some seconds: less accurate")
    parser.add_argument("--entries", type=int, help="keys of each size; default 3,000")
    parser.add_argument("--rounds", type=int, help="default 3")
    parser.add_argument("--only", default="", help="parts of stores' names, by comma")
    parser.add_argument("--directory", help="where to make the stores; default: the temporary one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="write a chart (SVG) of 1 KiB")
    parser.add_argument("--seed", type=int, default=1, help="of keys, values and order")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="measure this process's processor time, for a busy machine; a server's is not counted",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """1 if a store failed."""
    entries = parsed.entries or (500 if parsed.quick else 3_000)
    rounds = parsed.rounds or (1 if parsed.quick else 3)
    stores, missing = _chosen([each for each in parsed.only.split(",") if each])
    failures: dict[str, str] = {}
    samples: report.Samples = {}
    root = Path(tempfile.mkdtemp(prefix="shale-bench-", dir=parsed.directory))
    results: dict[str, Any] = {
        "schema": report.SCHEMA,
        "machine": machine(str(root)),
        "options": {
            "entries": f"{entries:,}",
            "rounds": str(rounds),
            "seed": str(parsed.seed),
            "time": "processor time, without that of servers" if parsed.cpu_time else "wall clock",
        },
        "peers": {name: _about(store, version) for name, (store, version) in stores.items()},
        "missing": missing,
        "failures": failures,
        "data": [
            {"name": name, "source": "JSON records, as bytes", "value_bytes": size}
            for name, size in SIZES.items()
        ],
    }
    try:
        for name, size in SIZES.items():
            data = Data(size, entries, parsed.seed)
            for number in range(rounds):
                order = [store for store, _ in stores.values() if store.name not in failures]
                random.Random(parsed.seed + number).shuffle(order)
                for store in order:
                    directory = root / "store"
                    directory.mkdir()
                    clock = time.process_time if parsed.cpu_time else time.perf_counter
                    try:
                        _add(samples, name, store, data, directory, number, clock)
                    except (KeyboardInterrupt, SystemExit):
                        raise
                    except BaseException as error:  # a panic of Rust is no Exception
                        failures[store.name] = f"{name}: {type(error).__name__}: {error}"
                    finally:
                        shutil.rmtree(directory, ignore_errors=True)
                progress = f"values of {name}, round {number + 1} of {rounds}"
                print(progress, file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    results["machine"]["load_at_end"] = f"{os.getloadavg()[0]:.1f}"
    results["results"] = report.lines(samples)
    if parsed.json:
        parsed.json.write_text(json.dumps(results, separators=(",", ":")) + "\n")
    if parsed.chart:
        parsed.chart.write_text(chart.svg(results, "1 KiB"))
    print(report.text(results), end="")
    return 1 if failures else 0


def _chosen(parts: list[str]) -> tuple[dict[str, tuple[type[Store], str]], dict[str, str]]:
    """The stores to measure with their versions, by name; and why others are missing."""
    stores, missing = {}, {}
    for store in STORES:
        if parts and not any(part in store.name for part in parts):
            continue
        try:
            stores[store.name] = (store, store.version())
        except (ImportError, LookupError) as error:
            if store.module.startswith(Shale.module):
                raise
            pip = f"pip install {store.package}"
            missing[store.name] = pip if isinstance(error, ModuleNotFoundError) else str(error)
    return stores, missing


def _about(store: type[Store], version: str) -> dict[str, str]:
    return {
        "version": version,
        "about": store.about,
        "promises": store.promises,
        "values": store.values,
    }


def _add(
    samples: report.Samples, size: str, store: type[Store], data: Data, directory: Path,
    number: int, clock: Clock,
) -> None:  # fmt: skip
    for work, rate in measure(store, data, str(directory), number, clock).items():
        samples.setdefault((size, store.name, work), []).append(rate)
