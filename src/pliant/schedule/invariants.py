"""The invariants after every primitive: above all, the iterators of each block are independent affine maps of its loops.

`@legal` checks the blocks that a primitive changed. So a primitive need not consider every way in which splits, fusions and moves combine:
a result that the verifier would reject is refused first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from ..loop.analysis.nests import (
    accesses,
    base_facts,
    block_around,
    blocks,
    control_loads,
    has_cases,
    index,
    loops_above,
    path_to,
    predicate_over_loops,
)
from ..loop.buffer import MOST_STACK, stack_bytes
from ..loop.stmt import Block, For, Func, walk_stmts
from ..support.refusal import Refusal
from ..sym.affine import detect_iter_map
from ..sym.expr import Dim, Expr, Var, free_vars, substitute
from ..sym.poly import poly_of, to_expr
from .cursor import Forward
from .errors import refuse

P = ParamSpec("P")
# Primitives that read and change only what is inside the innermost enclosing block, so they are legal inside blocks. All others assume
# that they see every reader and writer, which an enclosing block hides.
NESTED = {
    "add_unit_loop", "annotate", "blockize", "fuse", "loop_partition", "partition", "reorder", "set_scope",
    "split", "tensorize", "transform_block_layout", "transform_layout", "unannotate", "unroll", "vectorize",
}  # fmt: skip
# Primitives that change neither the order of iterations nor when the range of a loop is evaluated.
REMARKS = {"add_unit_loop", "annotate", "unannotate"}
Primitive = Callable[Concatenate[Func, P], tuple[Func, Forward]]


def legal(fn: Primitive[P]) -> Primitive[P]:
    """Wrap a primitive so that it raises if its result would violate the invariants, or if a block around hides what it must see."""

    @functools.wraps(fn)
    def checked(func: Func, /, *args: P.args, **kwargs: P.kwargs) -> tuple[Func, Forward]:
        if fn.__name__ not in NESTED:
            _check_outermost(func, fn.__name__, (*args, *kwargs.values()))
        if index(func.body).loads_in_control and fn.__name__ not in REMARKS:
            _check_control(func, fn.__name__, (*args, *kwargs.values()))
        result, forward = fn(func, *args, **kwargs)
        before = set(index(func.body).all_blocks)
        for b in index(result.body).all_blocks:
            problem = "" if b in before else binding_problem(result, b)
            if problem:
                bindings = ", ".join(f"{i.var.name} = {i.value}" for i in b.iters)
                raise refuse(
                    f"cannot {fn.__name__}: the iterators of block `{b.name}` would not be independent",
                    func,
                    *((x, "") for x in before if x.name == b.name),
                    facts=[f"they would be {bindings}", problem],
                )
        _check_registers(func, result, fn.__name__)
        _check_stack(func, result, fn.__name__)
        return result, forward

    return checked


def _check_registers(func: Func, result: Func, name: str) -> None:
    """Raise if a parallel loop would use a register buffer from outside of it: threads share memory, but no registers."""
    result_index = index(result.body)
    allocations = {b: a for b, a in result_index.allocations.items() if b.scope == "register"}
    # Fast path: a buffer is visible only in the sequence that allocates it, and parallel loops are hardly ever inside one. Looking at the
    # accesses of every block took a fifth of the compile time of a decoder layer.
    homes = {result_index.parents.get(a) for a in allocations.values()}
    if all(homes.isdisjoint(path_to(result, x)) for x in result_index.parallel):
        return
    registers = {b: path_to(result, a) for b, a in allocations.items()}
    for b in result_index.all_blocks:
        threads = [x for x in path_to(result, b) if isinstance(x, For) and x.kind == "parallel"]
        for buffer in {a.buffer for a in accesses(b)} & registers.keys() if threads else ():
            outer = next((x for x in threads if x not in registers[buffer]), None)
            if outer is not None:
                what = f"cannot {name}: parallel loop `{outer.var.name}` would use register buffer `{buffer.name}`, which is outside of it"
                at = [(x, "uses it") for x in index(func.body).all_blocks if x.name == b.name]
                raise refuse(what, func, *at, help="threads share memory and no registers: keep it on the stack")


def _check_stack(func: Func, result: Func, name: str) -> None:
    """Raise if an edit added stack or register buffers and all of them together exceed MOST_STACK bytes."""
    before, after = index(func.body).allocations, index(result.body).allocations
    if before.keys() != after.keys() and (total := sum(map(stack_bytes, after))) > MOST_STACK:
        added = ", ".join(f"{b!r}" for b in after if b not in before)
        what = f"cannot {name}: buffers on the stack would take {total:,} bytes, of {MOST_STACK:,} at most"
        raise refuse(what, func, facts=[f"it would allocate {added}"], help='the scope "workspace" is for large buffers')


def _check_outermost(func: Func, name: str, args: tuple[object, ...]) -> None:
    """Raise if a loop or block is inside another block, or if a block contains blocks: an enclosing block hides its surroundings."""
    for x in args:
        if not isinstance(x, (For, Block)):
            continue
        around = block_around(func, x)
        inner = next((s for s in walk_stmts(x) if isinstance(s, Block) and s is not x), None) if isinstance(x, Block) else None
        if around is not None or inner is not None:
            reason = (
                f"it is inside of block `{around.name}`" if around is not None else f"block `{inner.name if inner else ''}` is inside of it"
            )
            shown = f"loop `{x.var.name}`" if isinstance(x, For) else f"block `{x.name}`"
            raise refuse(f"cannot {name}: {shown} is not alone, {reason}", func, (x, "here"))


def _check_control(func: Func, name: str, args: tuple[object, ...]) -> None:
    """Raise if blocks in a loop write what a range or a condition in the same loop reads.

    Dependences are computed from the accesses of blocks, and a range is evaluated once, before its loop: another order of iterations,
    or a range that becomes a predicate, would read other values.
    """
    loops = [x for x in args if isinstance(x, For)]
    read = {b for x in loops for b in control_loads(x)}
    for x in loops:
        for b in blocks(x):
            changed = next((a.buffer for a in accesses(b) if a.write and a.buffer in read), None)
            if changed is not None:
                what = f"cannot {name}: block `{b.name}` writes `{changed.name}`, which the range of a loop or a condition reads"
                raise refuse(what, func, (x, "in this loop"), (b, "writes it"))


def binding_problem(func: Func, block: Block) -> str:
    """Return why different points of a block's loops may map to the same point of its iterators; "" if they do not."""
    loops = loops_above(func, block)
    own = {x.var for x in loops}
    values = [i.value for i in block.iters]
    if len(set(values)) == len(values) and all(v in own for v in values):
        return ""
    from_zero = {x.var: Var(x.var.name) for x in loops}
    shift: dict[Var, Expr] = {x.var: from_zero[x.var] + x.start for x in loops}
    # A proof for an extent of any size also covers an extent with case distinctions, and is much easier.
    extents = {from_zero[x.var]: Dim("any") if has_cases(x.stop) else substitute(x.extent, shift) for x in loops}
    predicate = substitute(predicate_over_loops(block), shift)
    facts = base_facts(func)
    for outer in path_to(func, block):  # the same facts as in the verifier
        if isinstance(outer, Block):
            for x in loops_above(func, outer):
                facts = facts.with_loop(x.var, x.extent, x.start)
            for i in outer.iters:
                facts = facts.with_equal(i.var, i.value)
    iter_map = detect_iter_map([_moving(substitute(v, shift), set(extents)) for v in values], extents, predicate, facts)
    return iter_map.reason if isinstance(iter_map, Refusal) else ""


def _moving(e: Expr, loops: set[Var]) -> Expr:
    """Return `e` without loop-invariant terms if these have case distinctions: a constant shift keeps distinct points distinct."""
    if not has_cases(e):
        return e
    return to_expr({m: c for m, c in poly_of(e).items() if any(free_vars(a) & loops for a in m)}, e.dtype)
