"""Gives diskcache's own tests Shale's modules for those of diskcache."""

import os
import sys

import shale.adapters.diskcache as dc
from shale.adapters.diskcache import _cache, _disk, _fanout, _persistent, _recipes
from shale.adapters.diskcache._django import DjangoCache as Plain

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"


class Pickling(Plain):
    """With the setting of a user who wants to store objects of every type."""

    def __init__(self, directory, params):
        super().__init__(directory, {**params, "OPTIONS": {"disk": dc.PickleDisk, **params.get("OPTIONS", {})}})


_cache.ENOVAL = _disk.ENOVAL
dc.core = _cache
dc.DjangoCache = Pickling if "SHALE_PICKLES" in os.environ else Plain
sys.modules["diskcache"] = dc
for name, module in (("core", _cache), ("fanout", _fanout), ("persistent", _persistent), ("recipes", _recipes)):
    sys.modules[f"diskcache.{name}"] = module


def pytest_sessionstart(session):
    import django
    from django.test.utils import setup_databases, setup_test_environment

    django.setup()
    setup_test_environment()
    setup_databases(verbosity=0, interactive=False)
