"""What holds after every primitive: the iterators of each block are independent maps of its loops.

`@legal` checks it for the blocks that a primitive has changed, so that a primitive need not think of every way in which
splits, fusions and moves meet; what the verifier would find in the result is refused before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from ..loop.analysis.nests import accesses, base_facts, block_around, has_cases, index, loops_above, path_to, predicate_over_loops
from ..loop.buffer import MOST_STACK, stack_bytes
from ..loop.stmt import Block, For, Func, walk_stmts
from ..support.refusal import Refusal
from ..sym.affine import detect_iter_map
from ..sym.expr import Dim, Expr, Var, free_vars, substitute
from ..sym.poly import poly_of, to_expr
from .cursor import Forward
from .errors import refuse

P = ParamSpec("P")
# What these ask and change is within the innermost block around, or does not depend on blocks.
NESTED = {
    "add_unit_loop", "annotate", "blockize", "fuse", "loop_partition", "partition", "reorder", "set_scope",
    "split", "tensorize", "transform_block_layout", "transform_layout", "unannotate", "unroll", "vectorize",
}  # fmt: skip
Primitive = Callable[Concatenate[Func, P], tuple[Func, Forward]]


def legal(fn: Primitive[P]) -> Primitive[P]:
    """The primitive, refusing where a block's iterators would no longer be independent."""

    @functools.wraps(fn)
    def checked(func: Func, /, *args: P.args, **kwargs: P.kwargs) -> tuple[Func, Forward]:
        if fn.__name__ not in NESTED:
            _check_outermost(func, fn.__name__, (*args, *kwargs.values()))
        result, forward = fn(func, *args, **kwargs)
        before = set(index(func.body).all_blocks)
        for b in index(result.body).all_blocks:
            problem = "" if b in before else binding_problem(result, b)
            if problem:
                shown = ", ".join(f"{i.var.name} = {i.value}" for i in b.iters)
                raise refuse(
                    f"cannot {fn.__name__}: the iterators of block `{b.name}` would not be independent",
                    func,
                    *((x, "") for x in before if x.name == b.name),
                    facts=[f"they would be {shown}", problem],
                )
        _check_registers(func, result, fn.__name__)
        _check_stack(func, result, fn.__name__)
        return result, forward

    return checked


def _check_registers(func: Func, result: Func, name: str) -> None:
    """Refuse register buffers that a parallel loop would use and not have: threads share memory, and no registers."""
    found = index(result.body)
    allocations = {b: a for b, a in found.allocations.items() if b.scope == "register"}
    # A buffer is known in the rest of the sequence that allocates it. A parallel loop is hardly ever in one of these, which is seen
    # quickly. Looking at what every block accesses took a fifth of the time of compiling a decoder layer.
    homes = {found.parents.get(a) for a in allocations.values()}
    if all(homes.isdisjoint(path_to(result, x)) for x in found.parallel):
        return
    registers = {b: path_to(result, a) for b, a in allocations.items()}
    for b in found.all_blocks:
        threads = [x for x in path_to(result, b) if isinstance(x, For) and x.kind == "parallel"]
        for buffer in {a.buffer for a in accesses(b)} & registers.keys() if threads else ():
            outer = next((x for x in threads if x not in registers[buffer]), None)
            if outer is not None:
                what = f"cannot {name}: parallel loop `{outer.var.name}` would use register buffer `{buffer.name}`, which is outside of it"
                at = [(x, "uses it") for x in index(func.body).all_blocks if x.name == b.name]
                raise refuse(what, func, *at, help="threads share memory and no registers: keep it on the stack")


def _check_stack(func: Func, result: Func, name: str) -> None:
    """Refuse buffers that would be too large for a stack."""
    before, after = index(func.body).allocations, index(result.body).allocations
    if before.keys() != after.keys() and (total := sum(map(stack_bytes, after))) > MOST_STACK:
        added = ", ".join(f"{b!r}" for b in after if b not in before)
        what = f"cannot {name}: buffers on the stack would take {total:,} bytes, of {MOST_STACK:,} at most"
        raise refuse(what, func, facts=[f"it would allocate {added}"], help='the scope "workspace" is for large buffers')


def _check_outermost(func: Func, name: str, args: tuple[object, ...]) -> None:
    """Refuse a block or loop that is inside of a block, and a block that has others inside: what is around them is hidden."""
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


def binding_problem(func: Func, block: Block) -> str:
    """Why different points of a block's loops may be the same point of its iterators, "" when they are not."""
    loops = loops_above(func, block)
    own = {x.var for x in loops}
    values = [i.value for i in block.iters]
    if len(set(values)) == len(values) and all(v in own for v in values):
        return ""
    from_zero = {x.var: Var(x.var.name) for x in loops}
    shift: dict[Var, Expr] = {x.var: from_zero[x.var] + x.start for x in loops}
    # What holds for an extent of any size holds for one of a case distinction, and is much easier to prove.
    extents = {from_zero[x.var]: Dim("any") if has_cases(x.stop) else substitute(x.extent, shift) for x in loops}
    predicate = substitute(predicate_over_loops(block), shift)
    facts = base_facts(func)
    for outer in path_to(func, block):  # as the verifier does
        if isinstance(outer, Block):
            for x in loops_above(func, outer):
                facts = facts.with_loop(x.var, x.extent, x.start)
            for i in outer.iters:
                facts = facts.with_equal(i.var, i.value)
    found = detect_iter_map([_moving(substitute(v, shift), set(extents)) for v in values], extents, predicate, facts)
    return found.reason if isinstance(found, Refusal) else ""


def _moving(e: Expr, loops: set[Var]) -> Expr:
    """`e` without the terms that no loop changes, where these are case distinctions: a shift keeps points apart."""
    if not has_cases(e):
        return e
    return to_expr({m: c for m, c in poly_of(e).items() if any(free_vars(a) & loops for a in m)}, e.dtype)
