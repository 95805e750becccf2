"""A small site of Django, with the settings of the guide."""

from __future__ import annotations

import asyncio
import datetime
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import django
import pytest
import shale
from damaged_forms import check_damaged
from django import http
from django.conf import settings
from django.core import checks
from django.core.cache import cache
from django.http.response import HttpResponseBase
from django.template import engines
from django.template.response import SimpleTemplateResponse, TemplateResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import path
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import cache_page
from django.views.decorators.clickjacking import xframe_options_exempt
from django.views.decorators.vary import vary_on_headers
from markupsafe import Markup
from pages import PAGES, run
from shale.adapters.django import DjangoSerializer

if not settings.configured:
    settings.configure(SECRET_KEY="of a test")  # the decorators below read them
django.setup()

SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
CACHES = {
    "shale": "shale.adapters.django.ShaleCache",
    "diskcache": "shale.adapters.diskcache.DjangoCache",
}

calls: Counter[str] = Counter()


class Thing:
    """Has no form."""


class OutOfRange(http.HttpResponse):
    status_code = 700


@cache_page(60)
@xframe_options_exempt
@vary_on_headers("X-Kind")
def page(request: http.HttpRequest) -> http.HttpResponse:
    calls["page"] += 1
    response = http.HttpResponse(f"kind {request.headers.get('X-Kind')}", reason="Fine", charset="latin-1")
    response["X-One"] = "1"
    response.set_cookie("a", "1; 2", max_age=60, httponly=True, samesite="Lax")
    response.delete_cookie("b")
    return response


@cache_page(60)
def rendered(request: http.HttpRequest) -> http.HttpResponse:
    calls["rendered"] += 1
    template = engines["django"].from_string("<b>{{ text }}</b>")
    return TemplateResponse(request, template, {"text": "&"})


@cache_page(60)
def streamed(_request: http.HttpRequest) -> http.StreamingHttpResponse:
    calls["streamed"] += 1
    return http.StreamingHttpResponse(["a", "b"])


@cache_page(60)
def large(_request: http.HttpRequest) -> http.HttpResponse:
    calls["large"] += 1
    return http.HttpResponse(bytes(5_000_000))


def fragment(request: http.HttpRequest) -> http.HttpResponse:
    text = "{% load cache %}{% cache 60 name kind %}<b>{{ body }}</b>{% endcache %}"

    def body() -> str:
        calls["body"] += 1
        return "&"

    return http.HttpResponse(engines["django"].from_string(text).render({"body": body, "kind": request.GET["kind"]}))


def visits(request: Any) -> http.HttpResponse:
    for change in {"cycle_key", "flush"} & request.GET.keys():
        getattr(request.session, change)()
    request.session["visits"] = request.session.get("visits", 0) + 1
    return http.HttpResponse(str(request.session["visits"]))


def thing(request: Any) -> http.HttpResponse:
    request.session["thing"] = Thing()
    return http.HttpResponse("done")


async def counted(_request: http.HttpRequest) -> http.HttpResponse:
    await cache.aadd("count", 0)
    await cache.aset_many({"text": mark_safe("<b>"), "thing": Thing()})
    number = await cache.aincr("count")
    return http.JsonResponse({"count": number, "found": sorted(await cache.aget_many(["text", "thing"]))})


def plain(_request: http.HttpRequest) -> http.HttpResponse:
    calls["plain"] += 1
    return http.JsonResponse({"a": 1})


urlpatterns = [
    path(f"{view.__name__}/", view) for view in (page, rendered, streamed, large, fragment, visits, thing, counted)
]
urlpatterns.append(path("plain/", plain))


@pytest.fixture(params=CACHES)
def site(request: pytest.FixtureRequest, directory: Path) -> Iterator[None]:
    """With either cache, as the guide sets it, and nothing else."""
    calls.clear()
    _, names = run(PAGES / "web-framework.md", directory, "CACHES")
    backends = names["CACHES"]
    if request.param == "diskcache":
        backends["default"] |= {"BACKEND": CACHES["diskcache"], "OPTIONS": {}}
    with override_settings(
        CACHES=backends,
        INSTALLED_APPS=names["INSTALLED_APPS"],
        ROOT_URLCONF=__name__,
        MIDDLEWARE=["django.middleware.clickjacking.XFrameOptionsMiddleware", SESSIONS],
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
        SESSION_ENGINE="django.contrib.sessions.backends.cache",
        ALLOWED_HOSTS=["testserver"],
    ):
        yield


def refused(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "shale"]


def same(first: Any, second: Any) -> None:
    assert (second.status_code, second.reason_phrase, second.charset) == (
        first.status_code,
        first.reason_phrase,
        first.charset,
    )
    assert second.content == first.content
    assert {**second.headers, "Age": 0} == {**first.headers, "Age": 0}  # Django adds it to a page from the cache
    assert second.cookies.output() == first.cookies.output()


@pytest.mark.usefixtures("site")
class TestSite:
    def test_a_page(self) -> None:
        first, second = (Client().get("/page/", headers={"x-kind": "a"}) for _ in range(2))
        assert calls["page"] == 1
        same(first, second)
        assert second.content == b"kind a"
        assert second.reason_phrase == "Fine"
        assert second.cookies["b"]["max-age"] == 0
        assert Client().get("/page/", headers={"x-kind": "b"}).content == b"kind b"
        assert calls["page"] == 2
        assert "X-Frame-Options" not in second.headers  # the decorator's mark was stored, too

    def test_a_template_is_stored_after_it_is_rendered(self) -> None:
        first, second = (Client().get("/rendered/") for _ in range(2))
        assert calls["rendered"] == 1
        same(first, second)
        assert second.content == b"<b>&amp;</b>"

    def test_a_stream_is_not_cached(self) -> None:
        for _ in range(2):
            assert b"".join(Client().get("/streamed/").streaming_content) == b"ab"
        assert calls["streamed"] == 2

    def test_fragments(self) -> None:
        texts = [Client().get(f"/fragment/?kind={kind}").content for kind in ("a", "a", "b")]
        assert texts == [b"<b>&amp;</b>"] * 3
        assert calls["body"] == 2

    def test_the_whole_site(self) -> None:
        middleware = [
            "django.middleware.cache.UpdateCacheMiddleware",
            "django.middleware.common.CommonMiddleware",
            "django.middleware.cache.FetchFromCacheMiddleware",
        ]
        with override_settings(MIDDLEWARE=middleware):
            first, second = (Client().get("/plain/") for _ in range(2))
        assert calls["plain"] == 1
        same(first, second)
        assert second.json() == {"a": 1}
        assert isinstance(second, http.JsonResponse)

    def test_a_conditional_request(self) -> None:
        with override_settings(MIDDLEWARE=["django.middleware.http.ConditionalGetMiddleware"]):
            etag = Client().get("/rendered/")["ETag"]
            assert Client().get("/rendered/", headers={"if-none-match": etag}).status_code == 304
        assert calls["rendered"] == 1

    def test_sessions(self) -> None:
        client, other = Client(), Client()
        assert [client.get("/visits/").content for _ in range(3)] == [b"1", b"2", b"3"]
        assert other.get("/visits/").content == b"1"
        before = client.cookies["sessionid"].value
        client.get("/visits/?cycle_key")
        assert client.cookies["sessionid"].value != before
        assert client.get("/visits/").content == b"5"
        session = client.session
        session["when"] = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        session.save()
        assert client.session["when"].year == 2020
        assert client.get("/visits/?flush").content == b"1"

    def test_a_session_with_a_thing_is_lost_and_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        client = Client()
        assert client.get("/thing/").content == b"done"  # a new session
        assert client.get("/visits/").content == b"1"
        assert client.get("/thing/").content == b"done"  # an old one
        assert client.get("/visits/").content == b"1"
        messages = refused(caplog)
        assert messages
        for part in ("builtins.dict", "django.contrib.sessions.cache", "test_django.Thing", "PickleSerializer"):
            assert part in messages[0]
        assert len(messages) == len({each.partition("under the key")[2][:35] for each in messages})

    def test_async_views(self, caplog: pytest.LogCaptureFixture) -> None:
        async def main() -> list[Any]:
            return [(await AsyncClient().get("/counted/")).json() for _ in range(2)]

        assert asyncio.run(main()) == [{"count": number, "found": ["text"]} for number in (1, 2)]
        assert len(refused(caplog)) == 1

    @pytest.mark.parametrize(
        "value",
        ["text", "", b"bytes", 5, 2**70, 1.5, True, None, [1, "a"], (1, "a"), {"a": (1, 2)}, {("a", 1): {2}},
         datetime.date(2020, 1, 1), datetime.timedelta(1)],
    )  # fmt: skip
    def test_values(self, value: Any) -> None:
        cache.set("k", value)
        found = cache.get("k", "a miss")
        assert (found, type(found)) == (value, type(value))

    def test_safe_strings_stay_safe(self) -> None:
        tree = {"a": [mark_safe("<b>"), "<i>", (mark_safe("<u>"), 1)], mark_safe("k"): {mark_safe("s")}}
        cache.set("k", tree)
        found = cache.get("k")
        assert found == tree
        assert [type(each) for each in found["a"][:2]] == [SafeString, str]
        assert type(found["a"][2][0]) is SafeString
        assert {type(each) for each in (*found, *found["k"])} == {str, SafeString}
        assert cache.get_or_set("l", mark_safe("<b>")) == "<b>"
        assert type(cache.get("l")) is SafeString

    def test_markup_of_jinja_stays_safe(self) -> None:
        cache.set("k", [Markup("<b>")])
        (found,) = cache.get("k")
        assert (found, type(found)) == ("<b>", SafeString)

    def test_what_is_too_large_is_not_cached(self, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
        backend: dict[str, Any] = {"BACKEND": CACHES["shale"], "LOCATION": directory / "small"}
        backend["OPTIONS"] = {"capacity": "16MiB"}
        with override_settings(CACHES={"default": backend}):
            cache.set("large", 1)
            cache.set_many({"large": bytes(5_000_000), "k": 1})
            assert cache.get_many(["large", "k"]) == {"k": 1}
            assert cache.add("large", bytes(5_000_000))
            for _ in range(2):
                assert len(Client().get("/large/").content) == 5_000_000
        assert calls["large"] == 2
        assert sum("HttpResponse" in each for each in refused(caplog)) == 1

    def test_numbers_only(self) -> None:
        cache.set("k", mark_safe("1"))
        with pytest.raises(TypeError):
            cache.incr("k")
        cache.set("k", Thing())
        with pytest.raises(ValueError, match="not found"):
            cache.incr("k")

    @pytest.mark.parametrize(
        ("value", "why"),
        [
            (Thing(), "test_django.Thing"),
            ([{"a": (Thing(),)}], "test_django.Thing"),
            (gettext_lazy("text"), "__proxy__"),
            (http.StreamingHttpResponse([b"a"]), "the response is a stream"),
            (http.FileResponse(b"a"), "the response is a stream"),
            (SimpleTemplateResponse("name"), "the response is not rendered"),
            (HttpResponseBase(), "HttpResponseBase"),
            (OutOfRange("text"), "the status is 700"),
        ],
    )  # fmt: skip
    def test_what_has_no_form(self, value: Any, why: str, caplog: pytest.LogCaptureFixture) -> None:
        cache.set("old", 1)
        cache.set("old", value)
        assert cache.get("old") is None
        assert cache.set_many({"a": 1, "b": value}) == ["b"]
        assert cache.get_many(["a", "b"]) == {"a": 1}
        assert cache.add("b", value) is True  # as if it were evicted at once
        assert cache.add("a", value) is False
        assert cache.get("a") == 1
        assert cache.get_or_set("b", value) is value
        messages = refused(caplog)
        assert all(why in each for each in messages)
        for key in ("old", "b"):
            assert sum(f"the key {key!r}" in each for each in messages) == 1

    def test_a_nest_without_end(self, caplog: pytest.LogCaptureFixture) -> None:
        nest: list[Any] = [mark_safe("a")]
        nest.append(nest)
        cache.set("k", nest)
        assert cache.get("k") is None
        assert "contains itself" in refused(caplog)[0]

    def test_system_checks(self, directory: Path) -> None:
        assert checks.run_checks() == []
        with override_settings(SESSION_SERIALIZER=f"{__name__}.Pickles"):
            (error,) = checks.run_checks()
            assert (error.id, error.level) == ("shale.E001", checks.ERROR)
            for part in ("test_django.Pickles", "'default'", "would be lost"):
                assert part in error.msg
            with override_settings(SESSION_ENGINE="django.contrib.sessions.backends.cached_db"):
                assert checks.run_checks() == []
        pickles = {"BACKEND": CACHES["shale"], "LOCATION": directory / "pickles"}
        pickles["OPTIONS"] = {"serializer": "shale.PickleSerializer"}
        with override_settings(SESSION_SERIALIZER=f"{__name__}.Pickles", CACHES={"default": pickles}):
            assert checks.run_checks() == []


class Pickles:
    """As the serializer of sessions that older releases of Django had."""

    def dumps(self, value: Any) -> bytes:
        return shale.PickleSerializer().dumps(value)


MANAGE = """
import sys
from django.conf import settings
from django.core.management import execute_from_command_line
settings.configure(
    CACHES={"default": {"BACKEND": "shale.adapters.django.ShaleCache", "LOCATION": sys.argv.pop()}},
    INSTALLED_APPS=["shale.adapters.django"],
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    SESSION_SERIALIZER="test_django.Pickles",
)
execute_from_command_line(sys.argv)
"""


def test_manage_py_refuses_to_start(directory: Path) -> None:
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", MANAGE, "check", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 1
    assert "(shale.E001) SESSION_SERIALIZER" in done.stderr


class Own(http.HttpResponseNotFound):
    """A class of the site's own."""


def deleting(response: Any) -> Any:
    response.delete_cookie("a", samesite="Strict")
    response.set_cookie("b", "x y", secure=True, domain="example.org", path="/p")
    response.own = {"attribute": ["a", HTTPStatus.OK, {None}], "empty": {}}
    return response


class Gone(http.HttpResponse):
    status_code = HTTPStatus.GONE
    reason_phrase = "Own"


def changed(**attributes: Any) -> Any:
    response = http.HttpResponse("body")
    vars(response).update(attributes)
    return response


RESPONSES: list[tuple[Callable[[], Any], type[Any]]] = [
    (lambda: deleting(http.HttpResponse("body \N{SNOWMAN}")), http.HttpResponse),
    (lambda: http.HttpResponse(b"\xff", content_type="image/png", status=299, reason="Own"), http.HttpResponse),
    (lambda: http.HttpResponse(iter(["a", "b"])), http.HttpResponse),
    (lambda: http.HttpResponse("\xe4", charset="latin-1"), http.HttpResponse),
    (lambda: http.JsonResponse([1], safe=False), http.JsonResponse),
    (lambda: http.HttpResponseRedirect("/other"), http.HttpResponseRedirect),
    (lambda: http.HttpResponsePermanentRedirect("/other"), http.HttpResponsePermanentRedirect),
    (http.HttpResponseNotModified, http.HttpResponseNotModified),
    (lambda: http.HttpResponseNotAllowed(["GET"]), http.HttpResponseNotAllowed),
    (lambda: Own("none"), http.HttpResponseNotFound),
    (Gone, http.HttpResponse),
    (lambda: changed(status_code=HTTPStatus.NOT_FOUND), http.HttpResponse),
    (lambda: changed(_reason_phrase=gettext_lazy("Own")), http.HttpResponse),
    (lambda: changed(things=[Thing()]), http.HttpResponse),
]


@pytest.mark.parametrize(("make", "kind"), RESPONSES)
def test_a_response(make: Callable[[], Any], kind: type[Any]) -> None:
    serializer = DjangoSerializer()
    first = make()
    second = serializer.loads(serializer.dumps(first))
    same(first, second)
    assert type(second) is kind
    assert getattr(second, "own", None) == getattr(first, "own", None)
    assert second.closed == first.closed
    if kind is not http.HttpResponseNotModified:
        assert list(second.headers.items()) == list(first.headers.items())
        second.write("more")
        assert second.content == first.content + b"more"


def test_a_redirect_has_its_target() -> None:
    serializer = DjangoSerializer()
    assert serializer.loads(serializer.dumps(http.HttpResponseRedirect("/other"))).url == "/other"


def test_a_rendered_template() -> None:
    serializer = DjangoSerializer()
    with override_settings(TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}]):
        template = engines["django"].from_string("{{ a }}")
        first = TemplateResponse(RequestFactory().get("/"), template, {"a": 1}).render()
    second = serializer.loads(serializer.dumps(first))
    same(first, second)
    assert type(second) is http.HttpResponse


def test_bytes_are_checked() -> None:
    serializer = DjangoSerializer()
    data = serializer.dumps([deleting(http.HttpResponse("body")), mark_safe("a")])
    check_damaged(serializer, data)


def form(**more: Any) -> tuple[Any, ...]:
    parts = {"name": "HttpResponse", "state": {}, "headers": [], "cookies": [], "content": b""}
    return ("response", *(parts | more).values())


@pytest.mark.parametrize(
    "wrong",
    [
        form(name="StreamingHttpResponse"), form(name=[]), form(state=[]), form(state={"status_code": 2000}),
        form(state={"status_code": "200"}), form(state={"headers": "a"}), form(state={"_container": None}),
        form(state={"close": None}), form(headers=[("a", "b\r\nc: d")]), form(headers=[("a", 1)]), form(content="text"),
        form(cookies=[("a b", "c", "c", {})]), form(cookies=[("a", "c", "c", {"unknown": 1})]), form(more=1),
        ("safe", b"a"), ("safe",), ("unknown",), (1,), ([],),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("site")
def test_wrong_parts_are_a_miss(wrong: Any, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Writer(DjangoSerializer):
        def form(self, value: Any) -> Any:
            return wrong if type(value) is Thing else None

    own = directory / "own"
    with shale.Cache(own, serializer=Writer()) as writer:
        writer.set("k", Thing())
    with shale.Cache(own, serializer=DjangoSerializer()) as reader:
        assert reader.get("k", "a miss") == "a miss"
    assert "cannot be read, and is a miss" in refused(caplog)[0]


class TestCull:
    def make(self, directory: Path, **options: Any) -> Any:
        from shale.adapters.django import ShaleCache

        return ShaleCache(str(directory), {"OPTIONS": options})

    def counts(self, cache: Any, sets: int) -> list[int]:
        """The number of entries after each set."""
        found = []
        for number in range(sets):
            cache.set(str(number), number)
            assert cache.get(str(number)) == number
            found.append(cache._cache.stats().entries)
        return found

    @pytest.mark.parametrize(
        ("frequency", "counts"),
        [(3, [1, 2, 3, 4, 5, 6, 5, 6, 5]), (2, [1, 2, 3, 4, 5, 6, 4, 5, 6]), (0, [1, 2, 3, 4, 5, 6, 1, 2, 3])],
    )
    def test_a_fraction(self, directory: Path, frequency: int, counts: list[int]) -> None:
        assert self.counts(self.make(directory, MAX_ENTRIES=6, CULL_FREQUENCY=frequency), 9) == counts

    def test_expired_entries_go_first(self, directory: Path) -> None:
        cache = self.make(directory, MAX_ENTRIES=6)
        cache.set_many(dict.fromkeys("abc", 1), timeout=0)
        self.counts(cache, 6)
        assert sorted(cache.get_many(list("012345"))) == list("012345")

    def test_batches(self, directory: Path) -> None:
        cache = self.make(directory, MAX_ENTRIES=30)
        assert cache.set_many({str(number): number for number in range(100)}) == []
        assert cache._cache.stats().entries <= 30

    def test_no_limit(self, directory: Path) -> None:
        cache = self.make(directory, CULL_FREQUENCY=2)
        assert self.counts(cache, 400)[-1] == 400


def test_a_negative_frequency_of_culling_evicts_nothing(tmp_path: Path) -> None:
    from shale.adapters.django import ShaleCache

    params = {"OPTIONS": {"MAX_ENTRIES": 2, "CULL_FREQUENCY": -1}}
    culled = ShaleCache(str(tmp_path / "culled"), params)
    for i in range(4):
        culled.set(f"key {i}", i)
    assert culled.get("key 3") == 3
