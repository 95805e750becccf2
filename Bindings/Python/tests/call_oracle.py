"""The oracle of calls that load: what may be answered, and how many loads a caller may wait for.

It counts loads and compares times of one clock. The one time that it measures is that of the pause
after a failure (``retry_after``). Each answer that it accepts although
an ideal machine would not give it is a tolerance: it is counted, and limited to a share.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator

from call_log import NEVER, Call, Change, Events, Pause, Run

BESIDE = "loads beside one whose caller's wait or timeout was over, or whose process was stopped"
LATE = "calls that missed the end of a load of their process while they began"
BETWEEN = "calls that missed the end of a load of another process between two lookups"
LIMITS = {BESIDE: 0.3, LATE: 0.05, BETWEEN: 0.25}
"""The largest share of each: of the loads, or of the calls that waited for a failure or an
unstored value."""

ROUNDED = 0.05
"""Seconds by which the end of a pause may be early: processes share it by another clock."""


class Oracle:
    def __init__(self, events: Events) -> None:
        self.wrong: list[str] = []
        self.used: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        """The answers, by kind."""
        self.missed: Counter[int] = Counter()
        """The loads that these calls missed."""
        self.waits = 0
        """Calls that waited for another call's load that ended without a stored value."""
        self._events = events
        self._runs: dict[str, list[Run]] = defaultdict(list)
        self._changes: dict[str, list[Change]] = defaultdict(list)
        self._pauses: dict[str, list[Pause]] = defaultdict(list)
        keys = {call.key for call in events.calls.values()}
        for run in sorted(events.runs.values(), key=lambda run: run.began):
            self._runs[run.call.key].append(run)
        for change in sorted(events.changes.values(), key=lambda change: change.began):
            for key in keys if change.key is None else [change.key]:
                self._changes[key].append(change)
        self._begins = {
            key: [change.began for change in changes] for key, changes in self._changes.items()
        }
        for pause in events.pauses:
            self._pauses[pause.process].append(pause)
        for key in keys:
            self._check_runs(self._runs[key])
        for call in events.calls.values():
            self._check(call)

    def shares(self) -> Iterator[tuple[str, int, int, float]]:
        """Each tolerance: its uses, of how many, and the largest share."""
        for why, limit in LIMITS.items():
            of = len(self._events.runs) if why is BESIDE else self.waits
            yield why, self.used[why], of, limit

    # Loads

    def _check_runs(self, runs: list[Run]) -> None:
        for number, second in enumerate(runs):
            for first in runs[max(0, number - 50) : number]:
                if second.began < first.ended:
                    if self._may_be_beside(first, second):
                        self.used[BESIDE] += 1
                    else:
                        self._note("two loads at once", first, second)
            if number:
                self._check_need(runs[number - 1], second)
                self._check_pause(runs[number - 1], second)

    def _may_be_beside(self, first: Run, second: Run) -> bool:
        for run in (first, second):
            wait = run.call.options.get("wait")
            if wait is not None and run.began - run.call.began >= wait:
                return True
            if run.call.limited and run.call.ended <= second.began:
                return True
        if first.call.limited:
            return False
        lease = first.call.options["lease"]
        return second.began - first.began >= lease and self._paused(first, second.began)

    def _paused(self, run: Run, until: float) -> bool:
        return any(
            pause.began < until and run.began < pause.ended for pause in self._pauses[run.process]
        )

    def _check_need(self, first: Run, second: Run) -> None:
        """A load whose value is stored ends all need of a load, until a change."""
        if first.call.limited or second.call.limited or "max_age" in first.call.options:
            return
        stored = first.outcome == "value" and first.call.kind == "value"
        if not stored or first.ended > second.began or self._paused(first, second.began):
            return
        # (Its lease was granted before its loader began.)
        if not any(self._changes_in(second.call.key, first.call.began, second.began)):
            self._note("a load of a key that has a value", first, second)

    def _check_pause(self, first: Run, second: Run) -> None:
        """A call that asks after a failed load does not load during the pause."""
        pause = second.call.options.get("retry_after", 0)
        if (
            pause
            and first.outcome == "failure"
            and self._returned(first) < second.call.began
            and second.began < first.ended + pause - ROUNDED
            and not any(self._changes_in(second.call.key, first.began, second.began))
        ):
            self._note("a load in the pause after a failure", first, second)

    # Answers

    def _check(self, call: Call) -> None:
        self.kinds[call.kind] += 1
        if call.kind == "unfinished":
            if call.process not in self._events.killed:
                self._note("a call that has not returned", call)
            return
        own = call.runs[0] if call.runs else None
        if len(call.runs) > 1:
            self._note("two loads of one call", call)
        elif call.kind == "cancelled":
            if not call.cancelled:
                self._note("a cancellation of another call", call)
        elif call.kind == "Interrupt":
            if own is None or call.origin != own.name:
                self._note("an interruption of another call", call)
        elif call.kind == "timeout":
            if "timeout" not in call.options:
                self._note("a timeout without a limit", call)
        elif call.kind == "value":
            self._check_value(call, own)
        elif call.kind in ("failure", "LoadFailed"):
            self._check_failure(call, own)
        else:
            self._note("an unexpected exception", call)

    def _check_value(self, call: Call, own: Run | None) -> None:
        origin = self._events.runs.get(call.origin or "")
        if origin is None:
            self._check_set(call)
            return
        if origin.call.key != call.key or origin.outcome not in ("value", "unstorable"):
            self._note("a value that the key never had", call, origin)
            return
        loaded = own is not None and own.outcome in ("value", "unstorable")
        if loaded and own is not origin and not call.limited and not call.stale:
            self._note("another value than that of the call's own load", call, origin)
        self._check_fresh(call, origin.began)
        if origin.outcome == "unstorable" and (
            origin.process != call.process or (call.began > self._returned(origin))
        ):
            self._note("an unstored value for a call that had not waited for it", call, origin)
        self._check_wait(call, origin)

    def _check_set(self, call: Call) -> None:
        change = self._events.changes.get(call.origin or "")
        if change is None or change.key != call.key or change.what != "set":
            self._note("a value that the key never had", call)
            return
        if change.began > call.ended:
            self._note("a value from the future", call)
        self._check_fresh(call, change.ended)

    def _check_fresh(self, call: Call, since: float) -> None:
        """since: when the value was read, or when its set had returned."""
        for change in self._changes_in(call.key, since, call.began):
            expiry = change.what == "expire" and call.stale
            if change.began > since and change.ended < call.began and not expiry:
                self._note(f"a value from before a {change.what} that had returned", call)
                return

    def _check_failure(self, call: Call, own: Run | None) -> None:
        origin = self._events.runs.get(call.origin or "")
        if origin is None or origin.call.key != call.key or origin.outcome != "failure":
            self._note("a failure that the key never had", call)
            return
        if own is not None and origin is not own:
            self._note("another failure than that of the call's own load", call, origin)
        if not call.intact:
            self._note("a changed exception", call, origin)
        if (origin.process == call.process) != (call.kind == "failure"):
            self._note(f"a failure as {call.kind}", call, origin)
        pause = call.options.get("retry_after", 0)
        if call.began > self._returned(origin) + pause + (ROUNDED if pause else 0):
            self._note("a failure that had been raised before the call", call, origin)
        if not pause:
            self._check_wait(call, origin)

    def _returned(self, run: Run) -> float:
        """When the load had ended at the latest."""
        call = run.call
        return NEVER if call.limited or call.ended == NEVER else call.ended

    def _check_wait(self, call: Call, origin: Run) -> None:
        """A caller waits for one load, and for another one after each that ended without a result
        for it."""
        if call.limited or call.stale:
            return
        waited = [
            run
            for run in self._runs[call.key]
            if call.began < run.ended <= origin.ended and not run.call.limited
        ]
        first = min(waited, key=lambda run: run.ended, default=origin)
        self.waits += first.call is not call and first.outcome in ("failure", "unstorable")
        if len(waited) <= 1:
            return
        since = min(run.began for run in waited)
        reasons = sum(1 for _ in self._changes_in(call.key, since, origin.ended))
        for run in waited:
            without = run.outcome in ("cancelled", "killed") or run.call.kind == "cancelled"
            elsewhere = run.outcome == "unstorable" and run.process != call.process
            reasons += without or elsewhere or self._paused(run, origin.ended)
        if len(waited) > 1 + reasons:
            others = any(run.process != call.process for run in waited)
            self.used[BETWEEN if others else LATE] += 1
            self.missed[len(waited) - 1 - reasons] += 1

    def _changes_in(self, key: str, began: float, ended: float) -> Iterator[Change]:
        """The changes that ran between these times, at least in part."""
        last = bisect_right(self._begins.get(key, ()), ended)
        return (change for change in self._changes[key][:last] if change.ended >= began)

    def _note(self, what: str, *events: object) -> None:
        self.wrong.append("\n    ".join([what, *map(str, events)]))
