"""What a call of a tier waits for. Calls are generators that yield it, so they are written once:
`Tier` waits in its thread (`run`), and `AsyncTier` awaits."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from functools import partial, wraps
from typing import Any, Callable, NamedTuple, TypeVar, Union

V = TypeVar("V")

Command = Sequence[Union[bytes, str, int]]


class Exchange(NamedTuple):
    """Send commands to the remote over one connection. The answer is an `Answer`."""

    commands: Union[Sequence[Command], Callable[[Any], Sequence[Command]]]
    """Or a function that makes them for a connection, just before they are sent."""
    deadline: float
    """Of time.monotonic()."""
    fresh: bool = False
    """Over a new connection."""

    def commands_for(self, connection: Any) -> Sequence[Command]:
        return self.commands(connection) if callable(self.commands) else self.commands


class Answer(NamedTuple):
    replies: list[Any]
    """For each command. An error of the server is a reply, too."""
    server: bytes
    """The server that has answered; empty if it does not say."""


class Call(NamedTuple):
    """Call a function that may wait for the remote. The answer is its result."""

    function: Callable[[], Any]


class Ask(NamedTuple):
    """Call the loader. The answer is its result."""

    loader: Callable[[], Any]


class Pause(NamedTuple):
    """Wait for another's load: this many seconds, or until the bell rings."""

    bell: Any
    seconds: float


class Sleep(NamedTuple):
    seconds: float


Steps = Generator[Union[Exchange, Call, Ask, Pause, Sleep], Any, V]


def blocking(method: Callable[..., V]) -> Callable[..., Steps[V]]:
    """The method as steps, for a remote whose calls wait in a thread."""

    @wraps(method)
    def steps(*arguments: Any, **more: Any) -> Steps[V]:
        result: V = yield Call(partial(method, *arguments, **more))
        return result

    return steps


def run(steps: Steps[V], wire: Any) -> V:
    """Runs the steps in this thread. wire: for exchanges."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as end:
            result: V = end.value
            return result
        answer = error = None
        try:
            if isinstance(step, Exchange):
                answer = wire.exchange(step)
            elif isinstance(step, Call):
                answer = step.function()
            elif isinstance(step, Ask):
                answer = step.loader()
            elif isinstance(step, Pause):
                step.bell.wait(step.seconds)
            else:
                time.sleep(step.seconds)
        except BaseException as raised:
            error = raised
