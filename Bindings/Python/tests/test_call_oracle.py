"""The oracle of histories of loads finds each broken promise, in small histories made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from call_log import Events, add
from call_oracle import BESIDE, BETWEEN, LATE, Oracle

OPTIONS = {"lease": 600}


class Made:
    """Events of two processes, a and b. Times are small numbers."""

    def __init__(self) -> None:
        self.events = Events()

    def call(
        self,
        name: str,
        began: float,
        ended: float,
        kind: str,
        origin: str | None = None,
        *,
        intact: bool = True,
        stale: bool = False,
        **options: Any,
    ) -> None:
        """The first letter of the name is its process."""
        process = name[0]
        options = {**OPTIONS, **options}
        add(self.events, process, ["call", name, began, "k", options])
        add(self.events, process, ["answer", name, ended, kind, origin, stale, intact])

    def load(
        self,
        name: str,
        began: float,
        ended: float,
        outcome: str = "value",
        kind: str | None = None,
        **options: Any,
    ) -> None:
        """A load, and the call that loads."""
        kind = kind or ("value" if outcome in ("value", "unstorable") else outcome)
        cancelled = kind == "cancelled"
        self.call(f"{name} call", began - 0.1, ended + 0.1, kind, name, **options)
        add(self.events, name[0], ["run", name, began, f"{name} call"])
        add(self.events, name[0], ["end", name, ended, outcome])
        if cancelled:
            add(self.events, name[0], ["cancel", f"{name} call"])

    def change(self, began: float, ended: float, what: str = "remove", key: Any = "k") -> None:
        name = f"change {began}"
        add(self.events, "a", ["change", name, began, key, what])
        add(self.events, "a", ["changed", name, ended])

    def oracle(self) -> Oracle:
        return Oracle(self.events)

    def wrong(self) -> list[str]:
        return [each.split("\n")[0] for each in self.oracle().wrong]


@pytest.fixture
def made() -> Made:
    return Made()


def test_what_is_right(made: Made) -> None:
    made.load("a1", 1, 2)
    made.call("a call", 1.5, 2.2, "value", "a1")
    made.call("b call", 1.5, 2.2, "value", "a1")
    made.change(3, 3.1)
    made.load("b2", 4, 5, "failure")
    made.call("b other", 4.5, 5.2, "failure", "b2")
    made.call("a other", 4.5, 5.2, "LoadFailed", "b2")
    made.load("a3", 6, 7, "unstorable")
    made.call("a third", 6.5, 7.2, "value", "a3")
    made.load("a4", 8, 9, "cancelled")
    made.load("b5", 10, 11)
    made.call("a fourth", 8.5, 11.2, "value", "b5")
    oracle = made.oracle()
    assert oracle.wrong == []
    assert not oracle.used
    assert oracle.waits == 3


def test_two_loads_at_once(made: Made) -> None:
    made.load("a1", 1, 3, "failure")
    made.load("b2", 2, 4, "failure")
    assert made.wrong() == ["two loads at once"]


def test_two_loads_at_once_that_a_limit_or_a_stop_explains(made: Made) -> None:
    made.load("a1", 1, 3, "failure")
    made.load("b2", 2, 4, "failure", wait=0.05)
    made.load("a3", 5, 9, "failure", lease=1)
    add(made.events, "a", ["pause", 6, 8])
    made.load("b4", 7, 8, "failure")
    oracle = made.oracle()
    assert oracle.wrong == []
    assert oracle.used == {BESIDE: 2}


def test_a_stop_explains_no_load_before_the_end_of_the_lease(made: Made) -> None:
    made.load("a3", 5, 9, "failure", lease=3)
    add(made.events, "a", ["pause", 6, 8])
    made.load("b4", 7, 8, "failure")
    assert made.wrong() == ["two loads at once"]


def test_a_load_of_a_key_that_has_a_value(made: Made) -> None:
    made.load("a1", 1, 2)
    made.load("b2", 3, 4)
    assert made.wrong() == ["a load of a key that has a value"]


def test_a_call_that_has_not_returned(made: Made) -> None:
    add(made.events, "a", ["call", "a", 1, "k", OPTIONS])
    assert made.wrong() == ["a call that has not returned"]
    add(made.events, "test", ["killed", "a", 2])
    assert made.wrong() == []


def test_outdated_values(made: Made) -> None:
    made.load("a1", 1, 2)
    made.change(1.2, 1.4)
    # It asked before the removal had returned.
    made.call("a before", 1.3, 2.1, "value", "a1")
    assert made.wrong() == []
    made.call("a after", 1.5, 2.1, "value", "a1")
    assert made.wrong() == ["a value from before a remove that had returned"]


def test_a_set_that_another_replaced(made: Made) -> None:
    made.change(1, 2, "set")
    made.change(3, 4, "set")
    made.call("a", 3.5, 5, "value", "change 1")
    assert made.wrong() == []
    made.call("b", 4.5, 5, "value", "change 1")
    assert made.wrong() == ["a value from before a set that had returned"]


def test_an_expired_value_is_stale(made: Made) -> None:
    made.load("a1", 1, 2)
    made.change(3, 4, "expire")
    made.call("a", 5, 6, "value", "a1", stale=True)
    assert made.wrong() == []
    made.call("b", 5, 6, "value", "a1")
    assert made.wrong() == ["a value from before a expire that had returned"]


def test_an_unstored_value_that_was_kept(made: Made) -> None:
    made.load("a1", 1, 2, "unstorable")
    made.call("a late", 3, 4, "value", "a1")
    made.call("b", 1.5, 4, "value", "a1")
    assert made.wrong() == ["an unstored value for a call that had not waited for it"] * 2


def test_failures_of_others(made: Made) -> None:
    made.load("a1", 1, 2, "failure")
    made.call("a late", 3, 4, "failure", "a1")
    made.call("b", 1.5, 4, "failure", "a1")
    made.call("a", 1.5, 4, "LoadFailed", "a1")
    made.call("a changed", 1.5, 4, "failure", "a1", intact=False)
    assert made.wrong() == [
        "a failure that had been raised before the call",
        "a failure as failure",
        "a failure as LoadFailed",
        "a changed exception",
    ]


def test_pauses(made: Made) -> None:
    made.load("a1", 1, 2, "failure", retry_after=10)
    made.call("b", 3, 4, "LoadFailed", "a1", retry_after=10)
    assert made.wrong() == []
    made.call("b late", 13, 14, "LoadFailed", "a1", retry_after=10)
    made.load("b2", 5, 6, "failure", retry_after=10)
    assert sorted(made.wrong()) == [
        "a failure that had been raised before the call",
        "a load in the pause after a failure",
    ]


def test_cancellations_of_others(made: Made) -> None:
    made.load("a1", 1, 2, "cancelled")
    made.call("a", 1.5, 3, "cancelled")
    made.call("b", 1.5, 3, "LoadFailed", "a1")
    assert made.wrong() == [
        "a cancellation of another call",
        "a failure that the key never had",
    ]


def test_waits_for_too_many_loads(made: Made) -> None:
    for number in range(3):
        made.load(f"a{number}", number, number + 0.5, "failure")
    made.call("a", 0.2, 3, "failure", "a2")
    made.call("b", 0.2, 3, "LoadFailed", "a2")
    made.call("a in time", 0.2, 3, "failure", "a0")
    oracle = made.oracle()
    assert oracle.wrong == []
    assert oracle.used == {LATE: 1, BETWEEN: 1}


def test_waits_that_changes_and_cancellations_explain(made: Made) -> None:
    made.load("a0", 0, 0.5, "cancelled")
    made.load("a1", 1, 1.5)
    made.change(1.2, 1.3)
    made.load("a2", 2, 2.5, "failure")
    made.call("a", 0.2, 3, "failure", "a2")
    oracle = made.oracle()
    assert oracle.wrong == []
    assert not oracle.used
