"""Ages are seconds, capacities bytes, and no number is truncated."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shale
from shale._native.units import age_ms, capacity_bytes, duration_ms, int64, seconds, unsigned

FOREVER = 2**63 - 1


@pytest.mark.parametrize(
    ("age", "milliseconds"),
    [(None, 0), (0, -1), (0.0, -1), (1, 1000), (0.25, 250), (0.0001, 1), (1.0004, 1000),
     (shale.NEVER, FOREVER), (1e300, FOREVER), (10**30, FOREVER), (86400, 86_400_000)],
)  # fmt: skip
def test_ages(age: float | None, milliseconds: int) -> None:
    assert age_ms(age) == milliseconds


@pytest.mark.parametrize("age", [-1, -0.001, -math.inf, math.nan])
def test_ages_that_are_none(age: float) -> None:
    with pytest.raises(shale.InvalidError):
        age_ms(age)


@pytest.mark.parametrize("age", ["60", True, b"1", [1]])
def test_ages_are_numbers(age: Any) -> None:
    with pytest.raises(TypeError):
        age_ms(age)


@given(st.floats(min_value=0, exclude_min=True, allow_nan=False))
def test_every_age_fits(age: float) -> None:
    assert 1 <= age_ms(age) <= FOREVER


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [(0, 0), (0.0, 0), (0.0001, 1), (1.5, 1500), (shale.NEVER, FOREVER), (10**400, FOREVER)],
)
def test_durations(duration: float, milliseconds: int) -> None:
    assert duration_ms("wait", duration) == milliseconds


@pytest.mark.parametrize("duration", [-1, -0.001, -math.inf, math.nan])
def test_durations_that_are_none(duration: float) -> None:
    with pytest.raises(shale.InvalidError, match="wait is not negative"):
        duration_ms("wait", duration)


@pytest.mark.parametrize("duration", ["60", True, None])
def test_durations_are_numbers(duration: Any) -> None:
    with pytest.raises(TypeError, match="wait is a number of seconds"):
        duration_ms("wait", duration)


def test_points_in_time() -> None:
    assert seconds(1500) == 1.5
    assert seconds(FOREVER) == shale.NEVER


@pytest.mark.parametrize(
    ("capacity", "size"),
    [(None, 0), (1, 1), ("1GiB", 2**30), ("64MB", 64 * 10**6), ("1.5 KiB", 1536), ("100B", 100),
     ("2tib", 2**41), (" 1 kb ", 1000), ("0.1MB", 100_000), (2**64 - 1, 2**64 - 1)],
)  # fmt: skip
def test_capacities(capacity: int | str | None, size: int) -> None:
    assert capacity_bytes(capacity) == size


@pytest.mark.parametrize("capacity", ["", "1", "GiB", "1 GiBs", "-1MB", "1iB", "64M", "1e3MB",
                                      0, -1, 2**64, "17PiB" * 2, "99999999PiB", "0MB"])  # fmt: skip
def test_capacities_that_are_none(capacity: int | str) -> None:
    with pytest.raises(shale.InvalidError):
        capacity_bytes(capacity)


@pytest.mark.parametrize("capacity", [1.5, True, b"1GiB"])
def test_capacities_are_ints_or_text(capacity: Any) -> None:
    with pytest.raises(TypeError):
        capacity_bytes(capacity)


def test_ints_that_ctypes_would_cut() -> None:
    for number in (-1, 2**32):
        with pytest.raises(shale.InvalidError):
            unsigned("n", number, 32)
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(shale.InvalidError):
            int64("n", number)
    not_ints: list[Any] = [1.0, "1", True]
    for other in not_ints:
        with pytest.raises(TypeError):
            int64("n", other)
        with pytest.raises(TypeError):
            unsigned("n", other, 8)
