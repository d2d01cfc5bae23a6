"""Records that are made quickly are those of the standard library: each class is made by both decorators, and compared."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from typing import Any

import pytest

from pliant.support import record

CLASSES = """
from __future__ import annotations
import dataclasses
from dataclasses import field
from typing import ClassVar

@dataclass(frozen=True, slots=True)
class Frozen:
    '''A doc.'''
    x: int
    y: str = "y"
    def method(self): return self.x

@dataclass(frozen=True, slots=True)
class Derived(Frozen):
    z: float = 0.5

@dataclass(frozen=True, eq=False, slots=True)
class Identity:
    x: int
    name: str = field(default="n", compare=False)

@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Named:
    x: int = 1
    y: list = field(default_factory=list)

@dataclass(frozen=True, slots=True)
class Compared:
    x: int
    name: str = field(default="n", compare=False)
    hidden: int = field(default=0, repr=False)

@dataclass(slots=True)
class Mutable:
    x: int
    made: dict = field(default_factory=dict)
    later: int = field(init=False, default=3)
    unset: int = field(init=False)
    def __post_init__(self): self.unset = self.x * 2

@dataclass
class Plain:
    x: int
    y: list = field(default_factory=list)
    z: int = 7

@dataclass(frozen=True)
class Open:
    x: int = 1

@dataclass(frozen=True, slots=True)
class Empty:
    pass

@dataclass(frozen=True, slots=True)
class Shown:
    x: int
    def __repr__(self): return f"<{self.x}>"

@dataclass(frozen=True, slots=True)
class Counted:
    count: ClassVar[int] = 5
    x: int = 1

@dataclass(frozen=True, slots=True)
class Odd:
    x: int
    def __eq__(self, other): return True

@dataclass(order=True)
class Ordered:
    x: int
"""
ARGUMENTS: dict[str, list[tuple[Any, ...]]] = {
    "Frozen": [(1,), (1, "b"), (2,)],
    "Derived": [(1,), (1, "b", 2.0)],
    "Identity": [(1,), (1, "m")],
    "Named": [()],
    "Compared": [(1,), (1, "m"), (1, "n", 5)],
    "Mutable": [(1,), (1, {"a": 1}), (2,)],
    "Plain": [(1,), (1, [2]), (1, [], 8)],
    "Open": [(), (2,)],
    "Empty": [()],
    "Shown": [(3,)],
    "Counted": [(), (2,)],
    "Odd": [(1,), (2,)],
    "Ordered": [(1,), (2,)],
}


def classes(decorator: Any, module: str) -> dict[str, Any]:
    made = type(sys)(module)
    sys.modules[module] = made
    made.__dict__["dataclass"] = decorator
    exec(CLASSES, made.__dict__)
    return made.__dict__


OURS, THEIRS = classes(record.dataclass, "ours_of_records"), classes(dataclasses.dataclass, "theirs_of_records")


def outcome(call: Any) -> Any:
    """What a call answers, or the type and the text of what it raises."""
    try:
        return call()
    except (TypeError, AttributeError, dataclasses.FrozenInstanceError) as e:
        return type(e), str(e).replace("ours_of_records", "theirs_of_records")


@pytest.mark.parametrize("name", ARGUMENTS)
def test_records_are_like_the_standard_ones(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]
    if name not in FACTORIES:
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    assert [(f.name, f.init, f.compare, f.kw_only) for f in dataclasses.fields(ours)] == [
        (f.name, f.init, f.compare, f.kw_only) for f in dataclasses.fields(theirs)
    ]
    for attribute in ("__match_args__", "__slots__", "__qualname__", "__name__", "__doc__"):
        if attribute != "__doc__" or theirs.__doc__ == "A doc.":
            assert getattr(ours, attribute, None) == getattr(theirs, attribute, None), attribute
    mine, other = ([cls(*args) for args in ARGUMENTS[name]] for cls in (ours, theirs))
    assert [repr(x) for x in mine] == [repr(x) for x in other]
    assert [[a == b for a in mine] for b in mine] == [[a == b for a in other] for b in other]
    assert [outcome(lambda x=x: hash(x)) for x in mine] == [outcome(lambda x=x: hash(x)) for x in other] or ours.__hash__ is object.__hash__
    assert (ours.__hash__ is object.__hash__) == (theirs.__hash__ is object.__hash__)
    for x, y in zip(mine, other, strict=True):
        assert repr(dataclasses.replace(x)) == repr(dataclasses.replace(y))
        assert repr(copy.deepcopy(x)) == repr(y) and repr(pickle.loads(pickle.dumps(x))) == repr(y)
        for field in dataclasses.fields(ours):
            change = outcome(lambda x=x, f=field: setattr(x, f.name, 1)), outcome(lambda y=y, f=field: setattr(y, f.name, 1))
            assert change[0] == change[1]
        # (Of other attributes of frozen classes with slots the standard decorator says something about `super`.)
        assert (outcome(lambda x=x: setattr(x, "other", 1)) is None) == (outcome(lambda y=y: setattr(y, "other", 1)) is None)
    assert outcome(lambda: ours(1, 2, 3, 4, 5)) == outcome(lambda: theirs(1, 2, 3, 4, 5))
    assert outcome(lambda: ours(nothing=1)) == outcome(lambda: theirs(nothing=1))


FACTORIES = ("Named", "Mutable", "Plain")  # the standard signature shows that there is a factory


def test_factories_make_a_new_one_each_time() -> None:
    first, second = OURS["Plain"](1), OURS["Plain"](1)
    assert first.y == second.y == [] and first.y is not second.y
    assert OURS["Mutable"](4).unset == 8 and OURS["Mutable"](4).later == 3


def test_common_classes_do_not_take_the_standard_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataclasses, "dataclass", lambda **options: pytest.fail("the standard way"))
    one = "from __future__ import annotations\n@dataclass(frozen=True, slots=True)\nclass One:\n    x: int = 1\n"
    space = {"dataclass": record.dataclass, "__name__": __name__}
    exec(one, space)
    assert space["One"](2).x == 2  # type: ignore[operator]


def test_a_mutable_default_is_refused() -> None:
    text = "from __future__ import annotations\n@dataclass\nclass Bad:\n    x: list = []\n"
    with pytest.raises(ValueError, match="mutable default"):
        exec(text, {"dataclass": record.dataclass, "__name__": __name__})
