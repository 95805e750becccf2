"""Results as a chart: a bar for each store, on a logarithmic scale."""

from __future__ import annotations

import math
from typing import Any
from xml.sax.saxutils import escape

from .report import medians, thousands, where

PANELS = {"get": "get", "set": "set, new key", "call": "call of a memoized function"}
SHALE, PERSISTENT, MEMORY = "#c2410c", "#3b6ea5", "#9ca3af"
NAMES, PANEL, ROW, TOP = 165, 230, 20, 62


def svg(results: dict[str, Any], size: str) -> str:
    rates = medians(results, size)
    names = sorted(rates, key=lambda name: -rates[name].get("get", 0))
    height = TOP + ROW * len(names) + 28
    width = NAMES + PANEL * len(PANELS)
    written = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(8, 18, f"Thousands of calls a second, values of {size}; logarithmic", "start", 13),
    ]
    legend = {"Shale": SHALE, "other store on disk or server": PERSISTENT, "in memory": MEMORY}
    x = NAMES + PANEL
    for name, color in legend.items():
        written.append(f'<rect x="{x}" y="9" width="10" height="10" fill="{color}"/>')
        written.append(_text(x + 15, 18, name))
        x += 40 + 6 * len(name)
    for row, name in enumerate(names):
        written.append(_text(NAMES - 8, TOP + ROW * row + 13, name, "end"))
    for number, (work, title) in enumerate(PANELS.items()):
        left = NAMES + PANEL * number
        written.append(_text(left, TOP - 12, title, "start", 12))
        known = [rates[name][work] for name in names if work in rates[name]]
        if not known:
            continue
        least, most = min(known) / 2, max(known)
        for row, name in enumerate(names):
            rate = rates[name].get(work)
            if rate is None:
                continue
            long = 165 * math.log(rate / least) / math.log(most / least)
            y = TOP + ROW * row
            color = _color(name, results["peers"][name]["promises"])
            bar = f'<rect x="{left}" y="{y}" width="{long:.1f}" height="16" fill="{color}"/>'
            written += [bar, _text(left + long + 4, y + 13, thousands(rate))]
    written.append(_text(8, height - 8, where(results), "start", 9))
    return "\n".join([*written, "</svg>"]) + "\n"


def _color(name: str, promises: str) -> str:
    if name.startswith("shale"):
        return SHALE
    return PERSISTENT if set("PS") & set(promises) else MEMORY


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 11) -> str:
    place = f'x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place}>{escape(text)}</text>"
