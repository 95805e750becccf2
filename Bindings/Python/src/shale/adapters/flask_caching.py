"""A cache for Flask-Caching: ``pip install shale-cache[cachelib] Flask-Caching``, and the settings

    CACHE_TYPE = "shale.adapters.flask_caching.shale_cache"
    CACHE_DIR = "/var/cache/app"
    CACHE_OPTIONS = {"capacity": "1GiB"}  # those of ``shale.Cache``

It is a function, because Flask-Caching uses ``factory`` only of its own classes, and outside of
``shale.adapters.cachelib``, because it passes no settings to a name with ``cachelib`` in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .cachelib import ShaleCache


def shale_cache(
    _app: Any, config: Mapping[str, Any], arguments: list[Any], options: dict[str, Any]
) -> ShaleCache:
    """Flask-Caching calls this; ``options`` has the default timeout."""
    return ShaleCache(config["CACHE_DIR"], *arguments, **options)
