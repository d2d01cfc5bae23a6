"""Scoping rules of kernels: bindings of names, what a block may see, and elements of buffers.

A name is bound once in a nest of scopes (values do not change), and is out of scope where its indented part ends. Inside a block only its
own iterators, the parameters, and values that do not depend on the surrounding loops are visible.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from ..support.errors import Error
from ..support.record import dataclass
from ..support.resolve import Source
from ..support.source import Span
from ..sym.expr import Const, Expr, Var, free_vars
from ..sym.parse import ExprParser, Value
from .buffer import Buffer, Load
from .stmt import Func


@dataclass(frozen=True, slots=True)
class Binding:
    """A record of what a name means: its variable or buffer, a description for messages, and the source location that binds it."""

    value: object  # a variable or buffer; any expression for a name bound by `:=`; in an inline function any Python object
    what: str
    span: Span
    block: int  # the number of blocks around the binding
    fixed: bool  # True if nested blocks may use it, because it does not depend on loops


class ScopedParser(ExprParser):
    """Parses the expressions of a kernel; resolves names in its nested scopes."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.scopes: list[dict[str, Binding]] = [{}]
        self.gone: dict[str, Binding] = {}  # names whose scope has ended
        self.blocks: list[str] = []  # the names of the surrounding blocks
        self.repeats = 0  # the number of surrounding loops and blocks
        self.symbols: frozenset[Var] | None = None  # known once the parameters are read
        self.reducing: set[object] = set()  # R and O iterators, while their block's init is read
        self.inputs: set[Buffer] = set()  # buffers that must not be written

    # Binding.

    @contextmanager
    def scope(self, *, repeated: bool = False) -> Iterator[None]:
        """Context manager: a scope of names; `repeated` if its statements may run several times."""
        self.scopes.append({})
        self.repeats += repeated
        try:
            yield
        finally:
            self.repeats -= repeated
            self.gone.update(self.scopes.pop())

    def bind(self, node: ast.AST, name: str, value: Expr | Buffer, what: str, *, fixed: bool = False) -> None:
        """Binds `name` in the innermost scope, unless it is `_`; raises an error if it is bound already, in any scope.

        `fixed` says that it keeps its value in a loop.
        """
        bound = self.find(name)
        if bound is not None:
            raise self.rebound(node, name, bound)
        if name != "_":
            self.scopes[-1][name] = Binding(value, what, self.span(node), len(self.blocks), fixed or not self.repeats)

    def rebound(self, node: ast.AST, name: str, found: Binding) -> Error:
        """Returns the error for binding a name a second time."""
        help_ = (
            f"take another name; to accumulate, use a buffer: {name} = alloc((1,), f32)" if found.what == "value" else "take another name"
        )
        line = f"it is the {found.what} of line {found.span.line}"
        return self.error(node, f"`{name}` is already defined and does not change", facts=[line], help=help_)

    def find(self, name: str) -> Binding | None:
        """Returns the binding of a name in the kernel's scopes, or None."""
        for scope in reversed(self.scopes):
            binding = scope.get(name)
            if binding is not None:
                return binding
        return None

    # Looking up.

    def lookup(self, node: ast.Name) -> object:
        """Returns the value of a name: of the kernel, else of the surrounding Python scope; raises if it cannot be used here."""
        bound = self.find(node.id)
        if bound is not None:
            if bound.block < len(self.blocks) and not bound.fixed:
                raise self.outside_block(node, bound)
            if bound.value in self.reducing:
                help_ = "init runs before the first step of the reduction: it sees the S iterators only"
                raise self.error(node, f"`{node.id}` is no S iterator, and unknown in init", help=help_)
            return bound.value
        try:
            return self.source.scope[node.id]
        except KeyError:
            pass
        if node.id in self.gone:
            gone = self.gone[node.id]
            fact = f"it is the {gone.what} of line {gone.span.line}, and known only to the end of the indented part there"
            raise self.error(node, f"`{node.id}` is not defined any more", facts=[fact])
        raise self.source.undefined(node, [n for s in self.scopes for n in s])

    def resolve(self, node: ast.expr) -> object:
        """The object that a name or dotted name means; raises for an attribute of a local name of the kernel."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            bound = self.find(node.value.id)
            if bound is not None:
                raise self.no_attribute(node, bound)
        return super().resolve(node)

    def no_attribute(self, node: ast.Attribute, found: Binding) -> Error:
        """Returns the error for an attribute of a tensor or scalar, such as `x.shape`."""
        name, value = ast.unparse(node.value), found.value
        help_ = ""
        if isinstance(value, Buffer):
            help_ = dims_help(value) if node.attr in ("shape", "size", "ndim") else f"`{value}` is all that is known of it"
        return self.error(node, f"kernels have no `.{node.attr}`", facts=[f"`{name}` is a {found.what}"], help=help_)

    def outside_block(self, node: ast.Name, found: Binding) -> Error:
        """Returns the error for using in a block a name that is only visible around it."""
        return self.error(
            node,
            f"`{node.id}` cannot be used inside block `{self.blocks[-1]}`",
            facts=[f"it is the {found.what} of line {found.span.line}, outside of the block"],
            help=f'a block sees only its own iterators: bind it, as in block("{self.blocks[-1]}", "S", {node.id}) as v{node.id}',
        )

    def literal(self, node: ast.expr, found: object) -> Value:
        """Converts a Python object to a scalar expression; raises if it is a dim that the kernel does not have."""
        if isinstance(found, Expr) and self.symbols is not None:
            local = isinstance(node, ast.Name) and self.find(node.id) is not None
            for var in () if local else free_vars(found):
                if var not in self.symbols:
                    raise self.error(
                        node,
                        f"dim `{var.name}` is not known in this kernel",
                        facts=["a kernel knows the dims in the shapes of its parameters"],
                        help=f"pass it as a scalar parameter: {var.name}: i64",
                    )
        return super().literal(node, found)

    def no_value(self, node: ast.expr, found: object) -> Error:
        """Returns the error for a name whose value is not a scalar."""
        if isinstance(found, Buffer):
            index = ", ".join("ijklmnpq"[: found.ndim])
            return self.error(
                node, f"`{found.name}` is a tensor, a number is expected here", help=f"take an element: {found.name}[{index}]"
            )
        return super().no_value(node, found)

    # Buffers.

    def buffer(self, node: ast.expr) -> Buffer:
        """Returns the buffer that a name means; raises an error if it is something else."""
        value = self.resolve(node) if isinstance(node, ast.Name | ast.Attribute) else None
        if not isinstance(value, Buffer):
            raise self.error(node, f"`{ast.unparse(node)}` is not a tensor")
        return value

    def subscript(self, node: ast.Subscript) -> Value:
        """Parses `x[i, j]`, an element of a buffer."""
        return self.place(node)

    def place(self, node: ast.expr) -> Load:
        """Parses `x[i, j]` into a load of the element; raises if it is something else, or a constant index is out of range."""
        if not isinstance(node, ast.Subscript):
            raise self.error(node, "an element of a tensor is expected here", help="for example x[i, j]")
        buffer = self.buffer(node.value)
        items = self.items(node, buffer)
        for item in items:
            if isinstance(item, ast.Slice):
                raise self.unsupported(node, "a slice is not a value", help="write a loop over its elements")
        indices = tuple(self.index(i) for i in items)
        for item, index, extent in zip(items, indices, buffer.shape, strict=True):
            self.in_range(item, buffer, index, extent)
        return Load(buffer, indices)

    def items(self, node: ast.Subscript, buffer: Buffer) -> list[ast.expr]:
        """Returns the parts of a subscript, one for each dimension of the buffer; raises if their number differs."""
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) != buffer.ndim:
            s = "s" * (buffer.ndim != 1)
            count = f"{len(items)} ind{'ices' if len(items) != 1 else 'ex'}"
            raise self.error(node, f"`{buffer.name}` has {buffer.ndim} dimension{s}, {count} given", facts=[f"`{buffer}`"])
        return items

    def in_range(self, node: ast.expr, buffer: Buffer, index: Expr, extent: Expr) -> None:
        """Raises for a constant index that is negative or out of range; the verifier proves the others."""
        if not isinstance(index, Const):
            return
        if index.value < 0:
            raise self.error(
                node, f"index {index.value} of `{buffer.name}` is negative", help="indices count from 0; none counts from the end"
            )
        if isinstance(extent, Const) and index.value >= extent.value:
            raise self.error(node, f"index {index.value} of `{buffer.name}` is out of range", facts=[f"the extent is {extent.value}"])

    def writable(self, node: ast.expr, buffer: Buffer) -> None:
        """Raises an error if the buffer is an input parameter, which cannot be written."""
        if buffer in self.inputs:
            raise self.error(
                node,
                f"`{buffer.name}` is an input and cannot be written",
                facts=[f"its role is in: `{buffer}`"],
                help="annotate the parameter with Out[...] (written only) or InOut[...] (read and written)",
            )


class Expander(ABC):
    """Base class of callables that a kernel expands in place at a call, beside other kernels (`inline.py`)."""

    @abstractmethod
    def expand(self, parser: ScopedParser, call: ast.Call) -> object:
        """Returns what stands in the place of the call: statements, an expression, a number, or a tuple of expressions."""


def dims_help(buffer: Buffer) -> str:
    """The help text that says what to write instead of a shape: the dims themselves."""
    if not buffer.shape:
        return f"`{buffer.name}` has no dims"
    shown = ", ".join(f"`{e}`" for e in buffer.shape)
    return f"use the dim of `{buffer.name}`: {shown}" if buffer.ndim == 1 else f"use the dims of `{buffer.name}`: {shown}"


def kernel_of(found: object) -> Func | None:
    """The loop program of a Python object that is a kernel (a Func, or an object with one as `func`), else None."""
    func = found if isinstance(found, Func) else getattr(found, "func", None)
    return func if isinstance(func, Func) else None
