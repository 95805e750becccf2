"""A cache backend for Django: ``pip install shale-cache[django]``.

CACHES = {
    "default": {
        "BACKEND": "shale.adapters.django.ShaleCache",
        "LOCATION": "/var/cache/app",
        "OPTIONS": {"capacity": "1GiB"},
    }
}

With "shale.adapters.django" in ``INSTALLED_APPS``, Django's system checks refuse settings that need
pickle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http.client import responses
from http.cookies import CookieError, Morsel
from typing import Any, Final

from django import http
from django.conf import settings
from django.core import checks
from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.http.response import ResponseHeaders
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString

from .._native.errors import InvalidError
from .._native.units import NEVER
from ._forms import REFUSED, FormSerializer, Refusals, exactly, is_markup
from ._opening import opened

_RESPONSES: Final[dict[str, Any]] = {
    kind.__name__: kind
    for kind in (
        http.HttpResponse, http.JsonResponse, http.HttpResponseRedirect,
        http.HttpResponsePermanentRedirect, http.HttpResponseNotModified,
        http.HttpResponseBadRequest, http.HttpResponseForbidden, http.HttpResponseNotFound,
        http.HttpResponseNotAllowed, http.HttpResponseGone, http.HttpResponseServerError,
    )
}  # fmt: skip
_LETTERS: Final = re.compile(r"[A-Za-z_.]{0,16}")  # all keys of sessions begin with the same


class DjangoSerializer(FormSerializer):
    """Stores what Django itself caches, without pickle: Shale's types, ``SafeString``, and
    responses.

    A response comes back with its status, reason, charset, headers, cookies and content, and with
    its other attributes that are str, int, float, bool, None or collections of these, such as those
    that decorators set for middleware. Its class is the nearest one of ``django.http``. Streams and
    templates that are not rendered are refused.
    """

    name = "django"

    def form(self, value: Any) -> tuple[Any, ...] | None:
        if is_markup(value):
            return "safe", str.__str__(value)
        if not isinstance(value, http.response.HttpResponseBase):
            return None
        if getattr(value, "streaming", False):
            raise TypeError("the response is a stream")
        if not getattr(value, "is_rendered", True):
            raise TypeError("the response is not rendered")
        kind = next((each for each in type(value).__mro__ if each in _RESPONSES.values()), None)
        if kind is None:
            return None
        state = {name: part for name, part in vars(value).items() if _keeps(kind, name, part)}
        # A class may have its own, and an instance one of another type.
        status, reason = value.status_code, value.reason_phrase
        if not isinstance(status, int) or not 100 <= status <= 599:
            raise TypeError(f"the status is {status!r}")
        state["status_code"] = int(status)
        if reason != responses.get(status, "Unknown Status Code"):
            state["_reason_phrase"] = str(reason)
        cookies = [
            (each.key, each.value, each.coded_value, {k: v for k, v in each.items() if v != ""})
            for each in value.cookies.values()
        ]
        headers = [list(pair) for pair in value.headers.items()]
        return "response", kind.__name__, state, headers, cookies, value.content

    def value(self, tag: str, *parts: Any) -> Any:
        if tag == "safe":
            (text,) = parts
            return SafeString(exactly(str, text))
        if tag != "response":
            raise ValueError(f"no form {tag!r}")
        name, state, headers, cookies, content = parts
        kind = _RESPONSES[name]
        response = kind.__new__(kind)
        http.HttpResponse.__init__(response, status=state.get("status_code"))
        if not all(_keeps(kind, each, part) for each, part in state.items()):
            raise ValueError("a response has an attribute that is never stored")
        vars(response).update(state)
        response.headers = ResponseHeaders({})
        for header, text in headers:
            response.headers[exactly(str, header)] = exactly(str, text)
        try:
            for key, real, coded, more in cookies:
                morsel: Any = Morsel()
                morsel.set(key, real, coded)
                morsel.update(more)
                response.cookies[key] = morsel
        except CookieError as error:
            raise ValueError("no cookie") from error
        response.content = exactly(bytes, content)
        return response


def _keeps(kind: type[Any], name: str, part: Any) -> bool:
    """Whether this attribute of a response is stored."""
    if name == "status_code":
        return type(part) is int
    own = hasattr(kind, name) or name in ("headers", "cookies", "_container", "_resource_closers")
    return not own and _is_plain(part)


def _is_plain(part: Any) -> bool:
    if type(part) in (list, tuple, set):
        return all(map(_is_plain, part))
    if type(part) is dict:
        return all(map(_is_plain, part)) and all(map(_is_plain, part.values()))
    return part is None or isinstance(part, (str, int, float))


class Django(BaseCache):
    """The common part of the backends: a value that cannot be stored is logged and not cached."""

    without_pickle = False
    """Whether it stores nothing but the values of `DjangoSerializer`."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__(params)
        self._refusals = Refusals("Store what you need of it instead")

    def refuse(self, key: Any, value: Any, error: Exception) -> None:
        group = _LETTERS.match(str(key))
        self._refusals.log(str(key), value, error, group.group() if group else "")


def check_sessions(app_configs: Any, **_kwargs: Any) -> list[Any]:
    """Sessions that live only in a cache without pickle, and may hold any object."""
    alias = settings.SESSION_CACHE_ALIAS
    engine = settings.SESSION_ENGINE
    if engine != "django.contrib.sessions.backends.cache" or alias not in settings.CACHES:
        return []
    cache = caches[alias]
    if not (isinstance(cache, Django) and cache.without_pickle):
        return []
    try:
        import_string(settings.SESSION_SERIALIZER)().dumps({"key": check_sessions})
    except Exception:
        return []  # as it should be: a function is no value of a session
    return [
        checks.Error(
            f"SESSION_SERIALIZER = {settings.SESSION_SERIALIZER!r} lets sessions hold objects of "
            f"any type, but the cache {alias!r}, which keeps them, does not store such objects: "
            f"the sessions would be lost.",
            hint="Use django.contrib.sessions.serializers.JSONSerializer, or set "
            '"serializer": "shale.PickleSerializer" in the OPTIONS of the cache.',
            id="shale.E001",
        )
    ]


checks.register(check_sessions, checks.Tags.caches)


class ShaleCache(Django):
    """One directory, for all threads and processes of a site.

    LOCATION is the directory, created if there is none. OPTIONS are those of ``shale.Cache``, and
    Django's ``MAX_ENTRIES`` and ``CULL_FREQUENCY``: when a value is set and there are
    ``MAX_ENTRIES``, one in ``CULL_FREQUENCY`` of them (3) is evicted, or all if it is 0. Without
    ``MAX_ENTRIES`` only the capacity limits the cache.

    ``DjangoSerializer`` stores values of types that Shale cannot store. A value that it refuses is
    logged (logger "shale"), once for its type, and not cached: after ``set`` the key has no value,
    ``add`` returns what it would for another value, and ``set_many`` returns the key. For objects
    of any type, ``"serializer": "shale.PickleSerializer"`` (a class by its name, or an object):
    unpickling runs code that the bytes choose; see ``shale.PickleSerializer``.

    All threads of a process share one open cache; ``close``, which Django calls after each request,
    does not close it. ``incr`` and ``add`` are atomic; ``incr`` does not change the age.
    """

    def __init__(self, location: Any, params: Mapping[str, Any]) -> None:
        super().__init__(params)
        options = dict(params.get("OPTIONS", {}))
        self._culls = "MAX_ENTRIES" in {**params, **options}
        for name in ("MAX_ENTRIES", "CULL_FREQUENCY"):
            options.pop(name, None)
        serializer = options.get("serializer") or DjangoSerializer()
        if isinstance(serializer, str):
            serializer = import_string(serializer)()
        self.without_pickle = isinstance(serializer, DjangoSerializer)
        options["serializer"] = serializer
        self._cache = opened(location, **{"accept_capacity": True, **options})

    def _cull(self) -> None:
        """Makes room, as in Django's own backends."""
        if self._culls and self._cache.stats().entries >= self._max_entries:
            self._cache.purge()
            count = self._cache.stats().entries
            if self._cull_frequency == 0:
                self._cache.clear()
            elif count >= self._max_entries:
                self._cache.evict(max(0, count // self._cull_frequency))

    def _key(self, key: Any, version: int | None) -> str:
        return str(self.make_and_validate_key(key, version=version))

    def _age(self, timeout: Any) -> float:
        if timeout is DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        return NEVER if timeout is None else max(0.0, float(timeout))

    def add(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        """Stores a value if there is none. Whether there was none. Atomic."""
        name = self._key(key, version)
        age = self._age(timeout)
        self._cull()
        try:
            return self._cache.add(name, value, max_age=age)
        except REFUSED as error:
            # Django's sessions take False for a key that is in use, and try 10,000 others.
            self.refuse(key, value, error)
            return name not in self._cache

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """The value, or ``default``."""
        return self._cache.get(self._key(key, version), default)

    def set(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        """Stores a value. timeout: seconds, None: no limit."""
        self._set(key, value, timeout, version)

    def _set(self, key: Any, value: Any, timeout: Any, version: int | None) -> bool:
        name = self._key(key, version)
        age = self._age(timeout)
        self._cull()
        try:
            self._cache.set(name, value, max_age=age)
            return True
        except REFUSED as error:
            self.refuse(key, value, error)
            self._cache.remove(name)
            return False

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Gives an entry a new age. False if there is none."""
        return self._cache.touch(self._key(key, version), self._age(timeout))

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Removes an entry. Whether there was one."""
        return self._cache.remove(self._key(key, version))

    def has_key(self, key: Any, version: int | None = None) -> bool:
        """Whether ``get`` would find it."""
        return self._key(key, version) in self._cache

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Adds to an int of 64 bits. Atomic. ValueError for a missing key, TypeError for a value
        that is not an int."""
        try:
            number = self._cache.incr(self._key(key, version), delta, create=False)
        except InvalidError as error:
            raise TypeError(f"{key!r}: {error}") from error
        if number is None:
            raise ValueError(f"Key {key!r} not found")
        return number

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        """The existing values, by key."""
        wanted = {self._key(key, version): key for key in keys}
        found = self._cache.get_many(wanted)
        return {wanted[key]: value for key, value in found.items()}

    def set_many(
        self,
        data: Mapping[Any, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> list[Any]:
        """Stores many values. Returns the keys of those that cannot be stored."""
        if not self._culls:
            items = {self._key(key, version): value for key, value in data.items()}
            age = self._age(timeout)
            try:
                self._cache.set_many(items, max_age=age)
                return []
            except REFUSED:
                pass  # one by one
        return [key for key, value in data.items() if not self._set(key, value, timeout, version)]

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        """Removes many entries."""
        self._cache.remove_many([self._key(key, version) for key in keys])

    def clear(self) -> None:
        """Removes all entries, of every version and prefix."""
        self._cache.clear()
