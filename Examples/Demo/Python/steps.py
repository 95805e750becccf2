"""The steps that the orchestrator can request. Each reports its result."""

from __future__ import annotations

import time
from array import array
from time import perf_counter_ns

from cache_client import CacheClient, CacheError
from demo.board import Board
from demo.corpus import Corpus, Role
from talk import say_difference, say_measured, say_progress, say_result

REFRESHED_AGE_SECONDS = 3600.0
READ_AHEAD = 64  # entries beyond what the writer has completed
READS_PER_REFRESH = 4
IDLE_SECONDS = 0.001


class Steps:
    def __init__(self, corpus: Corpus, board: Board, cache: CacheClient) -> None:
        self._corpus = corpus
        self._board = board
        self._cache = cache

    def follow(self) -> None:
        """Reads all entries up to READ_AHEAD beyond the writer's, again and again, until the writer has written all.

        Between reads, refreshes entries: sets them again with a tag and an age of one hour.
        """
        total = len(self._corpus)
        waiting = self._with_role(Role.INVALIDATED, Role.REFRESHED)
        refreshed = hits = reads = 0
        finished = False
        while not finished:
            completed = self._board.completed
            finished = completed == total and refreshed == len(waiting)
            for index in range(min(completed + READ_AHEAD, total)):
                hits += self._read_along(index)
                reads += 1
                if reads % READS_PER_REFRESH == 0 and refreshed < len(waiting):
                    self._set_aged(waiting[refreshed], REFRESHED_AGE_SECONDS)
                    refreshed += 1
                say_progress(hits, total)
            if completed == 0:
                time.sleep(IDLE_SECONDS)
        say_result(hits=hits, refreshed=refreshed)

    def compare(self, expected: str) -> None:
        """Gets every entry; one letter for each role: p present without an age, a present with an age, m missing."""
        total = len(self._corpus)
        nanoseconds = array("Q")
        get = self._cache.get
        for index, key in enumerate(self._corpus.keys):
            try:
                start = perf_counter_ns()
                value = get(key)
                nanoseconds.append(perf_counter_ns() - start)
                self._check(index, expected[self._corpus.roles[index]], value)
            except CacheError as error:
                say_difference(key, f"get: {error}")
            say_progress(index, total)
        say_measured(nanoseconds)

    def rewrite(self, part: int, parts: int) -> None:
        """Sets the plain entries again whose number modulo `parts` is `part`."""
        nanoseconds = array("Q")
        for index in range(part, len(self._corpus), parts):
            if self._corpus.roles[index] != Role.PLAIN:
                continue
            key, value = self._corpus.keys[index], self._corpus.value(index)
            try:
                start = perf_counter_ns()
                self._cache.set(key, value)
                nanoseconds.append(perf_counter_ns() - start)
            except CacheError as error:
                say_difference(key, f"set: {error}")
        say_measured(nanoseconds)

    def age(self, seconds: float) -> None:
        """Sets the entries of the short-lived section again with this age."""
        indices = self._with_role(Role.SHORT_LIVED)
        for index in indices:
            self._set_aged(index, seconds)
        say_result(aged=len(indices))

    def _with_role(self, *roles: Role) -> list[int]:
        return [index for index, role in enumerate(self._corpus.roles) if role in roles]

    def _set_aged(self, index: int, seconds: float) -> None:
        key = self._corpus.keys[index]
        try:
            self._cache.set_aged(key, self._corpus.value(index), seconds, self._corpus.tags[index])
        except CacheError as error:
            say_difference(key, f"set: {error}")

    def _read_along(self, index: int) -> bool:
        """Whether get finds the entry. It must if the board counted it before the call."""
        key = self._corpus.keys[index]
        completed = self._board.completed
        try:
            value = self._cache.get(key)
        except CacheError as error:
            say_difference(key, f"get: {error}")
            return False
        if value is None:
            if index < completed:
                say_difference(key, "was completed by C, but get finds nothing")
            return False
        self._check_bytes(index, value)
        return True

    def _check(self, index: int, expected: str, value: bytes | None) -> None:
        key = self._corpus.keys[index]
        if expected == "m":
            if value is not None:
                say_difference(key, "should be missing, but get finds it")
        elif value is None:
            say_difference(key, "should be present, but get finds nothing")
        else:
            self._check_bytes(index, value)
            if self._corpus.roles[index] != Role.PLAIN:  # saves a second, slower call for the other entries
                self._check_age(key, expected)

    def _check_age(self, key: bytes, expected: str) -> None:
        has_age = self._cache.has_age(key)
        if has_age != (expected == "a"):
            say_difference(key, "has an age" if has_age else "has no age")

    def _check_bytes(self, index: int, value: bytes) -> None:
        wanted = self._corpus.value(index)
        if value != wanted:
            say_difference(self._corpus.keys[index], difference(value, wanted))


def difference(value: bytes, wanted: bytes) -> str:
    if type(value) is not bytes:
        return f"a {type(value).__name__} instead of bytes"
    if len(value) != len(wanted):
        return f"{len(value)} bytes, but the source has {len(wanted)}"
    at = next(at for at in range(len(wanted)) if value[at] != wanted[at])
    return f"the first byte that differs from the source is byte {at}"
