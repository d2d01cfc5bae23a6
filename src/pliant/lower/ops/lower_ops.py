"""Lowers graph operators to calls of loop programs: each stage of an operator becomes one block.

    y = ops.rms_norm(x, w)   ->   y = call rms_norm(x, w), where rms_norm is a loop program of two blocks

Operators that only alias memory (reshape) stay, because the host program implements them as views. Operators on host scalars stay too: the
host program evaluates them. Operators that stages cannot express have a template: `build_templates.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...dtype import i64
from ...graph import node as g
from ...graph.op_table import TABLE
from ...graph.operators import tensor_of
from ...graph.stage import Indices, Read, Stage
from ...loop.buffer import Buffer
from ...loop.stmt import (
    NAMED_COMBINERS,
    Alloc,
    Block,
    Check,
    For,
    Func,
    Iter,
    IterKind,
    Let,
    Param,
    Reduce,
    Stmt,
    Store,
    exprs,
    seq,
    walk_stmts,
)
from ...support.errors import InternalError
from ...sym.expr import Const, Expr, Var
from ...sym.walk import walk
from ..callee import callee_of


def lower_ops(function: g.Function) -> g.Function:
    """Returns the function with every computing operator lowered to a CallLoop, also inside branches and loops."""
    numbers = {n.outs[0]: n for n in g.walk_nodes(function.nodes) if isinstance(n, g.Const) and n.array.ndim == 0}
    return function.with_(nodes=Lowering(numbers).nodes(function.nodes))


Numbers = Mapping[g.Value, g.Const]
T = TypeVar("T")


class Lowering:
    """Lowers the operators of one graph function to loop programs; equal operators, as in repeated layers, share one program."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.made: dict[Any, Any] = {}

    def nodes(self, nodes: Sequence[g.Node]) -> tuple[g.Node, ...]:
        return tuple(lowered for n in nodes for lowered in self.node(n))

    def node(self, n: g.Node) -> tuple[g.Node, ...]:
        """Lowers one node, also inside branches and loops, to one or more nodes; views, host scalars and other nodes stay."""
        match n:
            case g.Op() if _by_template(n):
                from .build_templates import lower_template

                return lower_template(n, self)
            case g.Op() if not TABLE[n.op].view and not isinstance(n.outs[0].annotation, g.Scalar):
                return (self.op(n),)
            case g.If():
                return (n.with_(then=self.body(n.then), orelse=self.body(n.orelse)),)
            case g.While():
                return (n.with_(cond=self.body(n.cond), body=self.body(n.body)),)
        return (n,)

    def body(self, b: g.Body) -> g.Body:
        return g.Body(b.params, self.nodes(b.nodes), b.results)

    def once(self, n: g.Op, make: Callable[[], T]) -> T:
        """Returns `make()`, memoized by operator, attributes, annotations, and the values of arguments that are literal numbers."""
        inputs = tuple((a.annotation, self.numbers[a].array.tobytes() if a in self.numbers else None) for a in n.args)
        key = (n.op, n.attrs, inputs, tuple(v.annotation for v in n.outs))
        if key not in self.made:
            self.made[key] = make()
        result: T = self.made[key]
        return result

    def op(self, n: g.Op) -> g.CallLoop:
        """Lowers one operator to a call of its loop program; arguments that are literal numbers become literals of the program."""
        callee, extra = self.once(n, lambda: self.program(n))
        args = tuple(a for a in n.args if a not in self.numbers)
        return g.CallLoop(
            outs=n.outs, requires=n.requires, origin=n.origin, span=n.span,
            callee=callee, args=(*args, *extra), dims=callee.symbols,
        )  # fmt: skip

    def program(self, n: g.Op) -> tuple[g.Callee, tuple[Var, ...]]:
        """Builds the loop program of an operator from its stages; returns it, and the symbols that its caller must pass."""
        make_stages = TABLE[n.op].stages
        assert make_stages is not None
        stages = make_stages(tuple(tensor_of(a.annotation) for a in n.args), tuple(v.tensor for v in n.outs), n.attrs)
        func, extra = func_of_stages(n.op, sources_of(n, self.numbers), stages, len(n.outs))
        return callee_of(func), extra


def _by_template(n: g.Op) -> bool:
    """True if the operator has a template that supports these arguments."""
    op = TABLE[n.op]
    return bool(op.template) and (op.fits is None or op.fits(tuple(tensor_of(a.annotation) for a in n.args), n.attrs))


def sources_of(n: g.Op, numbers: Numbers) -> list[Buffer | Expr]:
    """Returns the arguments of an operator as its loop program sees them: buffers, scalar variables, literals for rank-0 constants.

    Raises InternalError for an argument that is neither a tensor nor a scalar.
    """
    sources: list[Buffer | Expr] = []
    for i, a in enumerate(n.args):
        match a.annotation:
            case g.Tensor(dtype, shape) if a in numbers:
                sources.append(Const(numbers[a].array.item(), dtype))
            case g.Tensor(dtype, shape, strides=strides):
                sources.append(Buffer(f"x{i}", dtype, shape, strides))
            case g.Scalar(dtype):
                sources.append(Var(f"x{i}", dtype))
            case _:
                raise InternalError(f"argument {i} of `{n.op}` is {a.annotation}", where=n.span)
    return sources


def func_of_stages(name: str, sources: Sequence[Buffer | Expr], stages: Sequence[Stage], results: int) -> tuple[Func, tuple[Var, ...]]:
    """Returns the loop program of some stages, and its additional scalar parameters.

    Its parameters are the sources, then a scalar for each variable that no shape defines, then the `results` last stages.
    """
    named: dict[str, Buffer] = {}

    def read(which: int | str, *indices: Expr) -> Expr:
        source = named[which] if isinstance(which, str) else sources[which]
        return source.load(*indices) if isinstance(source, Buffer) else source

    params = tuple(Param(s) for s in sources if isinstance(s, Buffer | Var))
    outs: list[Buffer] = []
    body: list[Stmt] = []
    for number, stage in enumerate(stages):
        last = number >= len(stages) - results
        buffer = Buffer(stage.name, stage.dtype, stage.shape, scope="global" if last else "workspace")
        named[stage.name] = buffer
        if last:
            outs.append(buffer)
        else:
            body.append(Alloc(buffer))
        body.append(_stage_loops(stage, buffer, read))
    inside = seq(*body)
    written = tuple(Param(b, "out") for b in outs)
    known = Func(name, (*params, *written), inside)
    extra = tuple(v for v in free_variables(inside) if v not in known.symbols and v not in known.scalars)
    return known.with_(params=(*params, *(Param(v) for v in extra), *written)), extra


def _stage_loops(stage: Stage, buffer: Buffer, read: Read) -> Stmt:
    """Returns the loop nest of a stage: spatial loops, then reduction loops, around one block."""
    extents = (*stage.shape, *stage.reduce)
    spatial_kinds: list[IterKind] = ["S" for _ in stage.shape]
    kinds: list[IterKind] = spatial_kinds + ["R" for _ in stage.reduce]
    loops = [Var(f"{'ijklmnop'[i % 8]}{i // 8 or ''}", i64) for i in range(len(extents))]
    iters = tuple(Iter(Var(f"v{v.name}", i64), kind, v) for v, kind in zip(loops, kinds, strict=True))
    variables = tuple(i.var for i in iters)
    spatial, reduction = variables[: len(stage.shape)], variables[len(stage.shape) :]
    init, inside = _stage_body(stage, buffer, spatial, reduction, read)
    body: Stmt = Block(buffer.name, iters, inside, init)
    for var, extent in zip(reversed(loops), reversed(extents), strict=True):
        body = For(var, Const(0, i64), extent, "serial", body)
    return body


def _stage_body(stage: Stage, buffer: Buffer, at: Indices, point: Indices, read: Read) -> tuple[Stmt | None, Stmt]:
    """Returns the init statement of a stage (None without a reduction) and the statement at each point."""
    value = stage.value(at, point, read)
    combiner = NAMED_COMBINERS[stage.combiner]
    inside: Stmt = Reduce(combiner, (buffer.load(*at),), (value,)) if stage.reduce else Store(buffer, at, value)
    if stage.check is not None:
        inside = seq(Check(*stage.check(at, read)), inside)
    if not stage.reduce:
        return None, inside
    assert stage.init is not None
    return Store(buffer, at, stage.init), inside


def free_variables(s: Stmt) -> tuple[Var, ...]:
    """Returns the variables that the expressions of `s` use and `s` does not bind, in order of appearance."""
    bound: set[Var] = set()
    used: dict[Var, None] = {}
    for node in walk_stmts(s):
        if isinstance(node, For | Let):
            bound.add(node.var)
        elif isinstance(node, Block):
            bound.update(i.var for i in node.iters)
        for e in exprs(node):
            used.update((v, None) for v in walk(e) if isinstance(v, Var))
    return tuple(v for v in used if v not in bound)
