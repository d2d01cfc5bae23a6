"""Memory of the host program: the buffer of each graph value, temporaries with their lifetimes, and copies.

`Memory` knows where each value is: in the memory of an argument, a result or a constant, in a temporary of the workspace, or in a part of
one of these (a view). Each use of a value extends the lifetime of its temporary to the present step; the memory plan needs these lifetimes.

    buffer = memory.fresh(value)        # where a node writes its result: its place in a result, or a new temporary
    memory.buffer(value)                # where a node reads it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from ...dtype import f64, i64, u8
from ...graph import node as g
from ...graph.op_table import TABLE
from ...graph.operators import tensor_of
from ...loop.attributes import SCHEDULED
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Call, For, Func, Param, Stmt, Store, View
from ...support.errors import InternalError, UnsupportedError
from ...support.record import dataclass
from ...sym.expr import DIM_MAX, Bitcast, Cast, Const, Expr, Var, product
from ...sym.simplify import simplify
from .argument_checks import Layout, const
from .copy_elision import Places
from .runtime_dims import RunTimeDims

CopyKernel = Callable[[g.Tensor], tuple[Func, tuple[Expr, ...]]]  # returns the kernel and the values of its symbols


@dataclass(frozen=True, slots=True)
class Output:
    """A result: its name, its annotation, and the index of the state argument that it aliases (None if it aliases none).

    For each dim that only `run` knows, `counted_by` has the index of its count in `Layout.counts`.
    """

    name: str
    annotation: g.Tensor
    alias: int | None
    counted_by: tuple[int | None, ...] = ()


def is_view(node: g.Node) -> bool:
    """True if the node's result aliases its first argument under another shape."""
    return isinstance(node, g.MatchCast) or (isinstance(node, g.Op) and TABLE[node.op].view)


def bytes_of(b: Buffer) -> Expr:
    """Returns the size of a buffer in bytes."""
    return simplify((product(b.shape) * b.dtype.bits + 7) // 8 if b.dtype.bits < 8 else product(b.shape) * b.dtype.itemsize)


@dataclass(slots=True, eq=False)
class Temp:
    """A record of a temporary in the workspace: its buffer, and the first and last step of its lifetime."""

    buffer: Buffer
    raw: Buffer  # the same memory as bytes
    first: int
    last: int


def poison_kernel() -> Func:
    """Returns a loop program that fills memory with bytes 0xFF, which f16, bf16, f32 and f64 read as NaN."""
    memory, i = Buffer("memory", u8, (Var("size", i64),)), Var("i", i64)
    fill = For(i, const(0), memory.shape[0], "serial", Store(memory, (i,), Const(0xFF, u8)))
    return Func("poison", (Param(memory, "out"),), fill, SCHEDULED)


@dataclass(slots=True)
class Memory:
    """The memory of one function's values in the host program: which buffer or scalar each value is, or which part of one.

    Each use of a value extends the lifetime of its temporary to the present step.
    """

    function: g.Function
    outputs: tuple[Output, ...]
    layout: Layout
    copy_kernel: CopyKernel
    sizes: RunTimeDims
    values: dict[g.Value, Buffer | Expr] = field(default_factory=dict)
    home: dict[Buffer, Temp] = field(default_factory=dict)  # the temporary whose memory a buffer (or view) uses
    temps: list[Temp] = field(default_factory=list)
    placed: dict[g.Value, Buffer] = field(default_factory=dict)  # values that are written straight into a result instead of being copied
    constants: list[g.Const] = field(default_factory=list)
    raw: list[Param] = field(default_factory=list)
    prologue: list[Stmt] = field(default_factory=list)
    wanted: list[View] = field(default_factory=list)  # the views through which `placed` values are written
    places: Places = field(default_factory=Places)
    flat: dict[Buffer, Buffer] = field(default_factory=dict)  # one-dimensional views of buffers
    launched: dict[Call, g.CallLoop] = field(default_factory=dict)
    targets: list[Buffer | None] = field(default_factory=list)
    consumed: set[g.Value] = field(default_factory=set)  # state that some node updates in place
    ends: Sequence[int] | None = None  # last step of each temporary; set only in poison mode
    fill: Func = field(default_factory=poison_kernel)
    checked: bool = False  # checks arithmetic on host scalars for overflow and division by zero
    dims: Buffer = field(default_factory=lambda: Buffer("dims", i64, (const(0),)))
    step: int = 0

    # Arguments, results and constants: memory that the caller or the package owns.

    def pointer(self, name: str, t: g.Tensor, role: str) -> Buffer:
        """Adds a raw pointer parameter to `run`, and a view that gives it the shape of `t`; returns the view."""
        raw = Buffer(f"{name}_raw", u8, (const(DIM_MAX),))
        self.raw.append(Param(raw, role))  # type: ignore[arg-type]
        buffer = Buffer(name, t.dtype, t.shape, t.strides)
        self.prologue.append(View(buffer, raw, (const(0),)))
        return buffer

    def argument(self, p: g.Value, at: int) -> None:
        """Sets the value of a parameter.

        This is a view of its pointer, or for a scalar its known value, else what is read from its slot in `dims`. Raises UnsupportedError
        for a parameter that is neither a tensor nor a scalar.
        """
        match p.annotation:
            case g.Tensor() as t:
                self.values[p] = self.pointer(p.name, t, "inout" if t.state else "in")
            case g.Scalar(value=Expr() as known):
                self.values[p] = known
            case g.Scalar(dtype=dtype):
                slot: Expr = self.dims.load(const(at))
                wide = Bitcast(f64, slot) if dtype.is_float else slot
                self.values[p] = wide if dtype is wide.dtype else Cast(dtype, wide)
            case _:
                raise UnsupportedError(f"a parameter of kind {p.annotation} is not supported at the border of a compiled program")

    def output(self, number: int, o: Output) -> Buffer | None:
        """Returns the buffer of a result; None for state, which already is in the memory of its argument."""
        if o.alias is None:
            return self.pointer(f"result_{number}", self.layout.outputs[number], "out")
        self.pointer(f"result_{number}", o.annotation, "inout")  # the ABI passes a pointer per output; this one aliases the state
        return None

    def find_constants(self, nodes: Sequence[g.Node]) -> None:
        """Creates the buffers of literal tensors, also inside branches and loops; raises for packed sub-byte literals."""
        for n in nodes:
            if isinstance(n, g.Const):
                if n.outs[0].tensor.dtype.bits < 8:
                    what = f"a literal tensor of {n.outs[0].tensor.dtype} is not supported"
                    raise UnsupportedError(what, where=n.span, help="make it a parameter, which takes packed bytes")
                self.values[n.outs[0]] = self.pointer(f"constant_{len(self.constants)}", n.outs[0].tensor, "in")
                self.constants.append(n)
            for b in g.bodies(n):
                self.find_constants(b.nodes)

    # Temporaries and lifetimes.

    def place(self, value: g.Value, target: Buffer, defined: dict[g.Value, g.Node]) -> None:
        """Has the producer of `value` write straight into `target`, if the value is a fresh result of a kernel or of an `if`."""
        node = defined.get(value)
        if node is None or value in self.placed or not isinstance(value.annotation, g.Tensor) or value.annotation.state:
            return
        target = self.sizes.whole(target)
        if is_view(node):
            source = g.node_args(node)[0]
            if not isinstance(source.annotation, g.Tensor):
                return
            shape = self.sizes.at_capacity(source.tensor).shape
            if simplify(product(shape)) is not simplify(product(target.shape)):
                return  # the source needs more memory than the target has
            buffer = Buffer(source.name, source.tensor.dtype, shape, scope=target.scope)
            view = View(buffer, target, zeros(target))
            self.wanted.append(view)
            self.place(source, buffer, defined)
            if self.placed.get(source) is buffer:
                self.placed[value] = target
            else:
                self.wanted.remove(view)
        elif isinstance(node, g.CallLoop | g.If):
            self.placed[value] = target

    def fresh(self, value: g.Value) -> Buffer:
        """Returns the buffer of a new value: its chosen place in a result or in a concatenated value, or a new temporary."""
        if value in self.placed:
            return self.part(self.placed[value], value.name, tensor_of(value.annotation).shape)
        if value in self.places.within:
            whole, at = self.places.within[value]
            memory = self.flattened(self.joined(whole), self.wanted)
            buffer = Buffer(value.name, memory.dtype, value.tensor.shape, scope=memory.scope)
            self.wanted.append(View(buffer, memory, (at,)))
            return self.in_home_of(memory, buffer)
        return self.temporary(value.name, tensor_of(value.annotation))

    def joined(self, whole: g.Value) -> Buffer:
        """Returns the memory of a concatenated value; it is allocated when the first of its parts is written."""
        if whole not in self.values:
            self.values[whole] = self.fresh(whole)
        return self.buffer(whole)

    def flattened(self, b: Buffer, views: list[View]) -> Buffer:
        """Returns a one-dimensional view of a buffer; appends the view statement to `views` if it is new."""
        if b not in self.flat:
            self.flat[b] = flat = Buffer(f"{b.name}_flat", b.dtype, (simplify(product(b.shape)),), scope=b.scope)
            views.append(View(flat, b, zeros(b)))
            self.in_home_of(b, flat)
        return self.flat[b]

    def in_home_of(self, source: Buffer, buffer: Buffer) -> Buffer:
        """Records that `buffer` aliases the temporary of `source`, and returns `buffer`."""
        if source in self.home:
            self.home[buffer] = self.home[source]
        return buffer

    def temporary(self, name: str, t: g.Tensor) -> Buffer:
        """Allocates a temporary in the workspace that is alive from this step on."""
        buffer = Buffer(name, t.dtype, self.sizes.at_capacity(t).shape, scope="workspace")
        temp = Temp(buffer, Buffer(f"{name}_raw", u8, (bytes_of(buffer),)), self.step, self.step)
        self.temps.append(temp)
        self.home[buffer] = temp
        return self.part(buffer, name, t.shape)

    def part(self, whole: Buffer, name: str, shape: tuple[Expr, ...]) -> Buffer:
        """Returns a buffer of the given shape over memory that was sized for the capacity.

        `whole` itself if no dim is known only at run time.
        """
        return self.in_home_of(whole, self.sizes.part(whole, name, shape))

    def buffer(self, value: g.Value) -> Buffer:
        """Returns the buffer of a tensor value; if it is a temporary, its lifetime now includes the current step.

        Raises an InternalError for a scalar.
        """
        buffer = self.values[value]
        if not isinstance(buffer, Buffer):
            raise InternalError(f"`{value.name}` is a scalar where a tensor is wanted")
        if buffer in self.home:
            self.home[buffer].last = self.step
        return buffer

    def copy(self, value: g.Value, target: Buffer) -> list[Stmt]:
        """Returns statements that copy `value` to `target`; none if it is there already."""
        current = self.values[value]
        if isinstance(current, Buffer) and self.sizes.whole(current) is self.sizes.whole(target):
            return []
        self.step += 1
        if isinstance(value.annotation, g.Scalar):
            return [Store(target, zeros(target), self.scalar(value)), *self.poison_dead()]
        target = self.part(target, target.name, self.buffer(value).shape)
        return [self.copy_tensor(self.buffer(value), target), *self.poison_dead()]

    def copy_tensor(self, source: Buffer, target: Buffer) -> Stmt:
        func, dims = self.copy_kernel(g.Tensor(source.dtype, source.shape, strides=source.strides))
        return Call(func, (source, target), dims)

    def scalar(self, value: g.Value | Expr) -> Expr:
        """Returns the expression of a host scalar; loads it if a kernel computed it."""
        if isinstance(value, Expr):
            return value
        known = self.values[value]
        if isinstance(known, Expr):
            return known
        return Load(self.buffer(value), zeros(known))

    # Poison mode: `ends` comes from a previous walk over the same nodes, so its step numbers are those of this walk.

    def poison_new(self, known: int) -> list[Stmt]:
        """In poison mode: returns statements that fill the temporaries after the first `known` ones, those that were just created.

        Without poison mode there are none.
        """
        return [self.poison(t) for t in self.temps[known:]] if self.ends is not None else []

    def poison_dead(self) -> list[Stmt]:
        """Returns statements that fill the temporaries whose last use is this step; none unless the program is compiled in poison mode."""
        return [self.poison(t) for t, end in zip(self.temps, self.ends, strict=False) if end == self.step] if self.ends is not None else []

    def poison(self, t: Temp) -> Stmt:
        return Call(self.fill, (t.raw,), t.raw.shape)


def zeros(b: Buffer) -> tuple[Expr, ...]:
    """Returns the indices of a buffer's first element: a 0 for each dim."""
    return tuple(const(0) for _ in b.shape)
