"""The first example of each project's documentation, with the line that makes the cache changed, and its import.

The text is that of the README in the installed distribution; addresses become those of a server on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import re
import subprocess
import sys
import textwrap
import threading
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from wsgiref.simple_server import make_server

import pytest
import shale


def example(distribution: str, changes: dict[str, str], start: str = "```python\n", end: str = "\n```") -> str:
    """The first block of Python that has a line to be changed, with its lines changed."""
    readme = metadata(distribution)["Description"]
    blocks = (part.partition(end)[0] for part in readme.split(start)[1:])
    lines = (
        textwrap.dedent(
            next(block for block in blocks if any(line.strip() == next(iter(changes)) for line in block.splitlines()))
        )
        .strip()
        .splitlines()
    )
    for old, new in changes.items():
        (at,) = (number for number, line in enumerate(lines) if line.strip() == old)
        lines[at] = lines[at].replace(old, new)
    return "\n".join(lines)


def run(text: str, **names: Any) -> tuple[dict[str, Any], list[str]]:
    """Runs an example, which may await; its names, and the lines that it prints."""
    printed = io.StringIO()
    code = compile(text, "example", "exec", flags=PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(printed):
        result = eval(code, names)
        if inspect.isawaitable(result):

            async def wait() -> None:
                await result

            asyncio.run(wait())
    return names, printed.getvalue().splitlines()


class Site:
    """Counts the requests that the server of the examples gets."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.asked.append(environ["PATH_INFO"])
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "4")])
        return [b"body"]


@pytest.fixture
def site() -> Iterator[SimpleNamespace]:
    site = Site()
    with make_server("127.0.0.1", 0, site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", asked=site.asked)
        server.shutdown()
        thread.join()


def test_requests_cache(directory: Path, site: SimpleNamespace) -> None:
    old = "session = requests_cache.CachedSession('demo_cache')"
    new = f"session = requests_cache.CachedSession(backend=ShaleCache({str(directory)!r}))"
    text = example("requests-cache", {old: f"from shale.adapters.requests_cache import ShaleCache; {new}"})
    names, _ = run(text.replace("https://httpbin.org", site.url))
    assert site.asked == ["/delay/1"]
    assert names["session"].get(f"{site.url}/delay/1").content == b"body"
    with shale.Cache(directory) as cache:
        assert len(cache) == 1


def test_aiohttp_client_cache(directory: Path, site: SimpleNamespace) -> None:
    imported = "from aiohttp_client_cache import CachedSession"
    old = "async with CachedSession(cache=SQLiteBackend('demo_cache')) as session:"
    changes = {
        old: f"async with CachedSession(cache=ShaleBackend({str(directory)!r})) as session:",
        f"{imported}, SQLiteBackend": f"{imported}; from shale.adapters.aiohttp_client_cache import ShaleBackend",
    }
    text = example("aiohttp-client-cache", changes).replace("http://httpbin.org", site.url)
    run(text)
    run(text)
    assert site.asked == ["/delay/1"]
    with shale.Cache(directory) as cache:
        assert len(cache) == 1


def test_cachelib(directory: Path) -> None:
    changes = {
        "cache = SimpleCache()": f"cache = ShaleCache({str(directory)!r})",
        "from cachelib import SimpleCache": "from shale.adapters.cachelib import ShaleCache",
    }
    names, printed = run(example("cachelib", changes))
    assert printed == ["my_value", "None"]
    names["cache"].set("k", 1)
    with shale.Cache(directory) as cache:
        assert cache["k"] == 1


def test_aiocache(directory: Path) -> None:
    """The README shows a session; what follows its prompts is run, and each result printed."""
    memory = "Cache(Cache.MEMORY) # Here you can also use Cache.REDIS and Cache.MEMCACHED, default is Cache.MEMORY"
    shales = f"Cache(ShaleCache, directory={str(directory)!r})"
    changes = {f">>> cache = {memory}": f">>> from shale.adapters.aiocache import ShaleCache; cache = {shales}"}
    text = example("aiocache", changes, ".. code-block:: python\n", "\nOr as a decorator")
    lines = [line.removeprefix(">>> ") for line in text.splitlines() if line.startswith(">>> ")]
    _, printed = run("\n".join(re.sub(r"( +)(runner.run.*)", r"\1print(repr(\2))", line) for line in lines))
    assert printed == ["True", "'value'"]
    with shale.Cache(directory) as cache:
        assert cache["key"] == "value"


def test_key_value(directory: Path) -> None:
    changes = {
        "memory_store = MemoryStore()": f"memory_store = ShaleStore({str(directory)!r})",
        "from key_value.aio.stores.memory import MemoryStore": "from shale.adapters.key_value import ShaleStore",
    }
    text = example("py-key-value-aio", changes)
    with shale.Cache(directory) as cache:
        run(text)
        assert not list(cache)  # its last step removes what it stored
    (delete,) = (each for each in text.splitlines() if ".delete(" in each)
    run(text.replace(delete, "    assert value == {'name': 'Alice'}"))
    with shale.Cache(directory) as cache:
        assert list(cache) == [("users", "123")]


def test_cashews(directory: Path) -> None:
    old = 'cache.setup("mem://")  # configure as in-memory cache, but redis/diskcache is also supported'
    names, _ = run(example("cashews", {old: f'import shale.adapters.cashews; cache.setup("shale://{directory}")'}))
    request = SimpleNamespace(user=User("ada"))

    async def use() -> None:
        await names["cache_using_function"](request)
        assert await names["long_running_function"](request) is None
        assert await names["cache"].get("ada") == request.user
        await names["cache"].close()

    asyncio.run(use())
    with shale.Cache(directory) as cache:
        entry = cache.entry("ada")
        assert entry is not None and 19 * 3600 < entry.ttl <= 20 * 3600


class User(str):
    """A user whose value Shale can store as it is."""

    @property
    def uid(self) -> str:
        return str(self)


def test_dogpile(directory: Path) -> None:
    """dogpile.cache's documentation is not installed; its first example configures a region for pylibmc."""
    from dogpile.cache import make_region

    calls: list[int] = []
    region: Any = make_region().configure(
        "shale.adapters.dogpile", expiration_time=3600, arguments={"directory": str(directory)}
    )

    def lookup(user_id: int) -> dict[str, int]:
        calls.append(user_id)
        return {"id": user_id}

    load_user_info = region.cache_on_arguments()(lookup)
    assert [load_user_info(5), load_user_info(5), load_user_info(6)] == [{"id": 5}, {"id": 5}, {"id": 6}]
    assert calls == [5, 6]
    with shale.Cache(directory) as cache:
        assert len(cache) == 2


def python(script: str, *arguments: object) -> str:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_dogpile_finds_the_backend_without_an_import(directory: Path) -> None:
    script = """
import sys
from dogpile.cache import make_region
assert "shale" not in sys.modules
region = make_region().configure("shale.adapters.dogpile", arguments={"directory": sys.argv[1]})
print(region.get_or_create("k", lambda: "created"), type(region.backend).__module__)
"""
    assert python(script, directory) == "created shale.adapters.dogpile\n"


def test_cashews_needs_the_import(directory: Path) -> None:
    """cashews looks for no entry points: a scheme exists only once register_backend was called. If this fails, it may
    have learnt to, and Shale should declare one."""
    script = """
import sys
from cashews import Cache
from cashews.exceptions import BackendNotAvailableError
try:
    Cache().setup("shale://" + sys.argv[1])
except BackendNotAvailableError:
    print("unknown")
import shale.adapters.cashews
Cache().setup("shale://" + sys.argv[1])
print("known")
"""
    assert python(script, directory) == "unknown\nknown\n"
