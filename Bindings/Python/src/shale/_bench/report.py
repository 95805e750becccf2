"""Results as JSON, and as tables of Markdown."""

from __future__ import annotations

import statistics
from typing import Any, Union

from .stores import PROMISES
from .workloads import WORKS

SCHEMA = 1

Samples = dict[tuple[str, str, str], list[float]]
"""Calls a second by size, store and work; one for each round."""


def lines(samples: Samples) -> list[dict[str, Any]]:
    return [
        {
            "data": size,
            "peer": store,
            "work": work,
            "metric": "rate",
            "median": _rounded(statistics.median(each)),
            "low": _rounded(min(each)),
            "high": _rounded(max(each)),
        }
        for (size, store, work), each in sorted(samples.items())
    ]


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def medians(results: dict[str, Any], size: str) -> dict[str, dict[str, float]]:
    """By store, in its order, and work."""
    found: dict[str, dict[str, float]] = {name: {} for name in results["peers"]}
    for line in results["results"]:
        if line["data"] == size:
            found[line["peer"]][line["work"]] = line["median"]
    return {name: rates for name, rates in found.items() if rates}


def thousands(rate: Union[float, None]) -> str:
    """Three digits at most, and all before the point."""
    if rate is None:
        return ""
    rate /= 1000
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def table(results: dict[str, Any], size: str) -> str:
    """Thousands of calls a second."""
    rows = [["", *WORKS, "promises", "values"]]
    for name, rates in medians(results, size).items():
        about = results["peers"][name]
        cells = [thousands(rates.get(work)) for work in WORKS]
        rows.append([name, *cells, " ".join(about["promises"]), about["values"]])
    widths = [max(map(len, column)) for column in zip(*rows)]
    written = [_row(row, widths) for row in rows]
    rule = "|".join(f"{'-' * (width + 1)}{':' if 0 < at <= len(WORKS) else '-'}"
                    for at, width in enumerate(widths))  # fmt: skip
    return "\n".join([written[0], f"|{rule}|", *written[1:]])


def _row(cells: list[str], widths: list[int]) -> str:
    padded = (
        cell.rjust(width) if 0 < at <= len(WORKS) else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(cells, widths))
    )
    return f"| {' | '.join(padded)} |"


def legend() -> str:
    return "\n".join(f"- {name}: {about}" for name, about in {**WORKS, **PROMISES}.items())


def where(results: dict[str, Any]) -> str:
    """The machine and the date, in a sentence."""
    machine, options = results["machine"], results["options"]
    return (
        f"{machine['processor']}, {machine['processors']} processors, {machine['kernel']}, "
        f"{machine['file_system']}, {machine['python']}, {machine['begun'][:10]}; "
        f"{options['entries']} entries, medians of {options['rounds']} rounds, {options['time']}"
    )


def text(results: dict[str, Any]) -> str:
    """All that is printed."""
    parts = [where(results)]
    for data in results["data"]:
        title = f"Values of {data['name']}, thousands of calls a second"
        parts.append(f"{title}\n\n{table(results, data['name'])}")
    parts.append(legend())
    peers = results["peers"].items()
    known = [
        f"- {name}: {about['about']}, {about['version']}".rstrip(", ") for name, about in peers
    ]
    known += [f"- {name}: not measured, {why}" for name, why in results["missing"].items()]
    known += [f"- {name}: failed, {why}" for name, why in results["failures"].items()]
    parts.append("\n".join(known))
    return "\n\n".join(parts) + "\n"
