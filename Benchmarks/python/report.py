"""Results as JSON and as Markdown tables.

python report.py Benchmarks/results/python.json    prints the tables of a run
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

SCHEMA = 1
WORKS = (
    "fill",
    "get_uniform",
    "get_zipf",
    "miss",
    "overwrite",
    "delete",
    "get_zipf@2p",
    "overwrite@2p",
)

# Data set, work, the store that Shale is compared with, the ratio of rates to reach.
FIGURES = (
    ("1 KiB", "get_zipf", "diskcache Cache", 8.0),
    ("1 KiB", "get_zipf", "diskcache Cache, defaults", 8.0),
    ("1 KiB", "fill", "diskcache Cache", 25.0),
    ("1 KiB", "fill", "diskcache Cache, defaults", 25.0),
    ("1 KiB", "overwrite", "diskcache Cache", 25.0),
    ("1 KiB", "overwrite", "diskcache Cache, defaults", 25.0),
    ("1 KiB", "get_zipf", "floor", 1 / 1.6),
    ("1 KiB", "get_zipf", "floor, plain ctypes", 1 / 1.6),
)
SHALES = ("shale", "shale, uncompressed", "shale, in memory")


class Results:
    """Samples by data set, store and work; one for each round, in calls a second."""

    def __init__(self) -> None:
        self.samples: dict[tuple[str, str, str], list[float]] = {}
        self.facts: dict[str, Any] = {}

    def add(self, data: str, store: str, rates: dict[str, float]) -> None:
        for work, rate in rates.items():
            self.samples.setdefault((data, store, work), []).append(rate)

    def as_json(self) -> dict[str, Any]:
        results = [
            {
                "data": data,
                "peer": store,
                "work": work,
                "metric": "rate",
                "median": _rounded(statistics.median(samples)),
                "low": _rounded(min(samples)),
                "high": _rounded(max(samples)),
            }
            for (data, store, work), samples in sorted(self.samples.items())
        ]
        return {"schema": SCHEMA, **self.facts, "figures": self._figures(), "results": results}

    def _figures(self) -> list[dict[str, Any]]:
        """Ratios of rates in the same round."""
        figures = []
        for data, work, other, wanted in FIGURES:
            for shale in SHALES:
                ours = self.samples.get((data, shale, work))
                theirs = self.samples.get((data, other, work))
                if not ours or not theirs or len(ours) != len(theirs):
                    continue
                ratios = [one / two for one, two in zip(ours, theirs)]
                figures.append(
                    {
                        "data": data,
                        "work": work,
                        "peer": shale,
                        "against": other,
                        "median": _rounded(statistics.median(ratios)),
                        "low": _rounded(min(ratios)),
                        "high": _rounded(max(ratios)),
                        "to_reach": _rounded(wanted),
                        "reached": statistics.median(ratios) >= wanted,
                    }
                )
        return figures


def _rounded(number: float) -> float:
    return float(f"{number:.6g}")


def write(results: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, separators=(",", ":")) + "\n")


def tables(results: dict[str, Any]) -> str:
    """Markdown."""
    lines = [f"- {key}: {text}" for key, text in results["machine"].items()]
    lines += [f"- {key}: {text}" for key, text in results["options"].items()]
    for data in results["data"]:
        lines += _table(results, data)
    lines += _figure_table(results["figures"])
    lines += ["", "Stores", ""]
    lines += [f"- {name}: {about}" for name, about in results["peers"].items()]
    lines += [f"- {name}: not measured, {why}" for name, why in results["missing"].items()]
    lines += [f"- {name}: failed, {why}" for name, why in results["failures"].items()]
    return "\n".join(lines) + "\n"


def _table(results: dict[str, Any], data: dict[str, Any]) -> list[str]:
    of = {(line["peer"], line["work"]): line for line in results["results"] if line["data"] == data["name"]}
    stores = [name for name in results["peers"] if any(peer == name for peer, _ in of)]
    lines = [
        "",
        f"{data['name']}: {data['source']}, {data['entries']:,} entries; thousand calls a second "
        "(median, ± half the spread)",
        "",
        "| | " + " | ".join(WORKS) + " |",
        "|---|" + "---:|" * len(WORKS),
    ]
    for store in stores:
        cells = [_cell(of.get((store, work))) for work in WORKS]
        lines.append(f"| {store} | " + " | ".join(cells) + " |")
    return lines


def _cell(line: dict[str, Any] | None) -> str:
    if line is None:
        return ""
    rate = line["median"] / 1e3
    spread = (line["high"] - line["low"]) / line["median"] * 50
    text = f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"
    return f"{text} ±{spread:.0f} %"


def _figure_table(figures: list[dict[str, Any]]) -> list[str]:
    lines = [
        "",
        "| data | work | store | against | to reach | ratio | low-high | |",
        "|---|---|---|---|---:|---:|---:|---|",
    ]
    for figure in figures:
        lines.append(
            f"| {figure['data']} | {figure['work']} | {figure['peer']} | {figure['against']} "
            f"| {figure['to_reach']:.3g} | {figure['median']:.3g} "
            f"| {figure['low']:.3g}-{figure['high']:.3g} "
            f"| {'reached' if figure['reached'] else 'missed'} |"
        )
    return lines


if __name__ == "__main__":
    print(tables(json.loads(Path(sys.argv[1]).read_text())), end="")
