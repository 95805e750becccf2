"""What a tier says when something fails, and what it refuses."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import shale
import valkey
from near import Machines, heard, names_in, near, remote_key
from servers import RedisServer, free_port, until
from shale._data.values import Codec
from shale.tier import AsyncTier, RemoteError, Tier
from shale.tier._errors import RefusedError
from shale.tier._format import VERSION_SIZE, encode
from shale.tier._wire import Causes, describe, describe_answer

# Not in the source lines of tracebacks.
HIDDEN = "".join(("Sec", "ret"))
CLIENTS: list[Any] = [redis.Redis, valkey.Valkey]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("command", ["EVAL", "GET", "AUTH", "DEL", "CLIENT"])
def test_no_error_names_a_key_a_value_or_a_password(
    command: str, client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server quotes the arguments of a command that it does not know."""
    server = RedisServer(tmp_path / "server", "--rename-command", command, "")
    texts: list[str] = []

    def refused(call: Callable[[], object]) -> None:
        try:
            call()
        except RemoteError as error:
            texts.append(str(error))
            texts.extend(traceback.format_exception(error))

    try:
        options: dict[str, Any] = {"username": "ada", "password": HIDDEN} if command == "AUTH" else {}
        own = client(port=server.port, **options)
        with Tier(tmp_path / "near", own, bound=0.1, timeout=5.0, capacity="8MiB") as tier:
            refused(lambda: tier.set(HIDDEN, HIDDEN))
            refused(lambda: tier.get(HIDDEN))
            refused(lambda: tier.remove(HIDDEN))
            found = tier.lookup_or_load("key", lambda: HIDDEN, tags=[HIDDEN])
            texts.append(str(found.error))
        assert any("nknown" in each for each in [*texts, caplog.text])
    finally:
        server.stop()
    assert HIDDEN not in "".join(texts) + caplog.text


def test_a_value_that_is_too_large_for_the_near_cache(machine: Machines, caplog: pytest.LogCaptureFixture) -> None:
    tier = machine(capacity="1MiB")
    assert tier.get_or_load(HIDDEN, lambda: b"v" * 1_000_000) == b"v" * 1_000_000
    assert "the value loaded for a key is not stored" in caplog.text
    assert HIDDEN not in caplog.text


def test_known_sentences_are_told() -> None:
    assert describe_answer("ERR unknown command 'X', with args beginning with: 'key'", "") == "ERR unknown command"
    assert describe_answer("object too large for cache", "SERVER_ERROR") == "SERVER_ERROR object too large for cache"
    assert describe_answer("SERVER_ERROR key", "ERROR") == "SERVER_ERROR"
    assert describe(redis.ResponseError("what key?")) == "ResponseError"
    assert describe(redis.InvalidResponse("Protocol Error: b'value'")) == "InvalidResponse"
    assert describe(ConnectionRefusedError(111, "Connection refused")) == "[Errno 111] Connection refused"


def test_another_database_is_refused(machine: Machines, server: RedisServer, tmp_path: Path) -> None:
    tier = machine("one")
    other = server.client(db=3)
    with pytest.raises(shale.InvalidError, match="database"):
        Tier(tmp_path / "one", other)
    with Tier(tmp_path / "three", other, capacity="8MiB"):
        Tier(tmp_path / "three", redis.Redis.from_url(f"redis://elsewhere:{free_port()}/3"), capacity="8MiB").close()
        with pytest.raises(shale.InvalidError, match="database"):
            Tier(tmp_path / "three", server.client())
    tier.set("k", 1)


def test_a_str_instead_of_a_list_of_tags(machine: Machines) -> None:
    tier: Any = machine()
    calls: list[Callable[[Any], Any]] = [
        lambda tags: tier.set("k", 1, tags=tags),
        lambda tags: tier.get_or_load("k", lambda: 1, tags=tags),
        lambda tags: tier.lookup_or_load("k", lambda: 1, tags=tags),
        lambda tags: asyncio.run(AsyncTier(tier).set("k", 1, tags=tags)),
        lambda tags: asyncio.run(AsyncTier(tier).get_or_load("k", None, tags=tags)),  # type: ignore[arg-type]
        lambda tags: asyncio.run(AsyncTier(tier).lookup_or_load("k", None, tags=tags)),  # type: ignore[arg-type]
    ]
    for call in calls:
        for tags in ("users", b"users"):
            with pytest.raises(TypeError, match=r"write tags=\[tag\]"):
                call(tags)
    assert tier.get("k") is None


OWN = [b"\xffP1T" + letter for letter in (b"s", b"m", b"c", b"l", b"j", b"e")]
"""Names of the tier's own entries, and its own tag."""


@pytest.mark.parametrize("name", OWN)
def test_names_of_the_tier_itself_are_refused(machine: Machines, name: bytes) -> None:
    tier = machine()
    calls: list[Callable[[], Any]] = [
        lambda: tier.get(name),
        lambda: tier.get_or_load(name, lambda: 1),
        lambda: tier.set(name, 1),
        lambda: tier.remove(name),
        lambda: tier.invalidate(name),
        lambda: tier.set("k", 1, tags=[name]),
        lambda: tier.get_or_load("k", lambda: 1, tags=[name]),
        lambda: asyncio.run(AsyncTier(tier).get(name)),
        lambda: asyncio.run(AsyncTier(tier).set(name, 1)),
        lambda: asyncio.run(AsyncTier(tier).remove(name)),
        lambda: asyncio.run(AsyncTier(tier).invalidate(name)),
    ]
    for call in calls:
        with pytest.raises(shale.InvalidError, match="the tier itself"):
            call()
    assert tier.get("k") is None


def test_names_of_the_tier_itself_in_the_remote_are_ignored(machine: Machines, server: RedisServer) -> None:
    tier = machine()
    tier.set("k", 1)
    assert near(tier, "k") == 1
    kept = {key: tier._cache.get(key) for key in (OWN[1], OWN[2], "k")}
    for name in OWN:
        server.client().set(b"shale:k:" + name, bytes(VERSION_SIZE))
        server.client().set(b"shale:t:" + name, bytes(VERSION_SIZE))
        heard(tier)
    # (Stale if the machine did not let the listener run.)
    assert {key: tier._cache.get(key, stale=True) for key in kept} == kept
    for name in OWN:
        server.client().set(remote_key("tagged"), encode(Codec(None), 1, {name: bytes(VERSION_SIZE)}))
        assert tier.get("tagged") is None


LONG = 65_536
"""Bytes, one more than a key or tag has."""


@pytest.mark.parametrize("tag", ["", "x" * LONG])
def test_tags_that_the_near_cache_cannot_have_are_refused(machine: Machines, tag: str) -> None:
    tier = machine()
    calls: list[Callable[[], Any]] = [
        lambda: tier.invalidate(tag),
        lambda: tier.set("k", 1, tags=[tag]),
        lambda: tier.get_or_load("k", lambda: 1, tags=[tag]),
    ]
    for call in calls:
        with pytest.raises(shale.InvalidError, match=f"has {len(tag)} bytes"):
            call()
    assert tier.get("k") is None
    assert not names_in(tier._near.journal)


def test_keys_that_the_near_cache_cannot_have_are_refused(machine: Machines, server: RedisServer) -> None:
    tier = machine()
    key = b"x" * LONG
    calls: list[Callable[[], Any]] = [lambda: tier.set(key, 1), lambda: tier.get(key), lambda: tier.remove(key)]
    for call in calls:
        with pytest.raises(shale.TooLargeError, match="65,535"):
            call()
    assert not server.client().exists(remote_key(key))
    assert not names_in(tier._near.journal)


def test_names_in_the_remote_that_the_near_cache_cannot_have(machine: Machines, server: RedisServer) -> None:
    tier = machine()
    for name in (b"", b"x" * LONG):
        names = [prefix + each for prefix in (b"shale:k:", b"shale:t:") for each in (name, b"n")]
        assert tier._remote.changes_in([b"message", b"", names]) == ([b"n"], [b"n"])
        server.client().set(b"shale:t:" + name, bytes(VERSION_SIZE))
        server.client().set(remote_key("k"), encode(Codec(None), 1, {name: bytes(VERSION_SIZE)}))
        assert tier.get("k") is None


def test_long_tags_of_a_value_are_not_kept_near(machine: Machines) -> None:
    """More than fit beside the key in an entry: the value is read from the remote each time."""
    tier = machine()
    tags = [letter * (LONG - 1) for letter in "abcdefg"]
    tier.set("k", 1, tags=tags)
    assert tier.get("k") == 1
    tier.invalidate(tags[-1])
    assert tier.get("k") is None


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records]


def test_a_cause_is_logged_once_until_it_has_ended(
    machine: Machines, server: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = machine(timeout=0.3)
    begin = tier._causes.begin
    begun: list[Exception] = []

    def count_and_begin(part: str, error: Exception, effect: str) -> None:
        begin(part, error, effect)
        begun.append(error)

    monkeypatch.setattr(tier._causes, "begin", count_and_begin)
    for outage in (1, 2):
        begun.clear()
        server.kill()
        with pytest.raises(RemoteError):
            tier.set("k", 1)
        tier.get_or_load("k", lambda: 1)
        until(lambda: len(begun) > 2)
        assert len(lines(caplog)) == outage
        server.start()
        until(lambda: tier.listens and not names_in(tier._near.journal))


def test_causes_and_parts(caplog: pytest.LogCaptureFixture) -> None:
    causes = Causes()
    away, full = RemoteError("the remote did not answer: timed out"), RefusedError("the remote refused: OOM full")

    def logs(part: str, error: Exception) -> bool:
        before = len(lines(caplog))
        causes.begin(part, error, "effect")
        return len(lines(caplog)) > before

    assert logs("listener", away)
    assert not logs("listener", ConnectionResetError(104, "reset"))
    assert not logs("loads", away)
    assert logs("loads", full)
    assert logs("loads", RefusedError("the remote does not keep the version of a tag"))
    assert not logs("loads", away)
    causes.end("listener")
    # It has ended for all.
    assert logs("loads", away)
    causes.end("listener")
    assert not logs("loads", away)
    assert logs("listener", ValueError("a bug"))
    assert caplog.records[-1].exc_info
