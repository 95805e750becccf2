"""cachelib's tests of all caches, on Shale's."""

import pytest
from cachelib.serializers import SimpleSerializer
from clear import ClearTests
from common import CommonTests
from has import HasTests
from serializer import SerializerTests
from shale.adapters.cachelib import ShaleCache


class Pickling(ShaleCache):
    serializer = SimpleSerializer()


@pytest.fixture(autouse=True, params=[ShaleCache, Pickling])
def cache_factory(request, tmp_path):
    request.cls.cache_factory = lambda _self, *args, **kwargs: request.param(tmp_path / "cache", *args, **kwargs)


class TestShale(CommonTests, ClearTests, HasTests, SerializerTests):
    pass
