"""The fixtures that cashews's tests take, and its distribution lacks, with Shale's backend."""

from unittest.mock import Mock

import pytest
from cashews.wrapper import Cache
from shale.adapters.cashews import ShaleBackend


class Recorded(ShaleBackend):
    is_full_disable = False  # a test assigns to it


@pytest.fixture
def redis_dsn():
    pytest.skip("needs a server that is not run here")


@pytest.fixture
def backend_factory():
    return lambda kind, *args, **kwargs: kind(*args, **kwargs)


@pytest.fixture
async def raw_backend(tmp_path):
    backend = ShaleBackend(tmp_path / "cache")
    await backend.init()
    # The first set of a new cache takes longer than the tests' shortest ages.
    await backend.set("first", 1)
    await backend.clear()
    yield backend, None
    await backend.close()


@pytest.fixture
def target(raw_backend):
    """The backend, with its calls recorded."""
    backend, _ = raw_backend
    backend.__class__ = Recorded
    for name in dir(ShaleBackend):
        if not name.startswith("_") and callable(getattr(ShaleBackend, name)):
            setattr(backend, name, Mock(wraps=getattr(backend, name)))
    return backend


@pytest.fixture
async def cache(raw_backend):
    cache = Cache(name="shale")
    cache._add_backend(raw_backend[0])
    return cache
