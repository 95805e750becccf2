"""Models of pydantic as values of Shale, without pickle."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from pydantic import BaseModel


class Models:
    """Reads and writes values that contain models: in lists, tuples, dicts and other models.

    A model comes back as it was, private attributes included. Reading runs no constructor and no
    validator; a field that its class did not have yet gets its default.
    """

    def __init__(self, *packages: str, types: Iterable[type[Any]] = ()) -> None:
        """packages: whose models are allowed, each with a dot at its end. types: further models."""
        self._packages = packages
        self._types: dict[str, type[Any]] = {}
        for kind in types:
            if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
                raise TypeError(f"a model of pydantic is expected, not {kind!r}")
            self._types[_name(kind)] = kind

    def pack(self, value: Any) -> Any:
        """What Shale stores. TypeError for a model that is not allowed."""
        kind = type(value)
        if kind is dict:
            return {key: self.pack(each) for key, each in value.items()}
        if kind is list:
            return [self.pack(each) for each in value]
        if kind is tuple:
            return (None, *map(self.pack, value))
        if isinstance(value, tuple):
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not allowed")
        if isinstance(value, BaseModel):
            name = _name(kind)
            if self._find(name) is not kind:
                raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not allowed")
            # LiteLLM deletes fields of its models.
            deleted = [field for field in kind.model_fields if field not in value.__dict__]
            return name, self.pack(value.__getstate__()), deleted
        return value

    def unpack(self, value: Any) -> Any:
        """What ``pack`` was given. ValueError if it cannot be read."""
        kind = type(value)
        if kind is dict:
            return {key: self.unpack(each) for key, each in value.items()}
        if kind is list:
            return [self.unpack(each) for each in value]
        if kind is not tuple:
            return value
        name, *rest = value
        if name is None:
            return tuple(map(self.unpack, rest))
        found = self._find(name)
        if found is None:
            raise ValueError(f"{name} is not allowed")
        packed, deleted = rest
        state = self.unpack(packed)
        for field, info in found.model_fields.items():
            if field not in state["__dict__"] and field not in deleted:
                if info.is_required():
                    raise ValueError(f"{name} has no {field}")
                state["__dict__"][field] = info.get_default(call_default_factory=True)
        model = found.__new__(found)
        model.__setstate__(state)
        return model

    def _find(self, name: str) -> Any:
        """The allowed model of this name."""
        if name in self._types:
            return self._types[name]
        module, _, within = name.partition(":")
        if not module.startswith(self._packages):
            return None
        try:
            found = getattr(import_module(module), within, None)
        except ImportError:
            return None
        fits = isinstance(found, type) and issubclass(found, BaseModel) and _name(found) == name
        return found if fits else None


def _name(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
