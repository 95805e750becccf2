"""The final table."""

from __future__ import annotations

from .prepare import Prepared
from .story import LANGUAGES, Figures, Result

LABEL_WIDTH = 30
COLUMN_WIDTH = 14


def print_table(prepared: Prepared, figures: Figures) -> None:
    stats = figures.stats
    entries = stats["entries"]
    print()
    rule()
    one("package records", f"{prepared.inputs.records:,}")
    one("documents", f"{prepared.inputs.documents:,}")
    one("raw bytes", size(stats["raw_bytes"]))
    one("stored bytes", size(stats["stored_bytes"]), f"ratio {stats['raw_bytes'] / stats['stored_bytes']:.2f}")
    one("disk use", size(figures.disk_bytes), f"of {size(stats['capacity'])} capacity")
    one("index", size(stats["index_bytes"]), f"{stats['index_bytes'] / entries:.1f} bytes an entry")
    one(
        "evicted, damaged, rebuilt",
        f"{stats['evictions']:,}",
        f"{stats['corrupt_records']:,} records, {stats['rebuilds']:,} shards after {figures.kills} times kill -9",
    )
    rule()
    row("one program at a time", *LANGUAGES)
    rule()
    row("gets a second", *(rate(figures.gets[name]) for name in LANGUAGES))
    row("  p50", *(micro(figures.gets[name]["p50_ns"]) for name in LANGUAGES))
    row("  p99", *(micro(figures.gets[name]["p99_ns"]) for name in LANGUAGES))
    row("sets a second", *(rate(figures.sets[name]) for name in LANGUAGES))
    row("  p50", *(micro(figures.sets[name]["p50_ns"]) for name in LANGUAGES))
    row("  p99", *(micro(figures.sets[name]["p99_ns"]) for name in LANGUAGES))
    row("gets a second, 64 a call", many_rate(figures.get_many))
    row("sets a second, 64 a call", many_rate(figures.set_many))
    row("time to reopen", *(milli(figures.reopen_ns[name]) for name in LANGUAGES))
    rule()


def rule() -> None:
    print("─" * (LABEL_WIDTH + COLUMN_WIDTH * len(LANGUAGES)))


def one(label: str, figure: str, remark: str = "") -> None:
    print(f"{label:<{LABEL_WIDTH}}{figure:>{COLUMN_WIDTH}}   {remark}".rstrip())


def row(label: str, *cells: str) -> None:
    print(f"{label:<{LABEL_WIDTH}}" + "".join(f"{cell:>{COLUMN_WIDTH}}" for cell in cells))


def rate(result: Result) -> str:
    """Calls per second of the time spent in calls, without the comparisons between them."""
    return f"{result['calls'] * 1e9 / result['total_ns']:,.0f}"


def many_rate(result: Result) -> str:
    return f"{result['entries'] * 1e9 / result['total_ns']:,.0f}"


def micro(nanoseconds: int) -> str:
    return f"{nanoseconds / 1000:,.1f} µs"


def milli(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:,.2f} ms"


def size(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"
