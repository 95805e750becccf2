"""Values of types such as ``list[User]``, in the serializers for pydantic and msgspec."""

# mypy: disable-error-code="name-defined, valid-type, type-arg, misc"
# (The types are made when it runs.)

from __future__ import annotations

import datetime
import enum
import math
import pickle
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypeVar, Union
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import SMALL, examples

import shale

pytest.importorskip("msgspec")
pytest.importorskip("pydantic")

import typed_models
from typed_models import MSGSPEC, PYDANTIC, Color, Library, Tree, UserStruct

T = TypeVar("T")
UserName = NewType("UserName", str)

both = pytest.mark.parametrize("of", [PYDANTIC, MSGSPEC], ids=["pydantic", "msgspec"])


def same(one: Any, other: Any) -> bool:
    """Equal, with the same types throughout."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in (list, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if kind is dict:
        return same(list(one), list(other)) and all(same(one[key], other[key]) for key in one)
    if kind in (set, frozenset):
        return {(type(each), each) for each in one} == {(type(each), each) for each in other}
    names = getattr(kind, "model_fields", None) or getattr(kind, "__struct_fields__", None)
    if names:
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other) or (kind is float and math.isnan(one) and math.isnan(other))


def kinds_of(of: Library) -> list[Any]:
    return [
        of.user,
        list[of.user],
        dict[str, of.user],
        dict[int, list[of.user]],
        tuple[of.user, ...],
        tuple[str, of.order],
        Optional[of.page[of.user]],
        of.page[of.order],
        list[Union[of.user, of.order, None]],
        dict[str, Union[of.user, str, list[of.order]]],
        dict[str, Optional[of.admin]],
        dict[Literal["x", "y"], of.user],
    ]


def values_of(of: Library) -> list[Any]:
    user = of.user(name="Ada", born=datetime.date(1815, 12, 10))
    order = of.order(name="Ada")
    return [
        user,
        [user, user],
        {"a": user},
        {1: [user], 2: []},
        {"x": user},
        (user,),
        ("a", order),
        of.page[of.user](items=[user], total=1),
        of.page[of.order](items=[order, order]),
        [order, user, None],
        {"a": order_list(of), "b": user, "c": "text"},
        {"a": of.admin(name="Ada", level=2), "b": None},
        [],
        {},
        None,
    ]


def order_list(of: Library) -> list[Any]:
    return [of.order(name="a")]


@both
@pytest.mark.parametrize("serialize_all", [False, True])
def test_values_of_type_expressions(directory: Path, of: Library, serialize_all: bool) -> None:
    serializer = of.serializer(*kinds_of(of))
    values = values_of(of)
    with shale.Cache(
        directory, capacity=SMALL, serializer=serializer, serialize_all=serialize_all
    ) as cache:
        cache.set_many(enumerate(values))
    copy = serializer
    if of is MSGSPEC:
        copy = pickle.loads(pickle.dumps(serializer))
        assert repr(copy) == repr(serializer)
    with shale.Cache(directory, serializer=copy, serialize_all=serialize_all) as cache:
        for number, value in enumerate(values):
            assert same(cache[number], value)


@both
def test_a_value_of_another_type_is_refused(cache: shale.Cache, of: Library) -> None:
    """Even if the library would read its bytes."""
    serializer = of.serializer(
        of.user, list[of.user], dict[str, of.order], of.page[of.user], tuple[of.user, of.order],
        Literal["a"],
    )  # fmt: skip
    user, order, admin = of.user(name="a"), of.order(name="a"), of.admin(name="a")
    for bad in (
        [order], [user, order], [admin], (user,), (order, user), {"a": user}, {1: order},
        of.page[of.order](items=[order]), order, admin, [[user]], [None], "b",
    ):  # fmt: skip
        with pytest.raises(TypeError, match="none of the types of"):
            serializer.dumps(bad)
        assert not serializer.fits(bad)
    for good in (user, [user], [], {}, {"a": order}, (user, order), "a"):
        assert same(serializer.loads(serializer.dumps(good)), good)
        assert serializer.fits(good)


@both
def test_whichever_type_fits_reads_the_same(of: Library) -> None:
    """An empty list fits several: the first."""
    user, order = of.user(name="a"), of.order(name="a")
    for kinds in ([list[of.user], list[of.order]], [list[of.order], list[of.user]]):
        serializer = of.serializer(*kinds)
        values: list[Any] = [[], [user], [order]]
        for value in values:
            assert same(serializer.loads(serializer.dumps(value)), value)
            alone = of.serializer(kinds[0])
            if not value or alone.fits(value):
                assert same(alone.loads(serializer.dumps(value)), value)
            else:
                with pytest.raises(TypeError, match="none of the types"):
                    alone.loads(serializer.dumps(value))


@both
def test_the_stored_names(of: Library) -> None:
    """They are those of existing data."""
    module = "typed_models."
    user, page = of.user.__qualname__, of.page.__qualname__
    for kind, value, name in (
        (of.user, of.user(name="a"), module + user),
        (list[of.user], [of.user(name="a")], f"list[{module}{user}]"),
        (dict[str, Union[of.user, None]], {}, f"dict[str,{module}{user}|None]"),
        (tuple[int, ...], (1,), "tuple[int,...]"),
        (of.page[of.user], of.page[of.user](items=[]), None),
        (Optional[Literal["a", 1]], "a", "Literal['a',1]"),
    ):
        if name is None:
            # Of pydantic, a class of this qualified name.
            name = f"{module}{page}[{'' if of is PYDANTIC else module}{user}]"
        data = of.serializer(kind).dumps(value)
        assert data[: 1 + data[0]] == bytes([len(name)]) + name.encode()
    assert PYDANTIC.serializer(typed_models.User).dumps(typed_models.User(name="a")) == (
        b'\x11typed_models.User{"name":"a","born":null}'
    )
    assert MSGSPEC.serializer(typed_models.Plain).dumps(typed_models.Plain("a")) == (
        b"\x12typed_models.Plain\x81\xa4name\xa1a"
    )


@both
def test_spellings_of_one_type(of: Library) -> None:
    spellings: list[Any] = [
        list[Optional[of.user]],
        list[Union[None, of.user]],  # noqa: RUF036
        list[Annotated[Optional[of.user], "a note"]],
    ]
    value = [of.user(name="a"), None]
    assert of.serializer(of.user, of.user, Optional[of.user]).dumps(value[0])
    for kind in spellings[::2]:
        assert same(of.serializer(spellings[0]).loads(of.serializer(kind).dumps(value)), value)
    # (The order of a union is a part of the type: the first member that fits is written.)
    assert same(of.serializer(spellings[1]).loads(of.serializer(spellings[1]).dumps(value)), value)
    names = of.serializer(dict[str, Union[UserName, of.user]])
    assert same(names.loads(names.dumps({"a": "b"})), {"a": "b"})
    if sys.version_info >= (3, 10):
        modern = of.serializer(list[of.user | None])
        assert same(modern.loads(of.serializer(spellings[0]).dumps(value)), value)


@both
def test_a_class_that_has_changed(of: Library) -> None:
    """A new field with a default reads old values; one without is a miss."""

    def changed(**fields: Any) -> Any:
        if of is PYDANTIC:
            import pydantic

            return pydantic.create_model("User", __module__="typed_models", **fields)
        import msgspec

        given = [
            (name, *each) if each[1:] != (...,) else (name, each[0])
            for name, each in fields.items()
        ]
        return msgspec.defstruct("UserStruct", given, module="typed_models", tag=True)

    old = of.serializer(list[of.user])
    data = old.dumps([of.user(name="a")])
    more = changed(name=(str, ...), born=(Optional[datetime.date], None), email=(str, "none"))
    (found,) = of.serializer(list[more]).loads(data)
    assert (found.name, found.email) == ("a", "none")
    fewer = changed(name=(str, ...))
    assert of.serializer(list[fewer]).loads(data)[0].name == "a"
    for kind in (changed(name=(str, ...), email=(str, ...)), changed(name=(int, ...))):
        with pytest.raises(ValueError):
            of.serializer(list[kind]).loads(data)


@both
def test_types_that_say_too_little(of: Library) -> None:
    for kind in (
        list[Any], list[list], list["User"], list[T], Sequence[of.user], list[object],  # noqa: F821
        dict[str, dict], list[type], Literal[b"a"], list[Literal[Color.RED]], Any, T,
        Union[of.user, Any], set[T], of.page[Any] if of is MSGSPEC else list[Any],
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"expected, not|no model|a literal is|does not say"):
            of.serializer(kind)


def test_keys_that_json_has_not() -> None:
    for key in (None, Color, Optional[str], Union[str, int], tuple[int, int], Literal[1]):
        with pytest.raises(TypeError, match="JSON has no keys of"):
            PYDANTIC.serializer(dict[key, int])


def test_unions_that_msgspec_cannot_tell_apart() -> None:
    with pytest.raises(TypeError, match="Type unions may not contain more than one"):
        MSGSPEC.serializer(list[Union[str, datetime.date]])


def test_a_struct_that_contains_its_type() -> None:
    order = typed_models.OrderStruct(name="a")
    serializer = MSGSPEC.serializer(Tree[UserStruct], Tree[typed_models.OrderStruct])
    values: Any = (
        Tree(UserStruct("a"), [Tree(UserStruct("b"))]),
        Tree(order, [Tree(order, [Tree(order)])]),
    )
    for value in values:
        assert same(serializer.loads(serializer.dumps(value)), value)
    with pytest.raises(TypeError, match="none of the types"):
        serializer.dumps(Tree(order, [Tree(UserStruct("a"))]))


def test_a_generic_class_without_arguments_comes_last() -> None:
    serializer = MSGSPEC.serializer(typed_models.PageStruct, typed_models.PageStruct[UserStruct])
    value: Any = typed_models.PageStruct([UserStruct("a")])
    assert same(serializer.loads(serializer.dumps(value)), value)


# Values of random types


class Number(enum.IntEnum):
    ONE = 1


class Kind(NamedTuple):
    kind: Any
    values: st.SearchStrategy[Any]
    is_key: bool = False


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
DATES = st.dates()
SCALARS = [
    Kind(None, st.none()),
    Kind(bool, st.booleans(), True),
    Kind(int, st.integers(-(2**63), 2**63 - 1), True),
    Kind(float, st.floats()),
    Kind(str, TEXT, True),
    Kind(bytes, st.binary(max_size=5)),
    Kind(datetime.date, DATES, True),
    Kind(datetime.datetime, st.datetimes()),
    Kind(datetime.datetime, st.datetimes(timezones=st.just(datetime.timezone.utc))),
    Kind(datetime.time, st.times(), True),
    Kind(datetime.timedelta, st.timedeltas(
        datetime.timedelta(days=-9999), datetime.timedelta(days=9999)
    )),
    Kind(Decimal, st.decimals(allow_nan=False, allow_infinity=False), True),
    Kind(UUID, st.uuids(), True),
    Kind(Color, st.sampled_from(Color)),
    Kind(Number, st.sampled_from(Number)),
    Kind(Literal["a", 1], st.sampled_from(["a", 1])),
]  # fmt: skip


def models(of: Library) -> list[Kind]:
    names, births = TEXT, st.none() | DATES
    return [
        Kind(of.user, st.builds(of.user, name=names, born=births)),
        Kind(of.order, st.builds(of.order, name=names, born=births)),
        Kind(of.admin, st.builds(of.admin, name=names, level=st.integers(0, 9))),
    ]


@st.composite
def kinds(draw: st.DrawFn, of: Library, depth: int = 2) -> Kind:
    form = draw(st.sampled_from(["leaf", "list", "dict", "tuple", "pair", "union", "page"]))
    if form == "leaf" or not depth:
        leaf: Kind = draw(st.sampled_from([*SCALARS, *models(of), *models(of)]))
        return leaf
    inner = kinds(of, depth - 1)
    one = draw(inner)
    if form == "list":
        return Kind(list[one.kind], st.lists(one.values, max_size=3))
    if form == "dict":
        key = draw(st.sampled_from([each for each in SCALARS if each.is_key]))
        return Kind(dict[key.kind, one.kind], st.dictionaries(key.values, one.values, max_size=3))
    if form == "tuple":
        return Kind(tuple[one.kind, ...], st.lists(one.values, max_size=3).map(tuple))
    if form == "page":
        page = of.page[one.kind]
        # (A model itself reads the unions in its JSON, and may take one type for another.)
        assume(of is MSGSPEC or "Union" not in page.__name__)
        return Kind(page, st.builds(page, items=st.lists(one.values, max_size=3)))
    other = draw(inner)
    if form == "pair":
        return Kind(tuple[one.kind, other.kind], st.tuples(one.values, other.values))
    return Kind(Union[one.kind, other.kind], one.values | other.values)


@both
@examples(40)
@given(st.data())
def test_what_is_read_is_what_was_stored(of: Library, data: st.DataObject) -> None:
    found = [data.draw(kinds(of)) for _ in range(data.draw(st.integers(1, 3)))]
    try:
        serializer = of.serializer(*(each.kind for each in found))
    except TypeError as error:
        # Unions that MessagePack does not tell apart.
        assume("union" not in str(error) or "is not supported" not in str(error))
        raise
    except shale.InvalidError as error:
        assume("the same name" not in str(error))
        raise
    for each in found:
        value = data.draw(each.values)
        assert same(serializer.loads(serializer.dumps(value)), value), (each.kind, value)
    # What fits no type is refused, and nothing else.
    for other in models(of):
        value = [{"a": data.draw(other.values)}]
        try:
            stored = serializer.dumps(value)
        except TypeError:
            assert not serializer.fits(value)
        else:
            assert same(serializer.loads(stored), value)


def test_bytes_and_floats_that_json_has_not() -> None:
    serializer = PYDANTIC.serializer(list[Union[bytes, float]], dict[str, bytes])
    values: list[Any] = [[b"\xff", math.inf, math.nan], {"a": b"\xff\x00"}]
    for value in values:
        assert same(serializer.loads(serializer.dumps(value)), value)
