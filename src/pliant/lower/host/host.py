"""Builds the host program: the loop program `run` that calls the kernels of a lowered graph function in order.

`run` binds the symbolic dims, puts shaped views over the raw argument and output pointers, slices the workspace by the memory plan, and
calls the kernels. A graph `if` on a value that a kernel computed becomes an `if` statement. Arithmetic on host scalars becomes
expressions. The first buffer of `run` is the `dims` array of the ABI; the others are raw bytes: arguments, outputs, constants.

Copy elision (`lower.host.copy_elision`) removes calls that only copy contiguous ranges. If it removes more of them when a dim is 1, `run`
has two variants, each with its own memory plan, and chooses between them at run time.

Poison mode finds memory-plan bugs: it fills every temporary with bytes 0xFF (NaN for floats) before its first write and after its last
use. So a plan that reuses memory too early, or a kernel that reads uninitialized memory, gives visibly wrong results.

    @kernel
    def run(dims: InOut[i64, 9], x_raw: Tensor[u8, 2147483647], y_raw: Out[u8, 2147483647]) -> None:
        n = dims[4]
        x = view(x_raw[0], (n, 64), dtype=f32)
        y = view(y_raw[0], (n, 64), dtype=f32)
        workspace = alloc((n * 256,), u8, scope="workspace")
        t = view(workspace[0], (n, 64), dtype=f32)
        silu(x, t, dims=(n,))
        neg(t, y, dims=(n,))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from ...dtype import bool_, f64, i64, u8
from ...graph import node as g
from ...graph.node import annotation_exprs, is_state
from ...graph.op_table import TABLE
from ...graph.operators import tensor_of
from ...graph.stage import Stage
from ...loop.attributes import SCHEDULED
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Alloc, Call, Check, For, Func, If, Let, Param, Seq, Stmt, Store, View, seq, walk_stmts
from ...support.errors import InternalError, UnsupportedError
from ...support.record import dataclass
from ...sym.conditions import all_of
from ...sym.expr import DIM_MAX, Bitcast, Cast, Const, Eq, Expr, Max, Ne, Select, Var, free_vars, product, substitute
from ...sym.simplify import simplify
from ..callee import func_of
from .argument_checks import Layout, const, entry, layout_of, prepare_func, size_func
from .capacity import at_capacity, run_time_dims
from .contiguous_copies import Range
from .copy_elision import NO_ELISION, CopyElision, Places, Ranges, choose_places
from .memory_plan import Plan, Temporary, plan_memory
from .runtime_dims import RunTimeDims, counted_by
from .scalar_checks import scalar_checks, size_checks
from .state_versions import alias_of, versions
from .while_loops import emit_while

if TYPE_CHECKING:
    from ...graph.ops.dynamic_dims import BindAttrs  # for annotations only: a module imports an operator only if it uses it

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


@dataclass(frozen=True, slots=True)
class HostProgram:
    """The three entry functions of a compiled function, with the facts that its package records."""

    prepare: Func
    size: Func
    run: Func
    layout: Layout
    outputs: tuple[Output, ...]
    constants: tuple[g.Const, ...]
    plan: Plan  # offsets of the first variant; the size covers all variants
    temporaries: tuple[Temporary, ...]
    launches: tuple[tuple[g.CallLoop | None, ...], ...]  # the graph node of each kernel call, per variant; None for an inserted copy


def build_host(
    function: g.Function,
    copy_kernel: CopyKernel,
    poison: bool = False,
    share: bool = True,
    checked: bool = False,
    moves: CopyElision = NO_ELISION,
) -> HostProgram:
    """Returns the host program of a lowered function.

    `copy_kernel` makes a kernel that copies a tensor. With `share`, temporaries that are not alive together share memory.
    """
    limits = run_time_dims(function)
    results = [tensor_of(g.made(r.annotation)) for r in function.results]
    counts = tuple(dict.fromkeys(e for t in results for e in t.shape if not free_vars(e).isdisjoint(limits)))
    layout = layout_of(function, [at_capacity(t, limits) for t in results], counts)
    aliases = [alias_of(function, r) for r in function.results]
    names = [name if a is None else function.params[a].name for name, a in zip(layout.names, aliases, strict=True)]
    outputs = tuple(Output(name, t, a, counted_by(t, counts)) for name, t, a in zip(names, results, aliases, strict=True))
    run = Run(function, outputs, layout, copy_kernel, RunTimeDims(limits), checked=checked)
    run.outside()
    ways = run.ways(moves, share, poison)
    size = ways[0].plan.size if len(ways) == 1 else Select(_all_1(moves.ones), *(w.plan.size for w in ways))
    requires = [r for n in function.nodes for r in n.requires if free_vars(r.cond).isdisjoint(limits)]
    shapes = [(f"output `{name}`", t.shape) for name, t in zip(names, layout.outputs, strict=True)]
    shapes += [(f"the temporary `{t.buffer.name}`", t.buffer.shape) for w in ways for t in w.run.temps]
    shapes += _views(function)
    return HostProgram(
        prepare_func(layout, requires, shapes, size),
        size_func(layout, shapes, size),
        run.finish(ways, _all_1(moves.ones), size),
        layout,
        outputs,
        tuple(run.constants),
        Plan(ways[0].plan.offsets, size),
        ways[0].temporaries,
        tuple(w.launches() for w in ways),
    )


def _views(function: g.Function) -> list[tuple[str, tuple[Expr, ...]]]:
    """Returns the shapes of reshaped values, to be checked for overflow: a wrapped product could match the true size by accident."""
    known = {v for p in function.params for e in annotation_exprs(p.annotation) for v in free_vars(e)}
    views = [n.outs[0] for n in g.walk_nodes(function.nodes) if is_view(n) and isinstance(n.outs[0].annotation, g.Tensor)]
    return [(f"`{v.name}`", v.tensor.shape) for v in views if all(free_vars(e) <= known for e in v.tensor.shape)]


def _all_1(dims: Iterable[Var]) -> Expr:
    return all_of(*(Eq(d, const(1)) for d in dims))


def is_view(node: g.Node) -> bool:
    """True if the node's result aliases its first argument under another shape."""
    return isinstance(node, g.MatchCast) or (isinstance(node, g.Op) and TABLE[node.op].view)


def _bytes(b: Buffer) -> Expr:
    return simplify((product(b.shape) * b.dtype.bits + 7) // 8 if b.dtype.bits < 8 else product(b.shape) * b.dtype.itemsize)


@dataclass(slots=True, eq=False)
class _Temp:
    """A temporary in the workspace, with its lifetime in steps."""

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
class Run:
    """Builds `run`: walks the nodes once and numbers the steps, which gives the lifetime of each temporary for the memory plan."""

    function: g.Function
    outputs: tuple[Output, ...]
    layout: Layout
    copy_kernel: CopyKernel
    sizes: RunTimeDims
    values: dict[g.Value, Buffer | Expr] = field(default_factory=dict)
    home: dict[Buffer, _Temp] = field(default_factory=dict)  # the temporary whose memory a buffer (or view) uses
    temps: list[_Temp] = field(default_factory=list)
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

    def outside(self) -> None:
        """Creates the buffers of arguments, results and constants, which all variants share."""
        self.dims = self.layout.buffer()
        for p, at in self.layout.arguments():
            self.argument(p, at)
        self.targets = [self.output(i, o) for i, o in enumerate(self.outputs)]
        self.find_constants(self.function.nodes)
        self.consumed = {old for n in g.walk_nodes(self.function.nodes) for old, _ in versions(n)}

    def ways(self, moves: CopyElision, share: bool, poison: bool) -> list[Way]:
        """Returns the general variant, preceded by one for dims of 1 if that one elides more copies."""
        first = self.fresh_way()
        general = first.variant(moves.always, frozenset(), share, poison)
        if not moves.case:
            return [general]
        second = self.fresh_way()
        special = second.variant(moves.case, moves.ones, share, poison)
        return [special, general] if len(second.places.joined) > len(first.places.joined) else [general]

    def fresh_way(self) -> Run:
        """Returns a new walk over the nodes that has only the buffers of arguments, results and constants."""
        clean: dict[str, Any] = {"home": {}, "temps": [], "placed": {}, "wanted": [], "flat": {}, "step": 0}
        return replace(self, values=dict(self.values), sizes=RunTimeDims(self.sizes.limits), places=Places(), **clean)

    def variant(self, moved: Ranges, ones: frozenset[Var], share: bool, poison: bool) -> Way:
        """Builds one variant: copies in `moved` are elided, under the assumption that the dims `ones` are 1."""
        again = self.fresh_way() if poison else None
        body = self.body(moved, ones)
        known: dict[Var, Expr] = {d: const(1) for d in ones}
        temporaries = tuple(Temporary(simplify(substitute(_bytes(t.buffer), known)), t.first, t.last) for t in self.temps)
        plan = plan_memory(temporaries, share)
        if again is not None:  # poison needs the last use of each temporary, which only the first walk has found
            again.ends = [t.last for t in temporaries]
            return Way(again, again.body(moved, ones), plan, temporaries)
        return Way(self, body, plan, temporaries)

    def body(self, moved: Ranges, ones: frozenset[Var]) -> list[Stmt]:
        """Emits all nodes of the function, copies results that were not written in place, and stores the counts of run-time dims."""
        defined = {out: n for n in self.function.nodes for out in n.outs}
        for target, result in zip(self.targets, self.function.results, strict=True):
            if target is not None:
                self.place(result, target, defined)
        self.places = choose_places(self.function, moved, ones, self.placed)
        body = self.nodes(self.function.nodes)
        for target, result in zip(self.targets, self.function.results, strict=True):
            if target is not None:
                body += self.copy(result, target)
        at = self.layout.at_counts
        body += [Store(self.dims, (const(at + i),), e) for i, e in enumerate(self.layout.counts)]
        return [self.sizes.with_views(Seq(tuple(body)))] if self.sizes.bound else body

    def finish(self, ways: Sequence[Way], first: Expr, size: Expr) -> Func:
        """Returns the function `run`: the only variant, or both under the condition `first`."""
        workspace = Buffer("workspace", u8, (size,), scope="workspace")
        bodies = [Seq(w.statements(workspace)) for w in ways]
        body = bodies[0].body if len(ways) == 1 else (If(first, bodies[0], bodies[1]),)
        memory = [Alloc(workspace)] if any(w.temporaries for w in ways) else []
        dims = Param(self.dims, "inout" if self.layout.counts else "in")
        return entry("run", (dims, *self.raw), (*self.layout.load_symbols(self.dims), *self.prologue, *memory, *body), host=True)

    # Arguments, results and constants: memory that the caller or the package owns.

    def pointer(self, name: str, t: g.Tensor, role: str) -> Buffer:
        """Adds a raw pointer parameter to `run`, and a view that gives it the shape of `t`; returns the view."""
        raw = Buffer(f"{name}_raw", u8, (const(DIM_MAX),))
        self.raw.append(Param(raw, role))  # type: ignore[arg-type]
        buffer = Buffer(name, t.dtype, t.shape, t.strides)
        self.prologue.append(View(buffer, raw, (const(0),)))
        return buffer

    def argument(self, p: g.Value, at: int) -> None:
        """Creates the value of a parameter: a view of its pointer, or a scalar that is read from its slot in `dims`."""
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
        """Returns the buffer of a new value: its chosen place in a result, or a new temporary."""
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
        temp = _Temp(buffer, Buffer(f"{name}_raw", u8, (_bytes(buffer),)), self.step, self.step)
        self.temps.append(temp)
        self.home[buffer] = temp
        return self.part(buffer, name, t.shape)

    def part(self, whole: Buffer, name: str, shape: tuple[Expr, ...]) -> Buffer:
        """Returns a buffer of the given shape over memory that was sized for the capacity."""
        return self.in_home_of(whole, self.sizes.part(whole, name, shape))

    def bind(self, n: g.Op, attrs: BindAttrs) -> list[Stmt]:
        """Binds a computed number to a run-time dim (operator `bind_dim`)."""
        self.values[n.outs[0]] = attrs.dim
        return self.sizes.bind(attrs.dim, attrs.most, self.scalar(n.args[0]), n.span)

    def buffer(self, value: g.Value) -> Buffer:
        """Returns the memory of a value, and extends its lifetime to this step."""
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

    # Poison mode: `ends` comes from a previous walk over the same nodes, so its step numbers are those of this walk.

    def poison_new(self, known: int) -> list[Stmt]:
        """In poison mode: fills the temporaries after the first `known` ones, which are those that were just created."""
        return [self.poison(t) for t in self.temps[known:]] if self.ends is not None else []

    def poison_dead(self) -> list[Stmt]:
        """In poison mode: fills the temporaries whose last use is this step."""
        return [self.poison(t) for t, end in zip(self.temps, self.ends, strict=False) if end == self.step] if self.ends is not None else []

    def poison(self, t: _Temp) -> Stmt:
        return Call(self.fill, (t.raw,), t.raw.shape)

    # Nodes.

    def nodes(self, nodes: Sequence[g.Node]) -> list[Stmt]:
        """Emits the nodes in order, with their checks; each node is one step of the lifetimes."""
        stmts: list[Stmt] = []
        for n in nodes:
            self.step += 1
            stmts += [Check(r.cond, r.message, r.values, r.help, "shape", r.span) for r in n.requires]
            known = len(self.temps)
            if isinstance(n, g.Const):
                continue
            if is_view(n):
                node_stmts = self.view(n)
            elif n.outs and n.outs[0] in self.places.views:
                node_stmts = self.range_view(n.outs[0], self.places.views[n.outs[0]])
            elif n.outs and n.outs[0] in self.places.joined:
                node_stmts = self.join(n.outs[0])
            elif isinstance(n, g.CallLoop):
                node_stmts = self.call(n)
            elif isinstance(n, g.If):
                stmts += self.branch(n)
                continue
            elif isinstance(n, g.While):
                stmts += emit_while(self, n)
                continue
            elif isinstance(n, g.Op) and n.op == "bind_dim":
                node_stmts = self.bind(n, n.attrs)
            elif isinstance(n, g.Op) and isinstance(n.outs[0].annotation, g.Scalar):
                node_stmts = self.host_scalar(n, n.outs[0].annotation)
            else:
                raise UnsupportedError(f"{type(n).__name__} cannot be compiled yet", where=n.span)
            stmts += [*self.poison_new(known), *node_stmts, *self.poison_dead()]
        return stmts

    def host_scalar(self, n: g.Op, out: g.Scalar) -> list[Stmt]:
        """Emits an operator on host scalars: an expression over dims if its value is known, else its formula."""
        if out.value is not None:
            self.values[n.outs[0]] = out.value
            return size_checks(n, out.value) if self.checked else []
        args = [self.scalar(a) for a in n.args]
        make = TABLE[n.op].stages
        assert make is not None
        (stage,) = make(tuple(tensor_of(a.annotation) for a in n.args), (tensor_of(out),), n.attrs)
        assert isinstance(stage, Stage)
        formula = stage.value
        checks = scalar_checks(n, lambda given: formula((), (), lambda k, *_: given[int(k)]), args) if self.checked else []
        return [*checks, self.let(n.outs[0], formula((), (), lambda k, *_: args[int(k)]))]

    def let(self, value: g.Value, e: Expr) -> Stmt:
        """Evaluates a host scalar now: the memory that it is read from may be reused before its first use."""
        var = Var(value.name, e.dtype)
        self.values[value] = var
        return Let(var, e)

    def view(self, n: g.Node) -> list[Stmt]:
        """Emits a reshape: an alias if possible, else a copy (for strided sources, and for state that is updated later)."""
        value, out = g.node_args(n)[0], n.outs[0]
        if isinstance(value.annotation, g.Scalar):
            self.values[out] = buffer = self.fresh(out)
            return [Store(buffer, zeros(buffer), self.scalar(value))]
        source = self.buffer(value)
        if out in self.placed:
            self.values[out] = self.part(self.placed[out], out.name, out.tensor.shape)
            return []
        # A view of state must not show later in-place updates, so it is a copy.
        later = is_state(value) and not is_state(out) and value in self.consumed
        if later or (source.strides is not None and not is_state(out)):
            self.values[out] = buffer = self.fresh(out)
            same = Buffer(value.name, source.dtype, source.shape, scope=buffer.scope)
            return [View(same, buffer, zeros(buffer)), self.copy_tensor(source, same)]
        if source.shape == out.tensor.shape:
            self.values[out] = source
            return []
        buffer = Buffer(out.name, source.dtype, out.tensor.shape, out.tensor.strides, source.scope)
        self.values[out] = self.in_home_of(source, buffer)
        return [View(buffer, source, zeros(source))]

    def range_view(self, out: g.Value, r: Range) -> list[Stmt]:
        """Emits a value that is a contiguous range of another one, as a view."""
        views: list[View] = []
        buffer = self.cut(self.buffer(r.source), r.start, out.name, out.tensor.shape, views)
        self.values[out] = buffer
        return [*views]

    def cut(self, source: Buffer, start: Expr, name: str, shape: tuple[Expr, ...], views: list[View]) -> Buffer:
        """Returns a view of `source` with the given shape that begins at element `start`; appends the view statements to `views`."""
        buffer = Buffer(name, source.dtype, shape, scope=source.scope)
        views.append(View(buffer, self.flattened(source, views), (start,)))
        return self.in_home_of(source, buffer)

    def join(self, out: g.Value) -> list[Stmt]:
        """Emits a concatenated value: copies only the parts that their producers did not write in place."""
        whole, stmts = self.joined(out), []
        for r in self.places.joined[out]:
            views: list[View] = []
            source = self.cut(self.buffer(r.source), r.start, r.source.name, (r.count,), views)
            target = self.cut(whole, r.at, out.name, (r.count,), views)
            stmts += [*views, self.copy_tensor(source, target)]
        return stmts

    def call(self, n: g.CallLoop) -> list[Stmt]:
        """Emits a kernel call; copies strided arguments to contiguous temporaries if the kernel needs that."""
        func = func_of(n.callee)
        dims = dict(zip(func.symbols, n.dims, strict=True))
        inputs, outs = iter(n.args), iter(n.outs)
        args: list[Buffer | Expr] = []
        before: list[Stmt] = []
        after: list[Stmt] = []
        for p in func.params:
            if p.role == "out":
                assert isinstance(p.value, Buffer)
                out = next(outs)
                self.values[out] = target = self.fresh(out)
                args.append(self.strided(p.value, target, dims, before, after))
                continue
            value = next(inputs)
            if isinstance(p.value, Buffer):
                assert isinstance(value, g.Value)
                source = self.buffer(value)
                if p.role == "inout":
                    self.values[next(outs)] = source
                elif source.strides is not None and p.value.strides is None:
                    plain = self.temporary(value.name, g.Tensor(source.dtype, source.shape))
                    before.append(self.copy_tensor(source, plain))
                    source = plain
                args.append(source)
            else:
                args.append(self.scalar(value))
        call = Call(func, tuple(args), n.dims, n.span)
        self.launched[call] = n
        return [*before, call, *after]

    def strided(self, p: Buffer, target: Buffer, dims: dict[Var, Expr], before: list[Stmt], after: list[Stmt]) -> Buffer:
        """Returns the buffer that a kernel writes an output to.

        It is `target`, or a temporary if the kernel declares other strides; `after` then copies it to `target`.
        """
        strides = tuple(simplify(substitute(e, dims)) for e in p.strides) if p.strides is not None else None
        if strides is None or all(a is simplify(b) for a, b in zip(strides, target.element_strides(), strict=True)):
            return target
        last: Expr = const(0)
        for e, s in zip(target.shape, strides, strict=True):
            last = last + Max(e - const(1), const(0)) * s
        whole = self.temporary(f"{target.name}_whole", g.Tensor(target.dtype, (simplify(last + const(1)),)))
        strided = Buffer(target.name, target.dtype, target.shape, strides, scope="workspace")
        before.append(View(strided, whole, zeros(whole)))
        after.append(self.copy_tensor(strided, target))
        return strided

    def scalar(self, value: g.Value | Expr) -> Expr:
        """Returns the expression of a host scalar; loads it if a kernel computed it."""
        if isinstance(value, Expr):
            return value
        known = self.values[value]
        if isinstance(known, Expr):
            return known
        return Load(self.buffer(value), zeros(known))

    def branch(self, n: g.If) -> list[Stmt]:
        """Emits an `if`: both branches write their results to the same buffers."""
        cond = self.scalar(n.cond)
        cond = cond if cond.dtype is bool_ else Ne(cond, Const(0, cond.dtype))
        states = {new: old for old, new in versions(n)}
        known = len(self.temps)
        targets: list[Buffer | None] = []
        for out in n.outs:
            if out in states:
                self.values[out] = self.buffer(states[out])
                targets.append(None)
            else:
                buffer = self.fresh(out)
                self.values[out] = buffer
                targets.append(buffer)
        poison_new = self.poison_new(known)
        then, orelse = (self.branch_body(b, targets) for b in (n.then, n.orelse))
        self.step += 1
        for out in n.outs:
            self.buffer(out)
        lets = [self.let(out, self.scalar(out)) for out in n.outs if isinstance(out.annotation, g.Scalar)]
        return [*poison_new, If(cond, then, orelse, n.span), *lets, *self.poison_dead()]

    def branch_body(self, b: g.Body, targets: list[Buffer | None]) -> Stmt:
        """Emits the statements of a branch; results go straight to their targets if possible."""
        defined = {out: n for n in b.nodes for out in n.outs}
        for result, target in zip(b.results, targets, strict=True):
            if target is not None:
                self.place(result, target, defined)
        stmts = self.nodes(b.nodes)
        for result, target in zip(b.results, targets, strict=True):
            if target is not None:
                stmts += self.copy(result, target)
        return seq(*stmts) if stmts else Seq(())


@dataclass(frozen=True, slots=True)
class Way:
    """One variant of `run`: the walk that built it, its statements, and its memory plan."""

    run: Run
    body: list[Stmt]
    plan: Plan
    temporaries: tuple[Temporary, ...]

    def statements(self, workspace: Buffer) -> tuple[Stmt, ...]:
        """Returns all statements of the variant; views that slice the workspace come first."""
        placed = list(zip(self.run.temps, self.plan.offsets, strict=True))
        raw = [View(t.raw, workspace, (at,)) for t, at in placed] if self.run.ends is not None else []
        return (*(View(t.buffer, workspace, (at,)) for t, at in placed), *raw, *self.run.wanted, *self.body)

    def launches(self) -> tuple[g.CallLoop | None, ...]:
        """Returns the graph node of each kernel call, in order; None for a copy that no node stands for."""
        return tuple(self.run.launched.get(s) for s in walk_stmts(Seq(tuple(self.body))) if isinstance(s, Call))


def zeros(b: Buffer) -> tuple[Expr, ...]:
    """Returns the indices of the first element of a buffer."""
    return tuple(const(0) for _ in b.shape)
