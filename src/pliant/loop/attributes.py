"""Attributes of a loop program: what the compiler knows of it beside its parameters and its body.

They print as keywords of the decorator, `@kernel(scheduled=True)`, and parse back to the same values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, fields, replace
from typing import Any

from ..support.errors import ScheduleError
from ..support.record import dataclass


@dataclass(frozen=True, slots=True)
class FuncAttrs:
    """The attributes of a loop program (`Func`); an attribute with its default value is not printed."""

    entry: bool = False  # `prepare`, `size` or `run`: its first buffer is the `dims` array, and it can return an error
    chunk: bool = False  # the outlined body of a parallel loop over a range of iterations; the last two parameters are its bounds
    external: int | None = None  # a foreign function without a body: its number in the table of addresses
    scheduled: bool = False  # compiled exactly as written: no rule schedules it, and nothing is fused into it
    host: bool = False  # the host program, whose buffers are raw bytes that may alias
    counted: Mapping[str, str] = field(default_factory=dict)  # output that is written up to a count -> the buffer that holds the count
    moved: tuple[str, ...] = ()  # operands whose elements are each accessed once, so any permutation of them costs the same
    layouts: Mapping[str, tuple[str, Any]] = field(default_factory=dict)  # packed parameter -> its index map, and the value of the padding

    def items(self) -> list[tuple[str, Any]]:
        """Returns the names and values of the attributes that differ from their defaults."""
        return [(name, value) for name in _NAMES if (value := getattr(self, name)) != getattr(NO_ATTRS, name)]

    def with_(self, **changes: Any) -> FuncAttrs:
        """Returns a copy of these attributes with some changed."""
        return replace(self, **changes)


NO_ATTRS = FuncAttrs()
SCHEDULED = FuncAttrs(scheduled=True)
_NAMES = tuple(f.name for f in fields(FuncAttrs))


def read_attrs(values: Mapping[str, Any], params: Collection[str]) -> FuncAttrs | str:
    """Parses attributes from a printed program; returns a message (a text) instead of attributes if they are invalid.

    The text is not trusted: attributes that speak of parameters may name only those in `params`.
    """
    for name, value in values.items():
        if name not in _NAMES:
            return f"`@kernel` takes no `{name}`; it takes {', '.join(f'`{n}`' for n in _NAMES)}"
        if not _FITS[name](value):
            return f"`{name}` cannot be {value!r}"
    attrs = FuncAttrs(**values)
    named = {"counted": (*attrs.counted, *attrs.counted.values()), "moved": attrs.moved, "layouts": tuple(attrs.layouts)}
    for name, mentioned in named.items():
        for unknown in sorted({*mentioned} - {*params}):
            return f"`{name}` names `{unknown}`, which is no parameter"
    return attrs


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(name, str) for name in value)


def _is_table_of_names(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())


def _are_layouts(value: object) -> bool:
    """True for `{parameter: (index map, padding)}`; a padding is a number, or None where any value may stand there."""
    if not isinstance(value, dict):
        return False
    return all(
        isinstance(name, str)
        and isinstance(layout, tuple)
        and len(layout) == 2
        and _is_index_map(layout[0])
        and isinstance(layout[1], int | float | None)
        for name, layout in value.items()
    )


def _is_index_map(text: object) -> bool:
    """True for the text of an index map, `lambda k, n: (n // 8, k, n % 8)`."""
    from ..sym.index_map import index_map  # imported here: few programs have layouts

    try:
        return isinstance(text, str) and bool(index_map(text).inputs)
    except ScheduleError:
        return False


# Attribute -> the function that checks its value.
_FITS = {
    "entry": _is_flag,
    "chunk": _is_flag,
    "external": _is_number,
    "scheduled": _is_flag,
    "host": _is_flag,
    "counted": _is_table_of_names,
    "moved": _are_names,
    "layouts": _are_layouts,
}
