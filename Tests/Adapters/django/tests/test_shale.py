"""Django's tests of all cache backends, on Shale's."""

import tempfile

from cache.tests import BaseCacheTests, caches_setting_for_tests
from django.core.cache import cache
from django.test import TestCase, override_settings

DIRECTORY = tempfile.mkdtemp()


@override_settings(
    CACHES=caches_setting_for_tests(
        BACKEND="shale.adapters.django.ShaleCache",
        LOCATION=DIRECTORY,
        exclude={"cull", "zero_cull"},
        OPTIONS={"serializer": "shale.PickleSerializer"},
    )
)
class TestShale(BaseCacheTests, TestCase):
    def setUp(self):
        super().setUp()
        cache.clear()
