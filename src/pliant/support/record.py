"""A fast `dataclass` decorator: that of the standard library at a quarter of its cost per class.

The standard one compiles six functions for each class, which takes half a millisecond; with a hundred small records `import pliant` would
take fifty milliseconds longer. Here one function is compiled, `__init__`; the others are closures over the names of the fields. Type
checkers see the standard decorator, and its `fields` and `replace` work on these classes. Rare cases (ClassVar, InitVar, other options)
are passed on to the standard decorator.

    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 0
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Decorator like `dataclasses.dataclass`, at a quarter of its cost; takes `frozen`, `slots`, `eq` and `kw_only`."""
        return _make(cls, options) if cls is not None else lambda found: _make(found, options)


_RARE = ("ClassVar", "InitVar", "KW_ONLY")  # annotations that the standard decorator handles
_OPTIONS = ("frozen", "slots", "eq", "kw_only")  # the options that are handled here
# Methods that a class does not define itself if it is handled here.
_OWN = ("__init__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__setstate__", "__slots__", "__match_args__")


def _make(cls: type, options: dict[str, bool]) -> type:
    """Returns the class with the methods of a dataclass added; a new class if it has slots."""
    own = inspect.get_annotations(cls)
    if _is_rare(cls, own, options):
        return dataclasses.dataclass(**options)(cls)
    frozen, slots, eq, kw_only = (options.get(name, name == "eq") for name in _OPTIONS)
    fields: dict[str, dataclasses.Field[Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        fields.update(getattr(base, "__dataclass_fields__", {}))
    defaults = {name: cls.__dict__[name] for name in own if name in cls.__dict__}
    for name, kind in own.items():
        fields[name] = _field(name, kind, defaults.get(name, dataclasses.MISSING), kw_only)
    body = {k: v for k, v in cls.__dict__.items() if k not in ("__dict__", "__weakref__")} if slots else {}
    target = body if slots else _Attributes(cls)
    for name in defaults:
        if slots or fields[name].default is dataclasses.MISSING:
            del target[name]
        else:
            target[name] = fields[name].default
    target["__dataclass_fields__"], target["__dataclass_params__"] = fields, _params(frozen, eq)
    target["__match_args__"] = tuple(f.name for f in fields.values() if f.init and not f.kw_only)
    _add_methods(target, cls, list(fields.values()), frozen, eq)
    if not slots:
        return cls
    if frozen:
        _add_state(body, list(fields))
    return _with_slots(cls, body, fields)


def _is_rare(cls: type, own: dict[str, Any], options: dict[str, bool]) -> bool:
    """True for kinds of fields, options and own methods that only the standard decorator handles."""
    if any(not isinstance(kind, str) or any(word in kind for word in _RARE) for kind in own.values()):
        return True
    if any(isinstance(v, dataclasses.Field) and v.hash is not None for v in cls.__dict__.values()):
        return True
    open_and_frozen = options.get("frozen", False) and not options.get("slots", False)  # subclasses of such a class may add attributes
    return open_and_frozen or not options.keys() <= set(_OPTIONS) or any(name in cls.__dict__ for name in _OWN)


def _field(name: str, kind: str, default: Any, kw_only: bool) -> dataclasses.Field[Any]:
    """Returns the `dataclasses.Field` of an annotation. Raises ValueError for a mutable default."""
    record: Any = default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)
    if record.default.__class__.__hash__ is None:
        raise ValueError(f"mutable default for field {name} is not allowed: use default_factory")
    record.name, record.type, record._field_type = name, kind, _plain_kind()
    if record.kw_only is dataclasses.MISSING:
        record.kw_only = kw_only
    return record  # type: ignore[no-any-return]


@functools.cache
def _params(frozen: bool, eq: bool) -> Any:
    """Returns the parameter record that the standard decorator would attach to a class."""
    return dataclasses.make_dataclass("Sample", [], frozen=frozen, eq=eq).__dataclass_params__  # type: ignore[attr-defined]


@functools.cache
def _plain_kind() -> Any:
    """Returns the marker that the standard decorator gives to a regular field."""
    return dataclasses.fields(dataclasses.make_dataclass("Sample", ["x"]))[0]._field_type  # type: ignore[attr-defined]


class _Attributes:
    """A dict interface to a class's own attributes."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self.cls, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self.cls, name)


def _with_slots(cls: type, body: dict[str, Any], fields: dict[str, Any]) -> type:
    """Returns the class rebuilt with slots for the fields that no base class has."""
    taken = {name for base in cls.__mro__[1:-1] for name in getattr(base, "__slots__", ())}
    body["__slots__"] = tuple(name for name in fields if name not in taken)
    slotted = type(cls)(cls.__name__, cls.__bases__, body)
    slotted.__qualname__ = cls.__qualname__
    return slotted


def _add_methods(target: Any, cls: type, fields: list[dataclasses.Field[Any]], frozen: bool, eq: bool) -> None:
    """Adds `__init__`, `__repr__` unless the class has one, with `eq` also `__eq__` and `__hash__`.

    With `frozen`, assigning and deleting raise an error.
    """
    target["__init__"] = _init(cls, fields, frozen)
    shown, compared = [f.name for f in fields if f.repr], [f.name for f in fields if f.compare]
    if "__repr__" not in cls.__dict__:
        target["__repr__"] = reprlib.recursive_repr()(_repr(shown))
    if eq:
        values = _values(compared)
        target["__eq__"] = lambda self, other: values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        target["__hash__"] = (lambda self: hash(values(self))) if frozen else None
    if frozen:
        target["__setattr__"], target["__delattr__"] = _refuse_to_assign, _refuse_to_delete


def _add_state(body: dict[str, Any], names: list[str]) -> None:
    """Adds copying and pickling for frozen records with slots, whose fields cannot be assigned."""

    def restore(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    body["__getstate__"], body["__setstate__"] = lambda self: [getattr(self, name) for name in names], restore


def _init(cls: type, fields: list[dataclasses.Field[Any]], frozen: bool) -> Callable[..., None]:
    """Returns the `__init__` of a record: the only method that is compiled from text, because closures cannot have a custom signature.

    With `frozen` it sets fields by `object.__setattr__`.
    """
    names: dict[str, Any] = {"_set": object.__setattr__, "_new": dataclasses.MISSING}
    plain: list[str] = ["self"]
    named: list[str] = []
    lines: list[str] = []
    for f in fields:
        value = f.name
        if f.default_factory is not dataclasses.MISSING:
            names[f"_made_{f.name}"] = f.default_factory
            value = f"{f.name} if {f.name} is not _new else _made_{f.name}()" if f.init else f"_made_{f.name}()"
        elif f.default is not dataclasses.MISSING:
            names[f"_default_{f.name}"] = f.default
            value = f.name if f.init else f"_default_{f.name}"
        elif not f.init:
            continue
        lines.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
        if f.init:
            (named if f.kw_only else plain).append(f.name + _default_text(f))
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    signature = ", ".join([*plain, *(["*", *named] if named else [])])
    exec(f"def __init__({signature}):\n " + "\n ".join(lines or ["pass"]), names)
    method: Callable[..., None] = names["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    method.__module__ = cls.__module__
    method.__annotations__ = {**{f.name: f.type for f in fields if f.init}, "return": None}
    return method


def _default_text(f: dataclasses.Field[Any]) -> str:
    """Returns the default value of a parameter as text for a signature."""
    if f.default_factory is not dataclasses.MISSING:
        return "=_new"
    return f"=_default_{f.name}" if f.default is not dataclasses.MISSING else ""


def _repr(names: list[str]) -> Callable[[Any], str]:
    return lambda self: f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def _values(names: list[str]) -> Callable[[Any], Any]:
    """Returns a function from a record to the tuple of these fields."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return (lambda record: (getattr(record, names[0]),)) if names else lambda record: ()


def _refuse_to_assign(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
