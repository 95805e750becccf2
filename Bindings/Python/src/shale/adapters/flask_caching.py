"""A cache for Flask-Caching: ``pip install shale-cache[flask-caching]``, and the settings

    CACHE_TYPE = "shale.adapters.flask_caching.shale_cache"
    CACHE_DIR = "/var/cache/app"
    CACHE_OPTIONS = {"capacity": "1GiB"}  # those of ``shale.Cache``

It is outside of ``shale.adapters.cachelib``, because Flask-Caching passes no settings to a name
with ``cachelib`` in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flask import Response, has_request_context, request
from markupsafe import Markup
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, default_exceptions
from werkzeug.wrappers import Response as AnyResponse

from . import cachelib
from ._forms import REFUSED, FormSerializer, Refusals, exactly, is_markup

# What ``abort`` raises for a status; None: for a response.
_EXCEPTIONS: Final[dict[int | None, Any]] = {**default_exceptions, None: HTTPException}


class FlaskSerializer(FormSerializer):
    """Stores what views and templates return, without pickle: Shale's types, ``Markup``,
    ``Headers``, the exceptions of ``abort``, and responses, which come back as ``flask.Response``
    with the same status, headers (cookies are headers) and body. It refuses streams.
    """

    name = "flask"

    def form(self, value: Any) -> tuple[Any, ...] | None:
        kind = type(value)
        if is_markup(value):
            return "markup", str.__str__(value)
        if kind is Headers:
            return "headers", [list(pair) for pair in value]
        if isinstance(value, AnyResponse):
            if value.direct_passthrough or not value.is_sequence:
                raise TypeError("the response is a stream")
            headers = [list(pair) for pair in value.headers]
            return "response", value.status, headers, value.get_data()
        if isinstance(value, HTTPException) and kind is _EXCEPTIONS.get(value.code):
            response = value.response
            if any(vars(value)[name] for name in vars(value).keys() - {"description", "response"}):
                return None
            form = response and self.form(response)
            if response is not None and form is None:
                return None
            return "error", value.code, self._plain(value.description), form
        return None

    def value(self, tag: str, *parts: Any) -> Any:
        if tag == "markup":
            (text,) = parts
            return Markup(exactly(str, text))
        if tag == "headers":
            (pairs,) = parts
            return Headers([(exactly(str, name), exactly(str, text)) for name, text in pairs])
        if tag == "response":
            status, pairs, body = parts
            response = Response(exactly(bytes, body), exactly(str, status))
            response.headers = self.value("headers", pairs)
            return response
        if tag == "error":
            code, description, form = parts
            response = form and exactly(Response, self.value(*form))
            return _EXCEPTIONS[code](self._restored(description), response)
        raise ValueError(f"no form {tag!r}")


class ShaleCache(cachelib.ShaleCache):
    """The cache of an application. A value that cannot be stored without pickle is logged and not
    cached."""

    def __init__(self, directory: Any, *arguments: Any, **options: Any) -> None:
        options.setdefault("serializer", FlaskSerializer())
        super().__init__(directory, *arguments, **options)
        self._refusals = Refusals("Do not cache it, or return another type")

    def set(self, key: str, value: Any, timeout: cachelib.Timeout = None) -> bool:
        """Stores a value. False if it cannot be stored; the key then has none."""
        try:
            return super().set(key, value, timeout)
        except REFUSED as error:
            self._refuse(key, value, error)
            self.delete(key)
            return False

    def add(self, key: str, value: Any, timeout: cachelib.Timeout = None) -> bool:
        """Stores a value if there is none. Whether it did."""
        try:
            return super().add(key, value, timeout)
        except REFUSED as error:
            self._refuse(key, value, error)
            return False

    def set_many(self, mapping: Mapping[str, Any], timeout: cachelib.Timeout = None) -> list[str]:
        """Stores many values. Returns the keys of those that it stored."""
        return [key for key, value in mapping.items() if self.set(key, value, timeout)]

    def has(self, key: str) -> bool:
        """Whether ``get`` would find it: Flask-Caching then takes a None as the value."""
        return self._cache.get(key, self, peek=True) is not self

    def _refuse(self, key: str, value: Any, error: Exception) -> None:
        view = (has_request_context() and request.endpoint) or ""
        self._refusals.log(key, value, error, view, f" in the view {view!r}" if view else "")


def shale_cache(
    _app: Any, config: Mapping[str, Any], arguments: list[Any], options: dict[str, Any]
) -> ShaleCache:
    """Flask-Caching calls this; ``options`` has the default timeout."""
    if not config["CACHE_DIR"]:
        raise ValueError("CACHE_DIR is not set: it names the directory of the cache")
    return ShaleCache(config["CACHE_DIR"], *arguments, **options)
