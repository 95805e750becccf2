"""Models of pydantic and structs of msgspec, which fit each other's JSON."""

import dataclasses
import enum
from datetime import date
from typing import Any, Generic, NamedTuple, Optional, TypeVar, Union

import msgspec
import pydantic

from shale.serializers import MsgspecSerializer, PydanticSerializer

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class User(pydantic.BaseModel):
    name: str
    born: Optional[date] = None


class Order(pydantic.BaseModel):
    name: str
    born: Optional[date] = None


class Page(pydantic.BaseModel, Generic[T]):
    model_config = pydantic.ConfigDict(
        ser_json_inf_nan="constants", ser_json_bytes="base64", val_json_bytes="base64"
    )
    items: list[T]
    total: int = 0


class Admin(User):
    level: int = 1


class UserStruct(msgspec.Struct, tag=True):  # type: ignore[call-arg]
    name: str
    born: Optional[date] = None


class OrderStruct(msgspec.Struct, tag=True):  # type: ignore[call-arg]
    name: str
    born: Optional[date] = None


class AdminStruct(UserStruct):
    level: int = 1


class PageStruct(msgspec.Struct, Generic[T]):
    items: list[T]
    total: int = 0


class Tree(msgspec.Struct, Generic[T]):
    value: T
    children: "list[Tree[T]]" = []


@dataclasses.dataclass
class Plain:
    name: str


class Library(NamedTuple):
    """A serializer, and the classes for it."""

    serializer: Any
    user: Any
    order: Any
    admin: Any
    page: Any


PYDANTIC = Library(PydanticSerializer, User, Order, Admin, Page)
MSGSPEC = Library(MsgspecSerializer, UserStruct, OrderStruct, AdminStruct, PageStruct)
Either = Union[PydanticSerializer, MsgspecSerializer]
