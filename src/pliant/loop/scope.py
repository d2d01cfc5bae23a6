"""Names inside a kernel: what is bound where, what a block may see, and the elements of buffers.

A name is bound once in a nest of scopes (values do not change), and is gone where its scope ends. Inside a block only its own
iterators, the parameters, and what cannot depend on the loops around it are visible.
"""

from __future__ import annotations

import ast
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
    """What a name means: the variable or buffer, what to call it in messages, and where it was bound."""

    value: Expr | Buffer  # an expression other than a variable where a name stands for it
    what: str
    span: Span
    block: int  # how many blocks were open
    fixed: bool  # whether blocks inside may see it: it does not depend on loops


class ScopedParser(ExprParser):
    """Expressions over the names of a kernel."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.scopes: list[dict[str, Binding]] = [{}]
        self.gone: dict[str, Binding] = {}  # names whose scope has ended
        self.blocks: list[str] = []  # the names of the open blocks
        self.repeats = 0  # how many loops and blocks are open
        self.symbols: frozenset[Var] | None = None  # known once the parameters are read
        self.reducing: set[object] = set()  # R and O iterators, while their block's init is read
        self.inputs: set[Buffer] = set()  # what must not be written

    # Binding.

    @contextmanager
    def scope(self, *, repeated: bool = False) -> Iterator[None]:
        """A scope; `repeated` where its statements may run several times."""
        self.scopes.append({})
        self.repeats += repeated
        try:
            yield
        finally:
            self.repeats -= repeated
            self.gone.update(self.scopes.pop())

    def bind(self, node: ast.AST, name: str, value: Expr | Buffer, what: str, *, fixed: bool = False) -> None:
        """Gives `name` its meaning in the innermost scope; a name that has one already is an error."""
        found = self.find(name)
        if found is not None:
            raise self.rebound(node, name, found)
        if name != "_":
            self.scopes[-1][name] = Binding(value, what, self.span(node), len(self.blocks), fixed or not self.repeats)

    def rebound(self, node: ast.AST, name: str, found: Binding) -> Error:
        """The error for binding a name a second time."""
        help_ = (
            f"take another name; to accumulate, use a buffer: {name} = alloc((1,), f32)" if found.what == "value" else "take another name"
        )
        line = f"it is the {found.what} of line {found.span.line}"
        return self.error(node, f"`{name}` is already defined and does not change", facts=[line], help=help_)

    def find(self, name: str) -> Binding | None:
        """The binding of a local name, if it has one."""
        return next((s[name] for s in reversed(self.scopes) if name in s), None)

    # Looking up.

    def lookup(self, node: ast.Name) -> object:
        """A local name if there is one, else what the name means in Python."""
        found = self.find(node.id)
        if found is not None:
            if found.block < len(self.blocks) and not found.fixed:
                raise self.outside_block(node, found)
            if found.value in self.reducing:
                help_ = "init runs before the first step of the reduction: it sees the S iterators only"
                raise self.error(node, f"`{node.id}` is no S iterator, and unknown in init", help=help_)
            return found.value
        if node.id not in self.source.scope and node.id in self.gone:
            gone = self.gone[node.id]
            fact = f"it is the {gone.what} of line {gone.span.line}, and known only to the end of the indented part there"
            raise self.error(node, f"`{node.id}` is not defined any more", facts=[fact])
        if node.id not in self.source.scope:
            raise self.source.undefined(node, [n for s in self.scopes for n in s])
        return self.source.scope[node.id]

    def resolve(self, node: ast.expr) -> object:
        """The object that a name or dotted name means; what kernels name themselves has no attributes."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = self.find(node.value.id)
            if found is not None:
                raise self.no_attribute(node, found)
        return super().resolve(node)

    def no_attribute(self, node: ast.Attribute, found: Binding) -> Error:
        """The error for `x.shape` and the like."""
        name, value = ast.unparse(node.value), found.value
        help_ = ""
        if isinstance(value, Buffer):
            help_ = dims_help(value) if node.attr in ("shape", "size", "ndim") else f"`{value}` is all that is known of it"
        return self.error(node, f"kernels have no `.{node.attr}`", facts=[f"`{name}` is a {found.what}"], help=help_)

    def outside_block(self, node: ast.Name, found: Binding) -> Error:
        """The error for using in a block what only its surroundings know."""
        return self.error(
            node,
            f"`{node.id}` cannot be used inside block `{self.blocks[-1]}`",
            facts=[f"it is the {found.what} of line {found.span.line}, outside of the block"],
            help=f'a block sees only its own iterators: bind it, as in block("{self.blocks[-1]}", "S", {node.id}) as v{node.id}',
        )

    def literal(self, node: ast.expr, found: object) -> Value:
        """A Python object as a value; a dim has to be one of the kernel's."""
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
        """The error for a name that means something that is no scalar."""
        if isinstance(found, Buffer):
            index = ", ".join("ijklmnpq"[: found.ndim])
            return self.error(
                node, f"`{found.name}` is a tensor, a number is expected here", help=f"take an element: {found.name}[{index}]"
            )
        return super().no_value(node, found)

    # Buffers.

    def buffer(self, node: ast.expr) -> Buffer:
        """The buffer that a name means."""
        found = self.resolve(node) if isinstance(node, ast.Name | ast.Attribute) else None
        if not isinstance(found, Buffer):
            raise self.error(node, f"`{ast.unparse(node)}` is not a tensor")
        return found

    def subscript(self, node: ast.Subscript) -> Value:
        """An element of a buffer."""
        return self.place(node)

    def place(self, node: ast.expr) -> Load:
        """`x[i, j]` as a place."""
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
        """The parts of a subscript, one for each dimension."""
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) != buffer.ndim:
            s = "s" * (buffer.ndim != 1)
            given = f"{len(items)} ind{'ices' if len(items) != 1 else 'ex'}"
            raise self.error(node, f"`{buffer.name}` has {buffer.ndim} dimension{s}, {given} given", facts=[f"`{buffer}`"])
        return items

    def in_range(self, node: ast.expr, buffer: Buffer, index: Expr, extent: Expr) -> None:
        """Refuses constant indices that are outside; the verifier proves the others."""
        if not isinstance(index, Const):
            return
        if index.value < 0:
            raise self.error(
                node, f"index {index.value} of `{buffer.name}` is negative", help="indices count from 0; none counts from the end"
            )
        if isinstance(extent, Const) and index.value >= extent.value:
            raise self.error(node, f"index {index.value} of `{buffer.name}` is out of range", facts=[f"the extent is {extent.value}"])

    def writable(self, node: ast.expr, buffer: Buffer) -> None:
        """Refuses writes to inputs."""
        if buffer in self.inputs:
            raise self.error(
                node,
                f"`{buffer.name}` is an input and cannot be written",
                facts=[f"its role is in: `{buffer}`"],
                help="annotate the parameter with Out[...] (written only) or InOut[...] (read and written)",
            )


def dims_help(buffer: Buffer) -> str:
    """What to write instead of a shape: the dims themselves."""
    if not buffer.shape:
        return f"`{buffer.name}` has no dims"
    shown = ", ".join(f"`{e}`" for e in buffer.shape)
    return f"use the dim of `{buffer.name}`: {shown}" if buffer.ndim == 1 else f"use the dims of `{buffer.name}`: {shown}"


def kernel_of(found: object) -> Func | None:
    """The loop program of a Python object, if it is a kernel: a Func, or something that carries one as `func`."""
    func = found if isinstance(found, Func) else getattr(found, "func", None)
    return func if isinstance(func, Func) else None
