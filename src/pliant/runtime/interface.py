"""`Interface`, the metadata of a compiled program: arguments, outputs, symbols, check sites, memory, kernels.

The compiler writes this record, and the runtime reads it. Shapes and formulas are texts: compiled code evaluates them, the runtime only
shows them. Order matters. `inputs` has the order of the signature; in region A of `dims`, tensors come first and scalars
after them, both in this order. `symbols` is region B, `outputs` is region C, and `counts` names the entries of region E.
`constants` are the last buffers.

    Input("x", "tensor", "f32", ("n", "768"))              # prints as  x: Tensor[f32, n, 768]
    Symbol("n", 1, 2048, 8)                                # prints as  n in 1..2048 step 8
    Site("shape", "argument `x`: dim 1 is {0}, expected 4")  # becomes    argument `x`: dim 1 is 3, expected 4
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..support.errors import ModelFileError
from ..support.source import Span


class Input(NamedTuple):
    """A record of an argument; a `consumed` one is state, updated in place; without `strides` it must be contiguous."""

    name: str
    kind: str  # "tensor" or "scalar"
    dtype: str
    shape: tuple[str, ...] = ()
    consumed: bool = False
    strides: tuple[str, ...] = ()  # in elements

    def __str__(self) -> str:
        if self.kind == "scalar":
            return f"{self.name}: {self.dtype}"
        strides = [f"strides({', '.join(self.strides)})"] if self.strides else []
        return f"{self.name}: {'State' if self.consumed else 'Tensor'}[{', '.join((self.dtype, *self.shape, *strides))}]"


class Output(NamedTuple):
    """A result; `alias` is the index of the consumed input that it updates in place.

    `counted_by` has for each dim the index of the run-time count (region E) that is its true size; region C then holds the capacity.
    """

    name: str
    dtype: str
    shape: tuple[str, ...] = ()
    alias: int | None = None
    counted_by: tuple[int | None, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {'Tensor' if self.alias is None else 'State'}[{', '.join((self.dtype, *self.shape))}]"


class Symbol(NamedTuple):
    """A record of a symbolic dim of a program's contract, and the range of its values."""

    name: str
    min: int = 0
    max: int | None = None
    multiple_of: int = 1

    def __str__(self) -> str:
        step = f" step {self.multiple_of}" if self.multiple_of != 1 else ""
        return f"{self.name} in {self.min}..{'' if self.max is None else self.max}{step}"

    def admits(self, value: int) -> bool:
        """True if the contract allows this value of the dim."""
        return value >= self.min and (self.max is None or value <= self.max) and value % self.multiple_of == 0


class Site(NamedTuple):
    """A check in the program that can fail; an error record refers to it by its index in the table.

    `{0}`, `{1}`, … in the message stand for the values of the record. A `shape` site checks arguments of the caller, a `check` site
    a condition inside the program.
    """

    kind: str  # "shape" or "check"
    message: str
    help: str = ""
    place: Span | None = None


class Constant(NamedTuple):
    """A record of a buffer that a program reads besides its arguments: a literal, named by its number, or bytes stored with the code."""

    name: str
    size: int  # bytes
    data: str = ""  # base64 of the bytes that came with the code; empty for a literal


class Operand(NamedTuple):
    """An argument or a result of a foreign call: its data type and its rank, -1 for a scalar."""

    dtype: str
    rank: int


class Outside(NamedTuple):
    """A record of the callee of a foreign call: a Python function of the program, by its number, or a symbol of a library."""

    kind: str  # "host" or "library"
    name: str
    library: str  # a path or a name that the system finds; empty for the process itself
    number: int
    args: tuple[Operand, ...]
    outs: tuple[Operand, ...]


class Choice(NamedTuple):
    """A decision of a schedule, as texts: the chosen value, its domain, and the reason."""

    name: str
    value: str
    domain: str
    why: str
    reorders: bool  # another value changes last bits of results


WARNING = "warning: "  # begins a reason that tells of a slow kernel


class Rule(NamedTuple):
    """The default rule that scheduled a loop program, with its reason and its choices."""

    program: str  # its signature
    why: str
    content: str = ""  # a hash of the program, to distinguish programs of one name
    choices: tuple[Choice, ...] = ()
    record: str = ""  # the record of tuning that it took, a line of JSON

    @property
    def reasons(self) -> list[str]:
        """The parts of `why`, one for each thing that was done."""
        return self.why.split("; ")

    @property
    def warnings(self) -> list[str]:
        """Those reasons that tell of a kernel much slower than the machine."""
        return [reason.rpartition(WARNING)[2] for reason in self.reasons if WARNING in reason]


class Interface(NamedTuple):
    """The metadata of a compiled program: signature, symbols, check sites, constants, schedules."""

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    symbols: tuple[Symbol, ...] = ()
    sites: tuple[Site, ...] = ()
    counts: tuple[str, ...] = ()
    constants: tuple[Constant, ...] = ()
    workspace: str = "0"  # a formula of the symbols, in bytes
    workspace_max: int | None = None
    kernels: tuple[str, ...] = ()  # by the number that the profile hook gets
    parallel: bool = True  # True if it may call parallel_for
    origin: str = ""
    rules: tuple[Rule, ...] = ()
    layouts: tuple[Choice, ...] = ()  # layouts of values that several kernels read
    calls: tuple[Outside, ...] = ()  # the addresses of these functions are constants too, named `call:0` and so on
    relations: tuple[str, ...] = ()  # conditions between several symbols, as users declare them: `m <= n`

    def memory(self, literals: Sequence[Any], functions: Sequence[Any] = ()) -> list[Any]:
        """Return the arrays of the constants; `literals` and `functions` (Python functions that it calls) are those of the program."""
        return [self._memory(c, literals, functions) for c in self.constants]

    def _memory(self, c: Constant, literals: Sequence[Any], functions: Sequence[Any]) -> Any:
        if c.name.startswith("call:"):
            from .foreign_calls import entry

            site = int(c.name[5:])
            return entry(site, self.calls[site], functions)
        if not c.data and not _is_index(c.name, literals):
            raise _broken("interface.constants", f"`{c.name}` is not the number of a literal")
        if not c.data:
            return literals[int(c.name)]
        from base64 import b64decode

        import numpy as np

        return np.frombuffer(b64decode(c.data), np.uint8)

    def to_json(self) -> str:
        """Serialize the record as JSON."""
        return json.dumps(_plain(self), ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Interface:
        """Parse a JSON text; raises `ModelFileError` for a missing or unknown field, or one of another type.

        Fields that were added later (`_ADDED`) may be missing.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise ModelFileError("the metadata of a package is not JSON") from None
        interface: Interface = _read(Interface, data, "interface")
        _check(interface)
        return interface


# Fields that files of earlier versions lack; their defaults say what such files mean.
_ADDED = {"Interface": {"relations"}, "Rule": {"record"}}


def _read(record: Any, data: Any, path: str) -> Any:
    """Build a record from a dict; raises `ModelFileError` if its fields, or their types, are not the declared ones."""
    types = record.__annotations__
    if not isinstance(data, dict) or set(data) | _ADDED.get(record.__name__, set()) != set(types):
        raise _broken(path, "its fields are not those of " + record.__name__)
    return record(**{name: _FORMS[_type_text(types[name])](data[name], f"{path}.{name}") for name in types if name in data})


def _type_text(declared: Any) -> str:
    """Return the text of a field's declared type; NamedTuple wraps annotations in ForwardRef."""
    return declared if isinstance(declared, str) else str(declared.__forward_arg__)


def _plain(value: Any) -> Any:
    """Convert nested records (named tuples, spans) to dicts and lists for JSON."""
    if isinstance(value, Span):
        return {name: getattr(value, name) for name in Span.__annotations__}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _plain(getattr(value, name)) for name in value._fields}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _broken(path, "a text is expected")
    return value


def _int(value: Any, path: str) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise _broken(path, "a 64-bit number is expected")
    return value


def _bool(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _broken(path, "true or false is expected")
    return value


def _list(form: Any) -> Any:
    def read(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _broken(path, "a list is expected")
        return tuple(form(v, f"{path}[{i}]") for i, v in enumerate(value))

    return read


def _maybe(form: Any) -> Any:
    return lambda value, path: None if value is None else form(value, path)


def _record(record: Any) -> Any:
    return lambda value, path: _read(record, value, path)


# Reader of a field for each declared type, by its text.
_FORMS: dict[str, Any] = {
    "str": _text,
    "int": _int,
    "bool": _bool,
    "int | None": _maybe(_int),
    "tuple[str, ...]": _list(_text),
    "tuple[int | None, ...]": _list(_maybe(_int)),
    "Span | None": _maybe(_record(Span)),
    "tuple[Input, ...]": _list(_record(Input)),
    "tuple[Output, ...]": _list(_record(Output)),
    "tuple[Symbol, ...]": _list(_record(Symbol)),
    "tuple[Site, ...]": _list(_record(Site)),
    "tuple[Rule, ...]": _list(_record(Rule)),
    "tuple[Choice, ...]": _list(_record(Choice)),
    "tuple[Constant, ...]": _list(_record(Constant)),
    "tuple[Operand, ...]": _list(_record(Operand)),
    "tuple[Outside, ...]": _list(_record(Outside)),
}


def _check(made: Interface) -> None:
    """Check what the types do not say and the runtime relies on; raises `ModelFileError`."""
    from ..dtype import ALL

    names = [i.name for i in made.inputs] + [o.name for o in made.outputs if o.alias is None]
    if len(set(names)) != len(names):
        raise _broken("interface", "two arguments or outputs have one name")
    for at, argument in enumerate(made.inputs):
        if argument.kind not in ("tensor", "scalar") or argument.dtype not in ALL:
            raise _broken(f"interface.inputs[{at}]", f"unknown kind `{argument.kind}` or data type `{argument.dtype}`")
        if argument.kind == "scalar" and (argument.shape or argument.consumed):
            raise _broken(f"interface.inputs[{at}]", "a scalar has no shape and is not consumed")
        if argument.strides and len(argument.strides) != len(argument.shape):
            raise _broken(f"interface.inputs[{at}]", "it has not one stride for each dim")
    for at, output in enumerate(made.outputs):
        path = f"interface.outputs[{at}]"
        if output.dtype not in ALL:
            raise _broken(path, f"unknown data type `{output.dtype}`")
        if output.counted_by and len(output.counted_by) != len(output.shape):
            raise _broken(path, "it has not one count for each dim")
        if any(c is not None and not 0 <= c < len(made.counts) for c in output.counted_by):
            raise _broken(path, "it names a run-time count that is not there")
        if output.alias is not None:
            _check_alias(made, output, path)
    for at, site in enumerate(made.sites):
        if site.kind not in ("shape", "check"):
            raise _broken(f"interface.sites[{at}]", f"unknown kind `{site.kind}`")
    for at, call in enumerate(made.calls):
        if call.kind not in ("host", "library") or any(o.dtype not in ALL or o.rank < -1 for o in (*call.args, *call.outs)):
            raise _broken(f"interface.calls[{at}]", f"unknown kind `{call.kind}`, or an operand that there cannot be")
    for at, constant in enumerate(made.constants):
        if constant.name.startswith("call:") and not _is_index(constant.name[5:], made.calls):
            raise _broken(f"interface.constants[{at}]", "it names a function that is not there")
    for at, symbol in enumerate(made.symbols):
        if symbol.multiple_of < 1:
            raise _broken(f"interface.symbols[{at}]", "a step is at least 1")


def _check_alias(made: Interface, output: Output, path: str) -> None:
    source = dict(enumerate(made.inputs)).get(output.alias if output.alias is not None else -1)
    if source is None or not source.consumed or source.dtype != output.dtype or len(source.shape) != len(output.shape):
        raise _broken(path, "it is no update of a consumed argument of its type and rank")


def _is_index(text: str, items: Sequence[Any]) -> bool:
    """True if the text is the index of one of the items."""
    return text.isascii() and text.isdigit() and int(text[:18]) < len(items)


def _broken(path: str, reason: str) -> ModelFileError:
    return ModelFileError(f"the metadata of a package is broken at `{path}`: {reason}")
