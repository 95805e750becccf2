"""Serializers for the values of other libraries: each reads only the given types."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import logging
import pickle
import sys
import uuid
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SMALL

import shale
from shale import serializers
from shale._data.values import LOADS_ERRORS


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.datetime
    color: Color
    id: uuid.UUID
    tags: set[int]


@dataclasses.dataclass
class Other:
    x: int


class Derived(Point):
    pass


POINT = Point(
    1,
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.timezone.utc),
    Color.RED,
    uuid.UUID(int=7),
    {1},
)


def roundtrip(directory: Path, serializer: Any, *values: Any) -> list[Any]:
    with shale.Cache(directory, capacity=SMALL, serializer=serializer) as cache:
        cache.set_many(enumerate(values))
    copy = pickle.loads(pickle.dumps(serializer))
    assert repr(copy) == repr(serializer)
    with shale.Cache(directory, serializer=copy) as cache:
        return [cache[number] for number in range(len(values))]


def is_a_miss(
    directory: Path, serializer: Any, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    """To a cache with this serializer "k" is a miss, and the cause is logged."""
    caplog.clear()
    with shale.Cache(directory, serializer=serializer) as cache:
        reasons: list[Any] = []
        cache.on("miss", lambda event: reasons.append(event.reason))
        with caplog.at_level(logging.WARNING, "shale"):
            assert cache.get("k") is None
        assert reasons == ["undecodable"]
        assert cache.stats().own.undecodable == 1
    (record,) = caplog.records
    assert record.exc_info is not None
    assert reason in str(record.exc_info[1])


def test_msgspec(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    msgspec = pytest.importorskip("msgspec")
    user = msgspec.defstruct("User", [("name", str), ("friends", list[str])])
    serializer = serializers.MsgspecSerializer(Point, Other)
    assert roundtrip(directory, serializer, POINT, Other(2), [1, "plain"]) == [
        POINT, Other(2), [1, "plain"],
    ]  # fmt: skip
    with shale.Cache(directory, serializer=serializers.MsgspecSerializer(user, Point)) as cache:
        cache["k"] = user("Ada", ["Bob"])
        assert cache["k"] == user("Ada", ["Bob"])
        for bad in (Other(1), Derived(*dataclasses.astuple(POINT)), [POINT]):
            with pytest.raises(TypeError, match="none of the types"):
                cache["bad"] = bad
        cache["k"] = POINT
    is_a_miss(directory, serializers.MsgspecSerializer(Other), caplog, "none of the types")
    # A class of the same name that has changed.
    changed = dataclasses.make_dataclass("Point", [("y", str)])
    changed.__module__ = Point.__module__
    is_a_miss(directory, serializers.MsgspecSerializer(changed), caplog, "missing required field")


def test_pydantic(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model(
        "Model", n=(int, pydantic.Field(alias="number")), when=(datetime.datetime, POINT.when)
    )
    other = pydantic.create_model("Other", n=(int, 1))
    with shale.Cache(
        directory, capacity=SMALL, serializer=serializers.PydanticSerializer(model, other)
    ) as cache:
        for value in (model(number=7), other(n=2)):
            cache["k"] = value
            assert cache["k"] == value
            assert type(cache["k"]) is type(value)
        cache["k"] = model(number=7)
        with pytest.raises(TypeError, match="none of the types"):
            cache["bad"] = pydantic.create_model("Third")()
    is_a_miss(directory, serializers.PydanticSerializer(other), caplog, "none of the types")
    changed = pydantic.create_model(
        "Model", n=(int, 1), more=(str, ...), __module__=model.__module__
    )
    is_a_miss(directory, serializers.PydanticSerializer(changed), caplog, "Field required")
    with pytest.raises(TypeError, match="no model"):
        serializers.PydanticSerializer(Point)


def test_numpy(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    numpy = pytest.importorskip("numpy")
    arrays = [
        numpy.arange(12.0).reshape(3, 4),
        numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
        numpy.array(5, "int8"),
        numpy.zeros((0, 3), "int8"),
    ]
    serializer = serializers.NumpySerializer("float64", "int8")
    for array, found in zip(arrays, roundtrip(directory, serializer, *arrays)):
        assert found.dtype == array.dtype
        numpy.testing.assert_array_equal(found, array)
    with shale.Cache(directory, serializer=serializer) as cache:
        cache["k"] = arrays[0]
        for bad in (numpy.zeros(2, "float32"), numpy.ma.zeros(2), numpy.array([{}])):
            with pytest.raises(TypeError):
                cache["bad"] = bad
    is_a_miss(directory, serializers.NumpySerializer("int8"), caplog, "none of the dtypes")
    with pytest.raises(shale.InvalidError, match="without pickle"):
        serializers.NumpySerializer("object")


def test_numpy_never_unpickles(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    numpy = pytest.importorskip("numpy")
    from io import BytesIO

    data = BytesIO()
    numpy.save(data, numpy.array([Other(1)]), allow_pickle=True)

    class Attacker:
        name = "numpy"

        def dumps(self, value: Any) -> bytes:
            return data.getvalue()

        def loads(self, data: bytes) -> Any: ...

    with shale.Cache(directory, capacity=SMALL, serializer=Attacker()) as cache:
        cache["k"] = Other(1)
    is_a_miss(directory, serializers.NumpySerializer("int8"), caplog, "allow_pickle")


def test_tensors(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    numpy = pytest.importorskip("numpy")
    serializer = serializers.TensorsSerializer("float32", "int64", bool)
    value = {
        "weights": numpy.arange(6, dtype="float32").reshape(2, 3),
        "counts": numpy.array([1, 2, 3]),
        "flag": numpy.array(True),
        "none": numpy.zeros((0, 2), "float32"),
    }
    (found,) = roundtrip(directory, serializer, value)
    assert list(found) == list(value)
    for name, array in value.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        numpy.testing.assert_array_equal(found[name], array)
    data = serializer.dumps(value)
    assert serializer.loads(serializer.dumps({})) == {}
    # Every truncation, and wrong headers.
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"cut off|does not fit"):
            serializer.loads(data[:size])
    for before, after in [
        (b"[2,3]", b"[3,3]"),
        (b"[0,24]", b"[1,24]"),
        (b"[2,3]", b"[-2,-3]"),
        (b"[24,48]", b"[0,24]"),
    ]:
        size = int.from_bytes(data[:8], "little")
        header = data[8 : 8 + size].replace(before, after)
        assert header != data[8 : 8 + size]
        lying = len(header).to_bytes(8, "little") + header + data[8 + size :]
        with pytest.raises(ValueError, match="does not fit the header"):
            serializer.loads(lying)
    with pytest.raises(ValueError, match="more bytes after"):
        serializer.loads(data + b"x")
    with shale.Cache(directory, serializer=serializer) as cache:
        cache["k"] = value
        for bad in ({"a": numpy.zeros(2)}, {1: value["flag"]}, [value["flag"]], {"a": Other(1)}):
            with pytest.raises(TypeError):
                cache["bad"] = bad
    is_a_miss(directory, serializers.TensorsSerializer("int64"), caplog, "none of the dtypes")
    with pytest.raises(shale.InvalidError, match="safetensors has no"):
        serializers.TensorsSerializer("complex64")


def of_each_library() -> dict[str, tuple[Any, Any]]:
    """A serializer and a value of each library that is installed."""
    found: dict[str, tuple[Any, Any]] = {"pickle": (shale.PickleSerializer(), [POINT, 1j])}
    with suppress(ImportError):
        array = import_module("numpy").zeros((2, 3), "int8")
        found["numpy"] = serializers.NumpySerializer("int8"), array
        found["tensors"] = serializers.TensorsSerializer("int8"), {"a": array}
    with suppress(ImportError):
        found["msgspec"] = serializers.MsgspecSerializer(Point), POINT
    with suppress(ImportError):
        model = import_module("pydantic").create_model("Model", n=(int, 1), text=(str, "x"))
        found["pydantic"] = serializers.PydanticSerializer(model), model()
    return found


SERIALIZERS = of_each_library()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", [each for each in SERIALIZERS if each != "pickle"])
@given(st.data())
def test_damaged_bytes_are_a_miss(library: str, draw: st.DataObject) -> None:
    """Not pickle's: to unpickle damaged bytes is to run them."""
    serializer, value = SERIALIZERS[library]
    data = bytearray(serializer.dumps(value))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    with suppress(*LOADS_ERRORS):
        serializer.loads(bytes(data[: draw.draw(st.integers(0, len(data)))]))


@pytest.mark.parametrize(
    "data",
    [b"PK\x03\x04" + bytes(30), b"\x93NUMPY\x01\0\x06\0{'a'(\n", b"\x93NUMPY\x01\0\x02\0\\\n"],
)
def test_what_numpy_cannot_parse(data: bytes) -> None:
    pytest.importorskip("numpy")
    with pytest.raises(ValueError):
        serializers.NumpySerializer("int8").loads(data)


def test_scalars_of_numpy(directory: Path) -> None:
    """They come back as values of their base, or are refused."""
    numpy = pytest.importorskip("numpy")
    with shale.Cache(directory, capacity=SMALL) as cache:
        for scalar, kind in (
            (numpy.float64(0.5), float), (numpy.str_("a"), str), (numpy.bytes_(b"a"), bytes),
        ):  # fmt: skip
            for value in (scalar, [scalar], {scalar: (scalar,)}):
                cache["k"] = value
                assert cache["k"] == value
            cache["k"] = scalar
            assert type(cache["k"]) is kind
        for refused in (numpy.int64(1), numpy.float32(1), numpy.bool_(True)):
            with pytest.raises(TypeError, match=r"numpy\."):
                cache["k"] = [refused]


def test_tensors_are_what_safetensors_reads() -> None:
    numpy = pytest.importorskip("numpy")
    theirs = pytest.importorskip("safetensors.numpy")
    value = {"a": numpy.arange(4.0), "b": numpy.array([[1]], "int8")}
    serializer = serializers.TensorsSerializer("float64", "int8")
    for found in (theirs.load(serializer.dumps(value)), serializer.loads(theirs.save(value))):
        for name, array in value.items():
            numpy.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("name", ["NumpySerializer", "TensorsSerializer"])
def test_types_are_to_be_given(name: str) -> None:
    pytest.importorskip("numpy")
    with pytest.raises(shale.InvalidError, match="needs the"):
        getattr(serializers, name)()


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("MsgspecSerializer", "msgspec"),
        ("PydanticSerializer", "pydantic"),
        ("NumpySerializer", "numpy"),
    ],
)
def test_a_library_that_is_missing(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"shale-cache\[{library}\]"):
        getattr(serializers, name)(Point)


def test_two_types_of_one_name() -> None:
    pytest.importorskip("msgspec")
    twin = dataclasses.make_dataclass("Point", [("x", int)])
    twin.__module__ = Point.__module__
    with pytest.raises(shale.InvalidError, match="the same name"):
        serializers.MsgspecSerializer(Point, twin)
    with pytest.raises(TypeError, match="none of the types"):
        serializers.MsgspecSerializer(Point).dumps(twin(1))
    with pytest.raises(TypeError, match="a type is expected"):
        serializers.MsgspecSerializer("Point")
