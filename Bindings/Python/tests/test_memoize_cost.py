"""What a hit of a memoized function costs, however its call is written and whatever its options:
ratios to the call with all arguments given, of rounds that take turns in one run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from statistics import median
from time import thread_time_ns
from typing import Any, Callable

import shale

CALLS = 100
ROUNDS = 101

MOST = {
    "an omitted default": 1.3,
    "a keyword": 1.3,
    "keywords only": 1.3,
    "a namespace": 1.3,
    "a tag": 1.3,
    "refresh_ahead": 2.2,
}


def ratios(base: Callable[[], object], others: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median ratio of the time of each to that of the base."""

    def measured(work: Callable[[], object]) -> int:
        begin = thread_time_ns()
        for _ in range(CALLS):
            work()
        return thread_time_ns() - begin

    found: dict[str, list[float]] = {name: [] for name in others}
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for name, work in others.items():
                # Between two measurements of the base, whose mean is less noisy.
                before, own, after = measured(base), measured(work), measured(base)
                found[name].append(2 * own / (before + after))
    finally:
        gc.enable()
    return {name: median(each) for name, each in found.items()}


def test_a_hit_costs_about_the_same_in_all_forms(cache: shale.Cache) -> None:
    def price(symbol: str, currency: str = "EUR") -> float:
        return 1.5

    def memoized(of: shale.Cache, name: str, **options: Any) -> Any:
        function = of.memoize(price, name=name, max_age=300, **options)
        function("ACME", "EUR")
        return function

    plain, tagged = memoized(cache, "plain"), memoized(cache, "tagged", tag="prices")
    ahead = memoized(cache, "ahead", refresh_ahead=2)
    spaced = memoized(cache.namespace("n"), "plain")
    found = ratios(
        lambda: plain("ACME", "EUR"),
        {
            "an omitted default": lambda: plain("ACME"),
            "a keyword": lambda: plain("ACME", currency="EUR"),
            "keywords only": lambda: plain(symbol="ACME", currency="EUR"),
            "a namespace": lambda: spaced("ACME", "EUR"),
            "a tag": lambda: tagged("ACME", "EUR"),
            "refresh_ahead": lambda: ahead("ACME", "EUR"),
        },
    )
    assert plain.cache_info().misses == 1
    assert {name: ratio for name, ratio in found.items() if ratio > MOST[name]} == {}, found


def test_so_it_does_for_coroutines(cache: shale.Cache) -> None:
    @cache.memoize(name="price")
    async def price(symbol: str, currency: str = "EUR") -> float:
        return 1.5

    def run(coroutine: Coroutine[Any, Any, float]) -> None:
        try:
            coroutine.send(None)
        except StopIteration:
            return
        raise AssertionError("a hit does not wait")

    asyncio.run(price("ACME", "EUR"))
    found = ratios(
        lambda: run(price("ACME", "EUR")),
        {
            "an omitted default": lambda: run(price("ACME")),
            "a keyword": lambda: run(price("ACME", currency="EUR")),
        },
    )
    assert {name: ratio for name, ratio in found.items() if ratio > MOST[name]} == {}, found
