"""Builds the entry functions that work on shapes: `prepare` checks the arguments and binds the symbols, `size` computes output sizes.

Both are loop programs over the `dims` array of the ABI (docs/design/0001-abi.md), their only buffer:

    A  for each tensor argument its shape, then its strides in elements; then the value of each scalar argument
    B  the symbols          C  the shapes of the outputs          D  the bytes of the workspace
    E  the dims of outputs that only `run` knows; C holds their upper bounds

    @kernel
    def prepare(dims: InOut[i64, 9]) -> None:
        n = dims[0]
        check(0 <= n and n <= 2048 and n % 8 == 0, "`n` = {0} is outside its contract: n in 0..2048 step 8", n)
        check(dims[1] == 64, "argument `x`: dim 1 is {0}, expected {1}", dims[1], 64)
        ...
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from ...dtype import i64
from ...graph import node as g
from ...graph.node import stride_exprs
from ...loop.attributes import FuncAttrs
from ...loop.buffer import Buffer, Load
from ...loop.passes.instantiate import instantiate
from ...loop.stmt import Check, Func, Let, Param, Seq, Stmt, Store
from ...support.errors import Error, UnsupportedError
from ...support.record import dataclass
from ...sym.conditions import all_of
from ...sym.expr import DIM_MAX, FALSE, TRUE, Const, Dim, Eq, Expr, FloorMod, Le, Lt, Mul, Not, Or, Select, Var, free_vars, product
from ...sym.facts import EMPTY
from ...sym.prove import prove
from ...sym.simplify import simplify

# A tensor that has at most this many elements by its contract needs no run-time check: the bytes of thousands of them still fit into i64.
_CERTAIN = 2**48
LIMIT = 2**40  # most elements of one tensor: far above any memory, far below where i64 arithmetic on sizes could overflow


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of the i64 array `dims` that the entry functions of a program share: where its parts A to E begin."""

    params: tuple[g.Value, ...]
    symbols: tuple[Var, ...]
    outputs: tuple[g.Tensor, ...]
    names: tuple[str, ...]  # of the outputs
    counts: tuple[Expr, ...] = ()  # part E
    narrowed: Mapping[Var, g.Require] = field(default_factory=dict)  # the requirement that narrowed a dim below its declared contract
    relations: tuple[g.Require, ...] = ()  # what is declared about several dims

    @property
    def at_symbols(self) -> int:
        """The position in the `dims` array at which part B, the symbols, begins."""
        return sum(slots_of(p) for p in self.params)

    @property
    def at_outputs(self) -> int:
        """The position in the `dims` array at which part C, the shapes of the outputs, begins."""
        return self.at_symbols + len(self.symbols)

    @property
    def at_workspace(self) -> int:
        """The position in the `dims` array of D, the size of the workspace."""
        return self.at_outputs + sum(len(t.shape) for t in self.outputs)

    @property
    def at_counts(self) -> int:
        """The position in the `dims` array at which part E, the counts, begins."""
        return self.at_workspace + 1

    def buffer(self) -> Buffer:
        """Returns a new buffer (compared by identity) for the `dims` array, to be a parameter of a loop program."""
        return Buffer("dims", i64, (const(self.at_counts + len(self.counts)),))

    def arguments(self) -> Iterator[tuple[g.Value, int]]:
        """Yields each parameter with the index of its first slot: tensors first, then scalars."""
        at = 0
        for p in sorted(self.params, key=lambda p: not isinstance(p.annotation, g.Tensor)):
            yield p, at
            at += slots_of(p)

    def load_symbols(self, dims: Buffer) -> list[Stmt]:
        """Returns lets that load the symbols from the `dims` array, then checks of their contracts, on which later statements rely."""
        lets = [Let(v, dims.load(const(self.at_symbols + i))) for i, v in enumerate(self.symbols)]
        return [*lets, *(contract_check(v) for v in self.symbols if isinstance(v, Dim)), *self.check_relations()]

    def check_relations(self) -> list[Stmt]:
        """Returns the checks of the declared relations between dims, on which the memory plan and loop programs rely."""
        return [Check(r.cond, r.message, r.values, r.help, "shape", r.span) for r in self.relations]


def const(value: int) -> Const:
    """An i64 literal."""
    return Const(value, i64)


def slots_of(param: g.Value) -> int:
    """Returns the number of entries of part A that an argument takes: two per dim of a tensor, one for a scalar."""
    return 2 * len(param.annotation.shape) if isinstance(param.annotation, g.Tensor) else 1


def layout_of(function: g.Function, outputs: Sequence[g.Tensor], counts: Sequence[Expr] = ()) -> Layout:
    """Returns the layout of the `dims` array of a function.

    Raises if a variable of a parameter's annotation is nowhere a dim or a stride by itself: nothing would define it.
    """
    parts = [part(p.annotation) for part in (_dims_of, stride_exprs) for p in function.params]
    bound = dict.fromkeys(e for exprs in parts for e in exprs if isinstance(e, Var))
    for p in function.params:
        for e in (*_dims_of(p.annotation), *stride_exprs(p.annotation)):
            missing = sorted(v.name for v in free_vars(e) if v not in bound)
            if missing:
                raise Error(
                    f"`{missing[0]}` is used in the annotation of `{p.name}` but no parameter defines it",
                    where=function.span,
                    facts=[f"`{p.name}` is {p.annotation}", "a dim is defined where it stands alone as a dimension of a parameter"],
                    help=f"add a parameter that has `{missing[0]}` as a dimension of its own",
                )
    return Layout(
        function.params,
        tuple(bound),
        tuple(outputs),
        g.output_names(function),
        tuple(counts),
        function.attrs.get("narrowed", {}),
        g.relations(function),
    )


def _dims_of(a: g.Annotation) -> tuple[Expr, ...]:
    if isinstance(a, g.Tensor):
        return a.shape
    return (a.value,) if isinstance(a, g.Scalar) and a.value is not None else ()


Shapes = Sequence[tuple[str, tuple[Expr, ...]]]  # pairs (name for messages, shape)


def prepare_func(layout: Layout, requires: Sequence[g.Require], shapes: Shapes, workspace: Expr) -> Func:
    """Returns the entry function `prepare`: it checks the arguments, and fills symbols, output shapes and workspace size in `dims`."""
    dims = layout.buffer()
    body = [*_bind(layout, dims), *_check_shapes(layout, dims), *_check_declared_strides(layout, dims), *_check_contiguous(layout, dims)]
    body += [Store(dims, (const(layout.at_symbols + i),), v) for i, v in enumerate(layout.symbols)]
    body += layout.check_relations()
    body += _check_packed(layout)
    body += [Check(r.cond, r.message, r.values, r.help, "shape", r.span) for r in requires]
    body += [*_check_sizes(shapes), *_sizes(layout, dims, workspace)]
    return entry("prepare", (Param(dims, "inout"),), body)


def entry(name: str, params: tuple[Param, ...], body: Sequence[Stmt], host: bool = False) -> Func:
    """Returns an entry function.

    Its symbols are bound by lets, so they become plain variables instead of the dims of the graph: a dim would carry its contract
    as a fact into the very checks that have to establish it.
    """
    draft = Func(name, params, Seq(tuple(body)), FuncAttrs(entry=True, scheduled=True, host=host))
    return draft.with_(body=instantiate(draft, draft.buffers, ()))


def size_func(layout: Layout, shapes: Shapes, workspace: Expr) -> Func:
    """Returns the entry function `size`, which computes the output shapes and the workspace size from the symbols, in the `dims` array."""
    dims = layout.buffer()
    body = (*layout.load_symbols(dims), *_check_sizes(shapes), *_sizes(layout, dims, workspace))
    return entry("size", (Param(dims, "inout"),), body)


def shapes_func(layout: Layout) -> Func:
    """Returns the function that fills the arguments' shapes and strides in `dims` from the symbols, for callers with plain pointers."""
    dims = layout.buffer()
    body = list(layout.load_symbols(dims))
    for p, at in layout.arguments():
        if isinstance(p.annotation, g.Tensor):
            shape = p.annotation.shape
            strides = p.annotation.strides or tuple(product(shape[i + 1 :]) for i in range(len(shape)))
            body += [Store(dims, (const(at + i),), e) for i, e in enumerate((*shape, *strides))]
    return entry("shapes", (Param(dims, "inout"),), body)


def _slots(layout: Layout, dims: Buffer) -> Iterator[tuple[g.Value, int, Expr, Load]]:
    """Yields each dimension of each argument: the argument, the index of the dim, its expected value, its actual value."""
    for p, at in layout.arguments():
        for i, e in enumerate(_dims_of(p.annotation)):
            yield p, i, e, dims.load(const(at + i))


def _bind(layout: Layout, dims: Buffer) -> list[Stmt]:
    """Returns lets that bind each symbol to the first dim (or stride) that defines it."""
    bound: dict[Var, Expr] = {}
    for _, _, e, slot in _slots(layout, dims):
        if isinstance(e, Var):
            bound.setdefault(e, slot)
    # A stride symbol is read from the first argument with more than one element along the dim: numpy may put any stride on other dims.
    strides: dict[Var, Expr] = {}
    for _, _, e, slot, counts in reversed(list(_stride_slots(layout, dims))):
        if isinstance(e, Var) and e not in bound:
            least = -(-e.min // e.multiple_of) * e.multiple_of if isinstance(e, Dim) else 0
            strides[e] = Select(counts, slot, strides.get(e, const(least)))
    return [Let(v, e) for v, e in (bound | strides).items()]


def _stride_slots(layout: Layout, dims: Buffer) -> Iterator[tuple[g.Value, int, Expr, Load, Expr]]:
    """Yields each declared stride: the argument, the index of the dim, the expected and the actual stride, and when it is meaningful.

    It is not meaningful along a dim of one element, nor in an empty tensor: no access uses it there.
    """
    for p, at in layout.arguments():
        strides = stride_exprs(p.annotation)
        filled = all_of(TRUE, *(Lt(const(0), dims.load(const(at + i))) for i in range(len(strides))))
        for i, e in enumerate(strides):
            yield p, i, e, dims.load(const(at + len(strides) + i)), all_of(filled, Lt(const(1), dims.load(const(at + i))))


def _check_shapes(layout: Layout, dims: Buffer) -> list[Stmt]:
    """Returns the checks of fixed dims, then of the contract of each symbol, then of relations between dims.

    In this order the first error is the simplest one.
    """
    fixed: list[Stmt] = []
    contracts: list[Stmt] = []
    relations: list[Stmt] = []
    bound: dict[Var, tuple[g.Value, int]] = {}
    for p, i, e, slot in _slots(layout, dims):
        if isinstance(e, Var) and e not in bound:
            bound[e] = (p, i)
            if isinstance(e, Dim):
                contracts.append(contract_check(e, f"argument `{p.name}`: dim {i}, ", layout.narrowed.get(e)))
            continue
        known = isinstance(e, Const)
        source = f" (`{e}`)" if not known else ""
        first = f"; `{e}` is dim {bound[e][1]} of `{bound[e][0].name}`" if isinstance(e, Var) else ""
        message = f"argument `{p.name}`: dim {i} is {{0}}, expected {{1}}{source}{first}"
        check = Check(Eq(slot, e), message, (slot, e), f"`{p.name}` is {p.annotation}", "shape")
        (fixed if known else relations).append(check)
    return fixed + contracts + relations


def contract_check(d: Dim, subject: str = "", asked: g.Require | None = None) -> Stmt:
    """Returns the check that a dim is within its contract; `subject` says where the value is from, `asked` what narrowed the contract."""
    cond = all_of(Le(const(d.min), d), Le(d, const(d.max)))
    if d.multiple_of > 1:
        cond = all_of(cond, Eq(FloorMod(d, const(d.multiple_of)), const(0)))
    message = f"{subject}`{d.name}` = {{0}} is outside its contract: {d.contract}"
    if asked is not None:
        named = [f"`{v}`" if free_vars(v) else str(v) for v in asked.values]
        help_ = f"it is asked for inside: {asked.message.replace(' is {0}', '').format(*named)}"
        return Check(cond, message, (d,), help_, "shape", asked.span)
    return Check(cond, message, (d,), "the contract comes from the declaration of the dim and from `dims=` of compile", "shape")


def _check_declared_strides(layout: Layout, dims: Buffer) -> list[Stmt]:
    """Returns the checks of declared strides; the contracts of dims that occur only as strides come first."""
    shown = {e for p in layout.params for e in _dims_of(p.annotation)}
    contracts: list[Stmt] = []
    relations: list[Stmt] = []
    for p, i, e, slot, counts in _stride_slots(layout, dims):
        if isinstance(e, Dim) and e not in shown:
            shown.add(e)
            contracts.append(contract_check(e, f"argument `{p.name}`: stride {i}, ", layout.narrowed.get(e)))
        source = "" if isinstance(e, Const) else f" (`{e}`)"
        message = f"argument `{p.name}`: stride {i} is {{0}}, expected {{1}}{source}"
        relations.append(Check(Or(Not(counts), Eq(slot, e)), message, (slot, e), f"`{p.name}` is {p.annotation}", "shape"))
    return contracts + relations


def _check_contiguous(layout: Layout, dims: Buffer) -> list[Stmt]:
    """Returns the checks that arguments without declared strides are row-major contiguous.

    They ignore the strides of dims of at most one element, and all strides of empty tensors, as numpy does.
    """
    checks: list[Stmt] = []
    for p, at in layout.arguments():
        if not isinstance(p.annotation, g.Tensor) or not p.annotation.shape or p.annotation.strides is not None:
            continue
        shape = p.annotation.shape
        empty: Expr = FALSE
        for e in shape:
            if not isinstance(e, Const) or e.value == 0:
                empty = Eq(e, const(0)) if empty is FALSE else Or(empty, Eq(e, const(0)))
        ok: Expr = TRUE
        for i, e in enumerate(shape):
            right = Eq(dims.load(const(at + len(shape) + i)), simplify(product(shape[i + 1 :])))
            ok = all_of(ok, right if isinstance(e, Const) and e.value > 1 else Or(Le(e, const(1)), right))
        cond = ok if empty is FALSE else Or(empty, ok)
        strides = tuple(dims.load(const(at + len(shape) + i)) for i in range(len(shape)))[:6]
        shown = ", ".join(f"{{{i}}}" for i in range(len(strides)))
        message = f"argument `{p.name}` is not contiguous: its strides are ({shown}) elements"
        # For state the help is another one: the call would update a contiguous copy, and the caller would never see it.
        kept = f"allocate a contiguous array of {p.annotation.dtype.long_name} with the values of the state and pass that"
        help_ = f"{kept}: the call writes into it" if p.annotation.state else f"pass np.ascontiguousarray({p.name})"
        checks.append(Check(cond, message, strides, help_, "shape"))
    return checks


def _check_packed(layout: Layout) -> list[Stmt]:
    """Returns the checks that rows of sub-byte elements fill whole bytes, in arguments and outputs, where that is not proved."""
    tensors = [(f"argument `{p.name}`", p.annotation) for p in layout.params if isinstance(p.annotation, g.Tensor)]
    tensors += [(f"output `{name}`", t) for name, t in zip(layout.names, layout.outputs, strict=True)]
    checks: list[Stmt] = []
    for what, t in tensors:
        per = t.dtype.per_byte
        cond = simplify(Eq(FloorMod(t.shape[-1], const(per)), const(0))) if per > 1 and t.shape else TRUE
        if cond is not TRUE:
            message = f"{what}: its last dim is {{0}}, which is no multiple of {per}, the elements of {t.dtype} in a byte"
            checks.append(Check(cond, message, (t.shape[-1],), f"it is {t}", "shape"))
    return checks


def _check_sizes(shapes: Shapes) -> list[Stmt]:
    """Returns the checks that no dim is negative and that no tensor exceeds `LIMIT` elements, without overflow in the check itself.

    A tensor of one dim times small literals is not checked: its contract proves that it fits. Raises UnsupportedError for a constant shape
    above the limit.
    """
    checks: dict[Expr, Stmt] = {}
    for what, shape in shapes:
        for i, e in enumerate(shape):
            if not isinstance(e, Const | Var) and not prove(Le(const(0), e), EMPTY):
                checks.setdefault(e, Check(Le(const(0), e), f"dim {i} of {what} would be {{0}} (`{e}`)", (e,), "", "shape"))
        parts = [f for e in shape for f in _factors(e)]
        factors = [f for f in parts if not isinstance(f, Const)]
        literal = math.prod(f.value for f in parts if isinstance(f, Const))  # a Python int: an i64 expression could overflow
        if len(factors) < 2 and all(isinstance(f, Var) for f in factors) and literal * math.prod(map(_most, factors)) <= _CERTAIN:
            continue
        if literal > LIMIT:
            if not factors:
                raise UnsupportedError(f"{what} has {literal} elements", facts=["the most that a tensor may have is 2**40"])
            empty: Expr = FALSE
            for f in factors:
                empty = Le(f, const(0)) if empty is FALSE else Or(empty, Le(f, const(0)))
            checks.setdefault(empty, Check(empty, f"{what} would have more than 2**40 elements", (), "", "shape"))
            continue
        count: Expr = const(literal)
        for f in factors:
            cond = Or(Le(f, const(0)), Le(count, const(LIMIT) // f))
            checks.setdefault(cond, Check(cond, f"{what} would have more than 2**40 elements", (), "", "shape"))
            count = count * f
    return list(checks.values())


def _most(dim: Expr) -> int:
    return dim.max if isinstance(dim, Dim) else DIM_MAX


def _factors(e: Expr) -> list[Expr]:
    return [f for a in e.args for f in _factors(a)] if isinstance(e, Mul) else [e]


def _sizes(layout: Layout, dims: Buffer, workspace: Expr) -> list[Stmt]:
    shapes = [e for t in layout.outputs for e in t.shape]
    stores = [Store(dims, (const(layout.at_outputs + i),), e) for i, e in enumerate(shapes)]
    return [*stores, Store(dims, (const(layout.at_workspace),), workspace)]
